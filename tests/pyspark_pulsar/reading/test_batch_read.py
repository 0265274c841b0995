"""Batch queries on real messages of the official client: values, columns, places, times, topics."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pulsar = pytest.importorskip("pulsar", reason="needs the official client, pip install pulsar-client")

from pyspark_pulsar.client.cluster import open_cluster  # noqa: E402
from pyspark_pulsar.options import source_options  # noqa: E402
from pyspark_pulsar.planning.batch_plan import batch_ranges  # noqa: E402
from tests.interop.support import Clocks  # noqa: E402
from tests.pyspark_pulsar.conftest import Publish, Source  # noqa: E402
from tests.vectors.broker_process import BrokerProcess  # noqa: E402

BODIES = [b"message %d" % number for number in range(300)]


def values(frame: Any) -> list[bytes]:
    return [bytes(row.value) for row in frame.collect()]


@pytest.mark.parametrize("codec", ["NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY"])
@pytest.mark.parametrize("batched", [True, False])
def test_batch_read_returns_every_message_once_and_in_order(
    source: Source, publish: Publish, topic: str, codec: str, batched: bool
) -> None:
    publish(
        topic,
        BODIES,
        batching_enabled=batched,
        batching_max_messages=70,
        batching_max_publish_delay_ms=1000,
        compression_type=getattr(pulsar.CompressionType, codec),
    )
    assert values(source.read(topic=topic, columns="value")) == BODIES


def test_batch_read_keeps_the_order_when_entries_differ(source: Source, publish: Publish, topic: str) -> None:
    """Batches of messages of any size, entries without a batch and compressed ones between them."""
    expected = []
    for number in range(6):
        bodies = [bytes([number]) * (length * 37 % 301) for length in range(50)]
        codec = pulsar.CompressionType.LZ4 if number % 3 == 1 else pulsar.CompressionType.NONE
        publish(topic, bodies, batching_enabled=number % 2 == 0, compression_type=codec)
        expected += bodies
    assert values(source.read(topic=topic, columns="value")) == expected


def test_metadata_columns_equal_what_the_official_client_returns(
    source: Source, client: Any, publish: Publish, topic: str
) -> None:
    def facts(number: int) -> dict[str, Any]:
        return {
            "partition_key": f"key-{number}",
            "properties": {"a": str(number), "ü": "ö"} if number % 3 else {},
            "event_timestamp": 1_700_000_000_000 + number if number % 2 else None,
        }

    publish(topic, BODIES[:40], batching_enabled=True, per_message=facts)
    publish(topic, BODIES[40:45], batching_enabled=False, per_message=facts)
    rows = source.read(topic=topic, columns=f"value,{','.join(METADATA)}").collect()
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    for row in rows:
        message = reader.read_next(60_000)
        assert bytes(row.value) == message.data()
        assert bytes(row["__key"]).decode() == message.partition_key()
        assert row["__topic"] == message.topic_name()
        assert row["__messageProperties"] == message.properties()
        assert int(row["__publishTime"].timestamp() * 1000) == message.publish_timestamp()
        event = row["__eventTime"]
        assert (0 if event is None else round(event.timestamp() * 1000)) == message.event_timestamp()
        place = message.message_id()
        assert (row["__ledger"], row["__entry"], row["__batchIndex"]) == (
            place.ledger_id(),
            place.entry_id(),
            place.batch_index(),
        )
        theirs = pulsar.MessageId.deserialize(bytes(row["__messageId"]))
        assert (theirs.ledger_id(), theirs.entry_id(), theirs.batch_index()) == (
            place.ledger_id(),
            place.entry_id(),
            place.batch_index(),
        )
        assert row["__producer"] == message.producer_name()
        assert row["__partition"] == -1
        assert row["__redeliveryCount"] == 0
    assert [row["__sequence"] for row in rows] == [*range(40), *range(5)]
    reader.close()


METADATA = (
    "__key",
    "__topic",
    "__messageId",
    "__publishTime",
    "__eventTime",
    "__messageProperties",
    "__ledger",
    "__entry",
    "__batchIndex",
    "__partition",
    "__producer",
    "__sequence",
    "__schemaVersion",
    "__redeliveryCount",
)


def test_default_columns_are_those_of_the_jvm_connector(source: Source, publish: Publish, topic: str) -> None:
    publish(topic, BODIES[:1])
    assert [
        (field.name, field.dataType.simpleString()) for field in source.read(topic=topic).schema.fields
    ] == [
        ("value", "binary"),
        ("__key", "binary"),
        ("__topic", "string"),
        ("__messageId", "binary"),
        ("__publishTime", "timestamp"),
        ("__eventTime", "timestamp"),
        ("__messageProperties", "map<string,string>"),
    ]


def test_offsets_by_message_id_include_both_ends(source: Source, publish: Publish, topic: str) -> None:
    """Both ends are read: as text, with a place in the batch, per topic, and as the bytes of a message id."""
    publish(
        topic, BODIES, batching_enabled=True, batching_max_messages=50, batching_max_publish_delay_ms=1000
    )
    where = source.read(topic=topic, columns="__ledger,__entry,__batchIndex,__messageId").collect()

    def text(row: Any) -> str:
        return f"{row['__ledger']}:{row['__entry']}:{row['__batchIndex']}"

    def as_bytes(row: Any) -> str:
        return json.dumps({topic: [byte - 256 if byte > 127 else byte for byte in row["__messageId"]]})

    def between(start: str, end: str) -> list[bytes]:
        return values(source.read(topic=topic, columns="value", startingOffsets=start, endingOffsets=end))

    assert between(text(where[60]), text(where[170])) == BODIES[60:171]
    assert between(as_bytes(where[60]), as_bytes(where[170])) == BODIES[60:171]
    assert between(json.dumps({topic: text(where[99])}), "latest") == BODIES[99:]
    entry = f"{where[120]['__ledger']}:{where[120]['__entry']}"
    whole_entry = [BODIES[n] for n, row in enumerate(where) if row["__entry"] == where[120]["__entry"]]
    assert between(entry, entry) == whole_entry


def test_times_select_messages_by_publish_time(source: Source, publish: Publish, topic: str) -> None:
    borders = []
    for number in range(3):
        publish(topic, BODIES[number * 10 : number * 10 + 10], batching_enabled=False)
        time.sleep(0.01)  # Publish times are milliseconds; the parts must not share one.
        borders.append(int(time.time() * 1000))
        time.sleep(0.01)
    first, second, _ = borders

    def times(start: object, end: object) -> list[bytes]:
        return values(source.read(topic=topic, columns="value", startingTime=start, endingTime=end))

    assert times(first, second) == BODIES[10:20]
    assert times(0, first) == BODIES[:10]
    iso = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second / 1000)) + f".{second % 1000:03d}Z"
    assert times(iso, 2**50) == BODIES[20:30]
    assert times(json.dumps({topic: second}), 2**50) == BODIES[20:30]
    assert times(2**50, 2**51) == []
    (newest,) = source.read(topic=topic, columns="__messageId").tail(1)
    end = json.dumps({topic: list(newest["__messageId"])})
    rows = source.read(topic=topic, columns="value", startingTime=second, endingOffsets=end)
    assert values(rows) == BODIES[20:30]


def test_times_hold_where_the_brokers_clock_is_ahead(tmp_path: Path) -> None:
    """Brokers count back from their own clock. The ranges of the tasks must still have the rows."""
    with BrokerProcess(tmp_path, memory=True, test_faults=True) as broker:
        client = pulsar.Client(broker.addresses.pulsar)
        begin = int(time.time() * 1000)
        client.create_producer("t").send(b"a")
        client.close()
        Clocks(broker).advance(seconds=8)
        given = {"service.url": broker.addresses.pulsar, "topic": "t", "startingTime": str(begin)}
        options = source_options({**given, "endingTime": str(begin + 60_000)}, streaming=False)
        with open_cluster(options.cluster) as cluster:
            (found,) = batch_ranges(cluster, ["persistent://public/default/t"], options, "test")
    assert found.start < found.end


def test_batch_read_finds_topics_by_list_and_pattern_and_partitions(
    source: Source, client: Any, publish: Publish, topic: str, make_partitioned: Callable[[str, int], None]
) -> None:
    make_partitioned(f"{topic}-p", 3)
    for number in range(5):
        publish(f"{topic}-{number}", BODIES[number * 10 : number * 10 + 10])
    publish(f"{topic}-p", BODIES[100:130], batching_enabled=False)
    listed = source.read(topics=f"{topic}-0, {topic}-3", columns="value,__topic").collect()
    assert sorted(bytes(row.value) for row in listed) == sorted(BODIES[0:10] + BODIES[30:40])
    by_pattern = source.read(topicsPattern=f"{topic}-[0-4]", columns="value")
    assert sorted(values(by_pattern)) == sorted(BODIES[:50])
    partitioned = source.read(topic=f"{topic}-p", columns="value,__topic,__partition").collect()
    assert sorted(bytes(row.value) for row in partitioned) == sorted(BODIES[100:130])
    assert {row["__topic"].rpartition("-")[2]: row["__partition"] for row in partitioned} == {
        "0": 0,
        "1": 1,
        "2": 2,
    }


def test_batch_read_returns_rows_in_the_same_order_when_repeated(
    source: Source, publish: Publish, topic: str
) -> None:
    """Whatever arrives first, a task gives its topics in one order."""
    for number in range(40):
        publish(
            f"{topic}-{number:02d}", BODIES[number * 5 : number * 5 + 5], batching_enabled=number % 2 == 0
        )
    query = source.read(topicsPattern=f"{topic}-.*", columns="value", numPartitions=1)
    assert [values(query) for _ in range(3)] == [BODIES[:200]] * 3


def test_batch_read_returns_no_rows_for_an_empty_topic(source: Source, client: Any, topic: str) -> None:
    client.create_producer(topic).close()
    assert source.read(topic=topic).count() == 0


def test_batch_read_returns_large_messages_whole(source: Source, publish: Publish, topic: str) -> None:
    bodies = [bytes([number]) * 2_000_000 for number in range(12)]
    publish(topic, bodies, batching_enabled=False)
    assert values(source.read(topic=topic, columns="value")) == bodies


def test_user_given_schema_selects_columns(source: Source, publish: Publish, topic: str) -> None:
    publish(topic, BODIES[:3])
    reader = source.spark.read.format("pulsar").schema("__entry bigint, value binary")
    frame = reader.option("service.url", source.url).option("topic", topic).load()
    assert [(row["__entry"] >= 0, bytes(row.value)) for row in frame.collect()] == [
        (True, b) for b in BODIES[:3]
    ]


def test_chunked_message_becomes_one_row(source: Source, client: Any, topic: str) -> None:
    """Also where a range begins between the chunks of one."""
    bodies = [bytes([number]) * 6_000_000 for number in range(3)]
    producers = [
        client.create_producer(topic, chunking_enabled=True, batching_enabled=False, compression_type=codec)
        for codec in (pulsar.CompressionType.NONE, pulsar.CompressionType.LZ4)
    ]
    producers[0].send(b"first")
    for body in bodies:
        producers[0].send(body)
    producers[1].send(b"last")
    rows = source.read(topic=topic, columns="value,__ledger,__entry").collect()
    assert [bytes(row.value) for row in rows] == [b"first", *bodies, b"last"]
    middle = f"{rows[1]['__ledger']}:{rows[1]['__entry']}"
    cut = source.read(topic=topic, columns="value", startingOffsets=middle, endingOffsets=middle)
    assert values(cut) == [bodies[0]]
