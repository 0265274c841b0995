"""Data loss: reported with the topic and the position, or skipped with failOnDataLoss=false."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pulsar = pytest.importorskip("pulsar", reason="needs the official client, pip install pulsar-client")

from pyspark_pulsar.columns.value_columns import RawValue  # noqa: E402
from pyspark_pulsar.data_source import choose_columns  # noqa: E402
from pyspark_pulsar.errors import DataLoss  # noqa: E402
from pyspark_pulsar.options import source_options  # noqa: E402
from pyspark_pulsar.reading.batch_reader import PulsarBatchReader  # noqa: E402
from tests.crash.broker_process import BrokerProcess as DurableBroker  # noqa: E402
from tests.interop.support import Admin  # noqa: E402
from tests.pyspark_pulsar.conftest import Publish, Source  # noqa: E402

SETTINGS = {
    "managedLedgerMaxEntriesPerLedger": "10",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    # Its cursor keeps ledgers too.
    "brokerDeduplicationEnabled": "false",
}
BODIES = [b"message %d" % number for number in range(400)]


def values(rows: list[Any]) -> list[bytes]:
    return sorted(bytes(row.value) for row in rows)


def test_stream_reports_a_deleted_topic(
    source: Source, client: Any, publish: Publish, admin: Admin, topic: str, tmp_path: Path
) -> None:
    publish(f"{topic}-a", BODIES[:5], batching_enabled=False)
    publish(f"{topic}-b", BODIES[5:10], batching_enabled=False)
    options = {"topicsPattern": f"{topic}-.*", "startingOffsets": "earliest", "columns": "value"}
    source.run(source.stream(**options), tmp_path)
    admin._ask("DELETE", f"persistent/public/default/{topic}-b?force=true")
    publish(f"{topic}-a", BODIES[10:15], batching_enabled=False)
    with pytest.raises(Exception, match=f"data loss, topic deleted: persistent://public/default/{topic}-b"):
        source.run(source.stream(**options), tmp_path)
    source.run(source.stream(**options, failOnDataLoss="false"), tmp_path)
    assert values(source.rows(tmp_path)) == sorted(BODIES[:15])


@pytest.mark.slow
def test_checkpoint_of_another_topic_is_no_data_loss(
    source: Source, publish: Publish, topic: str, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        publish(f"{topic}-{name}", BODIES[:5])
    options = {"startingOffsets": "earliest", "columns": "value"}
    source.run(source.stream(topic=f"{topic}-a", **options), tmp_path)
    with pytest.raises(
        Exception, match=f"belongs to a query that reads .*{topic}-a, which this one does not"
    ):
        source.run(source.stream(topic=f"{topic}-b", **options), tmp_path)
    source.run(source.stream(topics=f"{topic}-a,{topic}-b", **options), tmp_path)
    assert values(source.rows(tmp_path)) == sorted(BODIES[:5] * 2)


@pytest.mark.slow
def test_stream_reports_trimmed_ledgers_only_when_its_cursor_did_not_retain_them(
    source: Source, client: Any, publish: Publish, admin: Admin, topic: str, tmp_path: Path
) -> None:
    publish(topic, BODIES[:50], batching_enabled=False)
    options = {
        "topic": topic,
        "startingOffsets": "earliest",
        "columns": "value",
        "predefinedSubscription": "keeper",
    }
    source.run(source.stream(**options), tmp_path)
    # All was read: whatever is trimmed now, nothing is lost.
    publish(topic, BODIES[50:80], batching_enabled=False)
    source.run(source.stream(**options), tmp_path)
    assert values(source.rows(tmp_path)) == sorted(BODIES[:80])

    admin._ask("DELETE", f"persistent/public/default/{topic}/subscription/keeper?force=true")
    publish(topic, BODIES[80:140], batching_enabled=False)
    consumer = client.subscribe(topic, "reads-all", initial_position=pulsar.InitialPosition.Earliest)
    last = consumer.get_last_message_id()
    consumer.acknowledge_cumulative(last)
    consumer.close()
    publish(topic, BODIES[140:170], batching_enabled=False)
    admin._ask("PUT", f"persistent/public/default/{topic}/unload")
    with pytest.raises(
        Exception, match=f"data loss, ledger trimmed: persistent://public/default/{topic} does not have"
    ):
        source.run(source.stream(**options), tmp_path)
    source.run(source.stream(**options, failOnDataLoss="false"), tmp_path)
    found = values(source.rows(tmp_path))
    assert len(found) == len(set(found))
    assert {*BODIES[:80], BODIES[169]} <= set(found)
    assert not {BODIES[80], BODIES[100]} & set(found)


def test_batch_read_reports_no_loss_when_a_topic_has_many_ledgers(
    source: Source, publish: Publish, topic: str
) -> None:
    publish(topic, BODIES, batching_enabled=False)
    rows = source.read(topic=topic, columns="value,__ledger", numPartitions=4).collect()
    assert [bytes(row.value) for row in rows] == BODIES
    assert len({row["__ledger"] for row in rows}) == 40


def test_batch_read_reports_a_start_in_a_trimmed_ledger(source: Source, publish: Publish, topic: str) -> None:
    """The start is in a ledger of another topic, with a lower id; brokers of a cluster take ids from blocks of their own."""
    ledgers: dict[int, str] = {}
    for name in (f"{topic}-a", f"{topic}-b"):
        publish(name, BODIES[:5], batching_enabled=False)
        ledgers[source.read(topic=name, columns="__ledger").first()["__ledger"]] = name
    foreign, own = sorted(ledgers)
    topic = ledgers[own]
    query = source.read(topic=topic, columns="value", startingOffsets=f"{foreign}:1")
    with pytest.raises(Exception, match=f"data loss, ledger trimmed: persistent://public/default/{topic}"):
        query.collect()
    query = source.read(topic=topic, columns="value", startingOffsets=f"{foreign}:1", failOnDataLoss="false")
    assert values(query.collect()) == sorted(BODIES[:5])


def test_task_reports_a_topic_deleted_after_planning(
    source: Source, publish: Publish, admin: Admin, topic: str
) -> None:
    """A topic is deleted after planning: the task reports it, or continues with the other topics."""
    publish(f"{topic}-a", BODIES[:5], batching_enabled=False)
    publish(f"{topic}-b", BODIES[5:10], batching_enabled=False)
    given = {
        "service.url": source.url,
        "topicsPattern": f"{topic}-.*",
        "numPartitions": "1",
        "columns": "value",
    }

    def plan(**more: str) -> Iterator[Any]:
        options = source_options({**given, **more}, streaming=False)
        reader = PulsarBatchReader(options, choose_columns(options, RawValue()), RawValue())
        (partition,) = reader.partitions()
        return reader.read(partition)

    fails, goes_on = plan(), plan(failOnDataLoss="false")
    admin._ask("DELETE", f"persistent/public/default/{topic}-a?force=true")
    with pytest.raises(DataLoss) as caught:
        list(fails)
    assert (caught.value.topic, caught.value.reason) == (
        f"persistent://public/default/{topic}-a",
        "topic deleted",
    )
    rows = [value for batch in goes_on for value in batch.column("value").to_pylist()]
    assert rows == BODIES[5:10]


def test_task_continues_where_it_stood_when_the_broker_restarts(tmp_path: Path) -> None:
    """The broker is killed while a task reads; the task reconnects and continues where it stood."""
    broker = DurableBroker(tmp_path)
    broker.start()
    try:
        client = pulsar.Client(broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        producer = client.create_producer("restarts", batching_enabled=False, block_if_queue_full=True)
        bodies = [b"%06d" % number * 5000 for number in range(2000)]
        for body in bodies:
            producer.send_async(body, None)
        producer.flush()
        client.close()
        options = source_options(
            {"service.url": broker.url, "topic": "restarts", "columns": "value", "numPartitions": "1"},
            streaming=False,
        )
        reader = PulsarBatchReader(options, choose_columns(options, RawValue()), RawValue())
        (partition,) = reader.partitions()
        batches = reader.read(partition)
        found = next(batches).column("value").to_pylist()
        assert len(found) < len(bodies)
        broker.kill()
        broker.start()
        for batch in batches:
            found += batch.column("value").to_pylist()
        assert found == bodies
    finally:
        broker.stop()
