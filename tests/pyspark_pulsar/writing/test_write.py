"""The sink: what the official client reads is what was written, and each row is there once whatever is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pulsar = pytest.importorskip("pulsar", reason="needs the official client, pip install pulsar-client")

from pyspark_pulsar.client.cluster import open_cluster  # noqa: E402
from pyspark_pulsar.errors import BrokerRefused  # noqa: E402
from pyspark_pulsar.options import source_options  # noqa: E402
from pyspark_pulsar.planning.topics import choose_topics  # noqa: E402
from pyspark_pulsar.topic_names import PROBE_TOPIC  # noqa: E402
from pyspark_pulsar.writing.deduplication_probe import deduplicates  # noqa: E402
from pyspark_pulsar.writing.partition_router import java_hash  # noqa: E402
from tests.interop.support import wait_until  # noqa: E402
from tests.pyspark_pulsar.conftest import OTHER_BROKER, Publish, Source  # noqa: E402
from tests.vectors.broker_process import BrokerProcess  # noqa: E402

ROOT = Path(__file__).resolve().parents[3]


def write(source: Source, frame: Any, **options: object) -> None:
    writer = frame.write.format("pulsar").mode("append").option("service.url", source.url)
    for name, value in options.items():
        writer = writer.option(name.replace("__", "."), str(value))
    writer.save()


def messages(client: Any, topic: str, count: int) -> list[Any]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = [reader.read_next(60_000) for _ in range(count)]
    assert not reader.has_message_available()
    reader.close()
    return found


@pytest.mark.parametrize("codec", ["NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY"])
def test_official_client_reads_the_written_messages(
    source: Source, client: Any, topic: str, codec: str
) -> None:
    frame = source.spark.range(0, 2500, 1, 1).selectExpr(
        "if(id = 7, null, cast(concat('value ', id) as binary)) as value",
        "if(id % 2 = 0, cast(concat('k', id) as binary), unhex('ff00')) as __key",
        "if(id % 3 = 0, timestamp_millis(1700000000000 + id), null) as __eventTime",
        "if(id % 5 = 0, map('n', cast(id as string), 'ü', 'ö'), null) as __messageProperties",
    )
    write(source, frame, topic=topic, pulsar__producer__compressionType=codec)
    for number, message in enumerate(messages(client, topic, 2500)):
        assert message.data() == (b"" if number == 7 else b"value %d" % number)
        assert message.partition_key() == (f"k{number}" if number % 2 == 0 else "/wA=")
        assert message.event_timestamp() == (1_700_000_000_000 + number if number % 3 == 0 else 0)
        assert message.properties() == ({"n": str(number), "ü": "ö"} if number % 5 == 0 else {})


def test_sink_writes_each_row_to_the_topic_it_names(source: Source, client: Any, topic: str) -> None:
    frame = source.spark.range(90).selectExpr(
        "cast(cast(id as string) as binary) as value", f"concat('{topic}-', id % 3) as __topic"
    )
    write(source, frame)
    for number in range(3):
        bodies = [message.data() for message in messages(client, f"{topic}-{number}", 30)]
        assert sorted(bodies) == sorted(b"%d" % value for value in range(90) if value % 3 == number)


def test_sink_chooses_partitions_as_the_java_client_does(
    source: Source, make_partitioned: Callable[[str, int], None], topic: str
) -> None:
    make_partitioned(topic, 3)
    frame = source.spark.range(0, 4000, 1, 1).selectExpr(
        "cast(cast(id as string) as binary) as value", "if(id < 1000, concat('käy-', id % 50), null) as __key"
    )
    write(source, frame, topic=topic)
    rows = source.read(topic=topic, columns="value,__key,__partition").collect()
    assert sorted(int(row.value) for row in rows) == list(range(4000))
    for row in rows:
        if row["__key"] is not None:
            assert row["__partition"] == java_hash(bytes(row["__key"])) % 3
    without = Counter(row["__partition"] for row in rows if row["__key"] is None)
    assert set(without) == {0, 1, 2}


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        # What Java says of it, without the sign: "polygenelubricants".hashCode() is Integer.MIN_VALUE.
        ("polygenelubricants", 0),
        ("käy", 110016),
    ],
)
def test_java_hash_equals_string_hash_code(key: str, expected: int) -> None:
    assert java_hash(key) == java_hash(key.encode()) == expected


@pytest.mark.parametrize("schema_type", ["AVRO", "JSON"])
def test_written_records_are_read_as_columns(source: Source, topic: str, schema_type: str) -> None:
    frame = source.spark.range(100).selectExpr(
        "id",
        "if(id % 4 = 0, null, concat('text \"', id, '\" \\n é')) as text",
        "id / 8 as real",
        "array(id, id + 1) as several",
        "named_struct('a', id, 'b', cast(id as string), 'at', timestamp_millis(1700000000000 + id)) as inner",
        "timestamp_millis(1700000000000 + id) as at",
    )
    decimals = "cast(if(id = 9, null, (id - 50) / 7) as decimal(12,3)) as price"
    if schema_type == "AVRO":
        frame = frame.selectExpr("*", decimals)
    write(source, frame, topic=topic, schemaType=schema_type)
    definition = (
        '{"type":"record","name":"r","fields":[{"name":"id","type":["null","long"]},'
        '{"name":"text","type":["null","string"]},{"name":"real","type":["null","double"]},'
        '{"name":"several","type":["null",{"type":"array","items":["null","long"]}]},'
        '{"name":"inner","type":["null",{"type":"record","name":"i","fields":['
        '{"name":"a","type":["null","long"]},{"name":"b","type":["null","string"]},'
        '{"name":"at","type":["null",{"type":"long","logicalType":"timestamp-micros"}]}]}]},'
        '{"name":"at","type":["null",{"type":"long","logicalType":"timestamp-micros"}]}'
    )
    if schema_type == "AVRO":
        definition += ',{"name":"price","type":["null",{"type":"bytes","logicalType":"decimal","precision":12,"scale":3}]}'
    definition += "]}"
    read = source.read(topic=topic, schemaType=schema_type, schemaDefinition=definition)
    names = frame.columns
    back = sorted(row for row in read.select(*names).collect())
    assert back == sorted(row for row in frame.select(*names).collect())


@pytest.mark.parametrize(
    ("sql", "schema_type"),
    [
        ("cast(id as byte)", "INT8"),
        ("cast(id as short)", "INT16"),
        ("cast(id as int)", "INT32"),
        ("id - 50", "INT64"),
        ("cast(id / 3 as float)", "FLOAT"),
        ("id / 3", "DOUBLE"),
        ("id % 2 = 0", "BOOLEAN"),
        ("concat('t', id)", "STRING"),
    ],
)
def test_written_plain_values_are_read_unchanged(
    source: Source, topic: str, sql: str, schema_type: str
) -> None:
    frame = source.spark.range(0, 100, 1, 1).selectExpr(f"if(id = 3, null, {sql}) as value")
    write(source, frame, topic=topic)
    read = source.read(topic=topic, schemaType=schema_type, columns="value", numPartitions=1)
    assert [row.value for row in read.collect()] == [row.value for row in frame.collect()]


def test_rows_of_the_source_are_written_as_they_are(source: Source, publish: Publish, topic: str) -> None:
    """Without the columns that only a broker or a producer sets; they were fields of the copied value once."""
    publish(topic, [b"a"], per_message=lambda number: {"partition_key": "k", "properties": {"p": "q"}})
    write(source, source.read(topic=topic), topic=f"{topic}-copy")
    names = ["value", "__key", "__eventTime", "__messageProperties"]
    (row,) = source.read(topic=f"{topic}-copy").select(*names).collect()
    assert row == source.read(topic=topic).select(*names).first()


def test_no_task_begins_where_the_broker_refuses_the_schema(source: Source, topic: str) -> None:
    write(source, source.spark.range(3).selectExpr("'a' as value"), topic=topic)
    with pytest.raises(Exception, match="IncompatibleSchema") as caught:
        write(source, source.spark.range(3).selectExpr("id as value"), topic=topic)
    assert "Python worker" not in str(caught.value)
    assert source.read(topic=topic).count() == 3


def test_write_without_rows_leaves_a_topic_that_can_be_read(source: Source, topic: str) -> None:
    write(source, source.spark.range(0).selectExpr("id as value"), topic=topic)
    frame = source.read(topic=topic, columns="value")
    assert (frame.count(), frame.schema.simpleString()) == (0, "struct<value:bigint>")


# Exactly once

ROWS = 60_000


def dying(folder: Path) -> Any:
    """Returns a function for `mapInArrow`: each task's first attempt kills its process after two thirds of its rows."""

    def pass_on(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        passed = 0
        for batch in batches:
            yield batch
            passed += batch.num_rows
            if context.attemptNumber() == 0 and passed > ROWS / 3:
                (folder / f"died-{context.partitionId()}").touch()
                os.kill(os.getpid(), signal.SIGKILL)

    return pass_on


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_killed_tasks_double_no_row_when_exactly_once(
    source: Source, topic: str, tmp_path: Path, guarantee: str
) -> None:
    """The tasks had sent a part of their rows. Without stable sequence ids, running them again doubles rows."""
    frame = source.spark.range(0, ROWS, 1, 2).selectExpr("cast(cast(id as string) as binary) as value")
    write(source, frame.mapInArrow(dying(tmp_path), "value binary"), topic=topic, deliveryGuarantee=guarantee)
    assert {path.name for path in tmp_path.iterdir()} == {"died-0", "died-1"}
    counts = Counter(int(row.value) for row in source.read(topic=topic, columns="value").collect())
    assert set(counts) == set(range(ROWS))
    assert (max(counts.values()) == 1) == (guarantee == "exactly-once")


DRIVER = """
import sys
from pipeline.session import start_session
from tests.pyspark_pulsar.writing.test_write import copy
copy(start_session("copy", master="local[2]", quick_start=True), *sys.argv[1:])
"""


def copy(spark: Any, url: str, source: str, sink: str, checkpoint: str) -> None:
    """Copies a topic by a stream, up to its present end."""
    stream = (
        spark.readStream.format("pulsar")
        .option("service.url", url)
        .option("topic", source)
        .option("startingOffsets", "earliest")
        .option("columns", "value")
        .option("maxRowsPerTrigger", "8000")
        .load()
    )
    query = (
        stream.writeStream.format("pulsar")
        .option("service.url", url)
        .option("topic", sink)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


@pytest.mark.slow
def test_rows_are_stored_once_when_driver_dies(
    source: Source, publish: Publish, topic: str, tmp_path: Path
) -> None:
    """A driver dies with its workers in the middle of a stream, and another one continues from the checkpoint."""
    rows = 24_000
    publish(
        topic, [b"%d" % number for number in range(rows)], batching_enabled=True, batching_max_messages=500
    )
    sink = f"{topic}-sink"
    places = [source.url, topic, sink, str(tmp_path / "checkpoint")]
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER, *places], cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        wait_until(lambda: process.poll() is not None or stored(source.url, sink) > 1, "rows", 150)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it had not ended"
    copy(source.spark, *places)
    counts = Counter(int(row.value) for row in source.read(topic=sink, columns="value").collect())
    assert set(counts) == set(range(rows))
    assert max(counts.values()) == 1


def stored(url: str, topic: str) -> int:
    """The newest entry of a topic, -1 while there is none; only that it grows matters."""
    options = source_options({"service.url": url, "topic": topic}, streaming=None)
    with open_cluster(options.cluster) as cluster:
        try:
            return cluster.last_entries(options.topics.names, "test")[0].entry
        except BrokerRefused:
            return -1


def test_sink_refuses_a_broker_that_does_not_deduplicate(source: Source, topic: str, tmp_path: Path) -> None:
    if OTHER_BROKER in os.environ:
        pytest.skip("the other broker's settings are its own")
    with BrokerProcess(
        tmp_path,
        {"brokerDeduplicationEnabled": "false", "brokerDeleteInactiveTopicsEnabled": "false"},
        memory=True,
    ) as broker:
        other = Source(source.spark, broker.addresses.pulsar)
        frame = source.spark.range(0, 10, 1, 1).selectExpr("cast(cast(id as string) as binary) as value")
        with pytest.raises(Exception, match="does not deduplicate persistent://public/default"):
            write(other, frame, topic=topic)
        assert other.read(topic=topic).count() == 0, "nothing is written before the answer is known"
        write(other, frame, topic=f"{topic}-2", deliveryGuarantee="at-least-once")
        assert other.read(topic=f"{topic}-2").count() == 10
        assert other.read(topicsPattern=".*").count() == 10, "the topic of the probe is none of the user's"


def test_pattern_without_a_match_is_said_once(
    broker_url: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = source_options({"service.url": broker_url, "topicsPattern": f"{topic}-.*"}, streaming=None)
    with open_cluster(options.cluster) as cluster:
        assert choose_topics(cluster, options.topics, wait=False) == []
        assert choose_topics(cluster, options.topics, wait=False) == []
    assert caplog.messages == [f"topicsPattern {topic}-.* matches no topic at present"]


def test_deduplication_is_probed_in_a_topic_that_no_pattern_reads(
    client: Any, broker_url: str, topic: str
) -> None:
    options = source_options({"service.url": broker_url, "topicsPattern": ".*"}, streaming=None)
    with open_cluster(options.cluster) as cluster:
        assert deduplicates(cluster, "persistent://public/default", "first") is True
        assert deduplicates(cluster, "persistent://public/default", "first") is True
        assert any(name.endswith(f"/{PROBE_TOPIC}") for name in cluster.topics_of("public/default"))
        assert not any(PROBE_TOPIC in name for name in choose_topics(cluster, options.topics, wait=False))


def test_deduplication_is_decided_by_the_first_row_when_no_topic_may_be_created(tmp_path: Path) -> None:
    settings = {"brokerDeduplicationEnabled": "false", "allowAutoTopicCreation": "false"}
    with BrokerProcess(tmp_path, settings, memory=True) as broker:
        url = broker.addresses.pulsar
        with open_cluster(
            source_options({"service.url": url, "topic": "t"}, streaming=None).cluster
        ) as cluster:
            assert deduplicates(cluster, "persistent://public/default", "p") is None


@pytest.mark.parametrize(
    ("sql", "options", "sentence"),
    [
        ("cast('a' as binary) as value", {}, "no topic is given: set the option topic"),
        ("cast(id as decimal(9,2)) as value", {"topic": "t"}, "cannot be a value of type BYTES: cast it"),
        ("id as value, id as __key", {"topic": "t"}, "__key is of type bigint: string or binary is expected"),
        ("id as value, 'x' as __eventTime", {"topic": "t"}, "timestamp or bigint (milliseconds"),
        (
            "cast(id as decimal(9,2)) as a, id as b",
            {"topic": "t", "schemaType": "JSON"},
            "schemaType=JSON has no decimals",
        ),
        ("interval '1' day as b, id as a", {"topic": "t"}, "column b is of type interval day, which cannot"),
        ("cast('a' as binary) as __key", {"topic": "t"}, "no column holds a message's value"),
        ("cast('a' as binary) as value", {"topik": "t"}, "no option 'topik': did you mean 'topic'"),
        ("cast('a' as binary) as value", {"topic": "a/b"}, "'a/b' is no topic name"),
        ("cast('a' as binary) as value, 'a/b' as __topic", {}, "'a/b' is no topic name"),
    ],
)
def test_sink_names_the_mistake_when_rows_cannot_be_written(
    source: Source, sql: str, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(Exception, match=r"Exception|Error") as caught:
        write(source, source.spark.range(1).selectExpr(*sql.split(", ")), **options)
    assert sentence in str(caught.value)
    assert "Traceback" not in str(caught.value), "also where the task found it"
