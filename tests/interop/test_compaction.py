"""Compacted topics and the official Python client: readers, consumers, table views, threshold, trimming and restart."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import pulsar
import pytest

from tests.interop.support import Admin, Json, wait_until
from tests.vectors.broker_process import BrokerProcess

SETTINGS: Final = {
    "managedLedgerMaxEntriesPerLedger": "5",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "brokerServiceCompactionMonitorIntervalInSeconds": "1",
}


@pytest.fixture
def topic(topic: str) -> str:
    """The full name, whose parts are in the paths of requests."""
    return f"persistent://public/default/{topic}"


def path_of(topic: str) -> str:
    return topic.replace("://", "/")


def compact(admin: Admin, topic: str) -> None:
    admin.put(f"{path_of(topic)}/compaction")
    ended: dict[str, Json] = {"status": "SUCCESS", "lastError": ""}
    wait_until(lambda: admin.get(f"{path_of(topic)}/compaction") == ended, "the compaction succeeds")


def publish(
    client: pulsar.Client, topic: str, *items: tuple[str | None, str | None], **options: object
) -> None:
    """Items are (key, text); a text of None deletes the key."""
    producer = client.create_producer(topic, **{"batching_enabled": False, **options})
    for key, text in items:
        content = b"" if text is None else text.encode()
        if key is None:
            producer.send_async(content, lambda *_: None)
        else:
            producer.send_async(content, lambda *_: None, partition_key=key)
    producer.flush()
    producer.close()


def read_all(
    client: pulsar.Client, topic: str, start: pulsar.MessageId | None = None, **options: object
) -> list[str]:
    """Texts from `start` on, until the client knows of no more; empty places of batches are left out."""
    chosen = {"is_read_compacted": True, **options}
    reader = client.create_reader(topic, start or pulsar.MessageId.earliest, **chosen)
    found = []
    while reader.has_message_available():
        message = reader.read_next(60_000)
        if message.partition_key() or message.data():
            found.append(message.data().decode())
    reader.close()
    return found


ITEMS: Final = (
    ("a", "1"),
    ("b", "2"),
    (None, "3"),
    ("a", "4"),
    ("c", "5"),
    ("b", None),
    ("d", "6"),
    ("a", "7"),
)


@pytest.mark.parametrize("batching", [False, True])
@pytest.mark.parametrize(
    "compression",
    [
        pulsar.CompressionType.NONE,
        pulsar.CompressionType.LZ4,
        pulsar.CompressionType.ZLib,
        pulsar.CompressionType.ZSTD,
        pulsar.CompressionType.SNAPPY,
    ],
)
def test_reader_gets_the_latest_message_of_each_key(
    client: pulsar.Client, admin: Admin, topic: str, batching: bool, compression: pulsar.CompressionType
) -> None:
    # Holds the log, which would otherwise be trimmed up to the horizon.
    client.subscribe(topic, "keeper").close()
    publish(client, topic, *ITEMS, batching_enabled=batching, compression_type=compression)
    compact(admin, topic)
    assert read_all(client, topic) == ["5", "6", "7"]
    assert [text for text in read_all(client, topic, is_read_compacted=False) if text] == [
        text for _, text in ITEMS if text
    ]
    publish(client, topic, ("c", "8"), ("d", None))
    # The tail is delivered as it is, with the empty message.
    assert read_all(client, topic) == ["5", "6", "7", "8", ""]
    compact(admin, topic)
    assert read_all(client, topic) == ["7", "8"]


def test_table_view_starts_with_the_compacted_topic(client: pulsar.Client, admin: Admin, topic: str) -> None:
    publish(client, topic, *ITEMS)
    compact(admin, topic)
    view = client.create_table_view(topic)
    assert {key: view.get(key) for key in "abcd"} == {"a": b"7", "b": None, "c": b"5", "d": b"6"}
    publish(client, topic, ("b", "9"))
    wait_until(lambda: view.get("b") == b"9", "the view follows")


def test_reader_starts_at_a_message_that_compaction_removed(
    client: pulsar.Client, admin: Admin, topic: str
) -> None:
    producer = client.create_producer(topic, batching_enabled=False)
    ids = [
        producer.send(text.encode(), partition_key=key) for key, text in (("a", "1"), ("b", "2"), ("a", "3"))
    ]
    compact(admin, topic)
    assert read_all(client, topic, ids[0]) == ["2", "3"]
    assert read_all(client, topic, ids[1]) == ["3"]
    assert read_all(client, topic, pulsar.MessageId.latest) == []


def test_compacted_messages_outlive_log_and_broker(
    broker: BrokerProcess, client: pulsar.Client, admin: Admin, topic: str
) -> None:
    publish(client, topic, *((f"k{number % 4}", str(number)) for number in range(30)))
    compact(admin, topic)
    publish(client, topic, ("k9", "30"))

    def ledgers() -> int:
        found = admin.get(f"{path_of(topic)}/internalStats")
        assert isinstance(found, dict)
        assert isinstance(found["ledgers"], list)
        return len(found["ledgers"])

    wait_until(lambda: ledgers() <= 2, "the log is trimmed")
    assert read_all(client, topic) == ["26", "27", "28", "29", "30"]
    admin.put(f"{path_of(topic)}/unload")
    assert read_all(client, topic) == ["26", "27", "28", "29", "30"]
    consumer = client.subscribe(
        topic,
        "durable",
        pulsar.ConsumerType.Exclusive,
        is_read_compacted=True,
        initial_position=pulsar.InitialPosition.Earliest,
    )
    assert [consumer.receive(60_000).data().decode() for _ in range(5)] == ["26", "27", "28", "29", "30"]


def test_threshold_of_the_broker_starts_compactions(
    connected: Callable[[str], pulsar.Client], broker_with: Callable[[dict[str, str]], BrokerProcess]
) -> None:
    settings = {**SETTINGS, "brokerServiceCompactionThresholdInBytes": "1000"}
    broker = broker_with(settings)
    client, admin = connected(broker.addresses.pulsar), Admin.of(broker)
    topic = f"persistent://public/default/threshold-{time.monotonic_ns()}"
    publish(client, topic, *((f"k{number % 4}", str(number) * 10) for number in range(50)))
    wait_until(lambda: admin.stats(topic)["compaction"]["lastCompactionSucceedTimestamp"], "a compaction", 30)  # type: ignore[index,call-overload]
    # On a slow storage the compaction begins between two messages, and those behind it are read from the log.
    found = read_all(client, topic)
    assert found[-4:] == [str(number) * 10 for number in range(46, 50)]
    assert len(found) < 50


def test_shared_consumer_of_the_compacted_view_is_refused(client: pulsar.Client, topic: str) -> None:
    with pytest.raises(pulsar.PulsarException):
        client.subscribe(topic, "s", pulsar.ConsumerType.Shared, is_read_compacted=True)


def test_partitions_are_compacted_together(client: pulsar.Client, admin: Admin, topic: str) -> None:
    admin.put(f"{path_of(topic)}/partitions", 2)
    for partition in range(2):
        publish(client, f"{topic}-partition-{partition}", ("a", "1"), ("a", f"2 of {partition}"))
    admin.put(f"{path_of(topic)}/compaction")
    for partition in range(2):
        part = f"{topic}-partition-{partition}"
        wait_until(
            lambda part=part: (
                admin.get(f"{path_of(part)}/compaction") == {"status": "SUCCESS", "lastError": ""}
            ),  # type: ignore[misc]
            "the partition is compacted",
        )
        assert read_all(client, part) == [f"2 of {partition}"]
