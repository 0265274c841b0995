"""A change at run time takes effect for connected clients at once, can be unset, and survives a restart.

Rule of this file: a test changes the setting over REST, as an operator does, and sees the effect through a client or in
the metrics.
"""

from __future__ import annotations

import urllib.error
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pulsar
import pytest

from tests.interop.support import Admin, wait_until
from tests.vectors.broker_process import BrokerProcess

MIB: Final = 1 << 20
USED, ENTRIES = "pulsar_ml_cache_x_used_bytes", "pulsar_ml_cache_x_entries"
SIZE, TTL = "managedLedgerCacheSizeMB", "managedLedgerCacheEvictionTimeThresholdMillis"
WATERMARK = "managedLedgerCacheEvictionWatermark"
STOP_MS = "brokerShutdownTimeoutMs"
SETTINGS: Final = {
    SIZE: "64",
    TTL: "3600000",
    "managedLedgerContinueCachingAddedEntriesAfterLastActiveCursorLeavesMillis": "0",
}
"""With these values no entry is evicted before a test changes a setting."""

Connect = Callable[[str], pulsar.Client]


@pytest.fixture(autouse=True)
def _as_before(admin: Admin) -> Iterator[None]:
    yield
    for key in _mapping(admin.get("brokers/configuration/values")):
        admin.unconfigure(key)


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, SETTINGS) as running:
        yield running


def _mapping(answer: object) -> dict[str, str]:
    assert isinstance(answer, dict)
    return answer


def _effective(admin: Admin, *keys: str) -> tuple[str, ...]:
    values = _mapping(admin.get("brokers/configuration/runtime"))
    return tuple(values[key] for key in keys)


def _fill(client: pulsar.Client, topic: str, count: int = 40) -> pulsar.Consumer:
    """So many entries of 100 kB that a subscription still waits for."""
    consumer = client.subscribe(topic, "s", receiver_queue_size=0)
    producer = client.create_producer(topic, batching_enabled=False)
    for _ in range(count):
        producer.send(b"x" * 100_000)
    return consumer


# The cache


def test_smaller_cache_evicts_entries(client: pulsar.Client, admin: Admin, topic: str) -> None:
    consumer = _fill(client, topic)
    assert admin.metric(USED) > 4_000_000
    admin.configure(WATERMARK, "0.5")
    admin.configure(SIZE, "2")
    wait_until(lambda: admin.metric(USED) <= MIB, "no more than half of two megabytes is used")
    assert admin.metric(ENTRIES) > 0
    assert len(consumer.receive().data()) == 100_000
    consumer.close()


def test_cache_can_be_switched_off_and_on(client: pulsar.Client, admin: Admin, topic: str) -> None:
    consumer = _fill(client, topic)
    admin.configure(SIZE, "0")
    wait_until(lambda: admin.metric(ENTRIES) == 0, "the cache is empty")
    _fill(client, f"{topic}-off").close()
    assert admin.metric(ENTRIES) == 0
    admin.unconfigure(SIZE)
    _fill(client, f"{topic}-on").close()
    assert admin.metric(ENTRIES) == 40
    consumer.close()


def test_shorter_time_to_live_applies_to_cached_entries(
    client: pulsar.Client, admin: Admin, topic: str
) -> None:
    consumer = _fill(client, topic)
    before = admin.metric(ENTRIES)
    assert before >= 40
    admin.configure(TTL, "20")
    wait_until(lambda: admin.metric(ENTRIES) == 0, "everything has grown too old")
    consumer.close()


# Topics and consumers


def test_automatic_topic_creation_can_be_switched_off(
    client: pulsar.Client, admin: Admin, topic: str
) -> None:
    admin.configure("allowAutoTopicCreation", "false")
    with pytest.raises(pulsar.TopicNotFound):
        client.create_producer(topic)
    admin.unconfigure("allowAutoTopicCreation")
    client.create_producer(topic).close()


def test_partitions_of_automatic_topics_can_be_changed(
    client: pulsar.Client, admin: Admin, topic: str
) -> None:
    admin.configure("allowAutoTopicCreationType", "partitioned")
    admin.configure("defaultNumPartitions", "3")
    client.create_producer(topic).close()
    assert len(client.get_topic_partitions(topic)) == 3
    admin.configure("maxNumPartitionsPerPartitionedTopic", "4")
    admin.create_partitioned(f"{topic}-4", 4)
    with pytest.raises(urllib.error.HTTPError):
        admin.create_partitioned(f"{topic}-5", 5)


def test_redelivery_count_can_be_switched_off_for_a_connected_consumer(
    client: pulsar.Client, admin: Admin, topic: str
) -> None:
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=1)
    client.create_producer(topic).send(b"x")

    def count() -> int:
        message = consumer.receive(60_000)
        consumer.negative_acknowledge(message)
        return int(message.redelivery_count())

    assert (count(), count()) == (0, 1)
    admin.configure("subscriptionRedeliveryTrackerEnabled", "false")
    wait_until(lambda: count() == 0, "redeliveries are not counted any more")
    consumer.close()


# Restarts


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_restart_keeps_changes(own_broker: BrokerProcess, connected: Connect, how: str) -> None:
    admin = Admin.of(own_broker)
    admin.configure(SIZE, "2")
    admin.configure(WATERMARK, "0.5")
    admin = _restarted(own_broker, how)
    assert _mapping(admin.get("brokers/configuration/values")) == {SIZE: "2", WATERMARK: "0.5"}
    assert _effective(admin, SIZE, WATERMARK, TTL) == ("2", "0.5", "3600000")
    own_broker.logged(f"Applying config {SIZE} = 2 (dynamic)")
    consumer = _fill(connected(own_broker.addresses.pulsar), "t")
    wait_until(lambda: 0 < admin.metric(USED) <= 2 * MIB, "the small cache holds")
    consumer.close()

    admin.unconfigure(SIZE)
    admin = _restarted(own_broker, how)
    assert _effective(admin, SIZE, WATERMARK) == ("64", "0.5")


def _restarted(broker: BrokerProcess, how: str) -> Admin:
    if how == "kill":
        broker.kill()
    else:
        assert broker.stop() == 0
    broker.start()
    return Admin.of(broker)


def test_change_is_left_out_when_the_new_start_excludes_it(tmp_path: Path) -> None:
    most, partitions = "maxNumPartitionsPerPartitionedTopic", "defaultNumPartitions"
    partitioned: Mapping[str, str] = {"allowAutoTopicCreationType": "partitioned"}
    with BrokerProcess(tmp_path, partitioned) as broker:
        Admin.of(broker).configure(most, "4")
    with BrokerProcess(tmp_path, {**partitioned, partitions: "8"}) as broker:
        assert _effective(Admin.of(broker), most, partitions) == ("0", "8")
        broker.logged(f"{most} (4); this change at run time is left out")


def test_shutdown_timeout_limits_a_stop(own_broker: BrokerProcess, connected: Connect) -> None:
    """A millisecond is too short for closing so many topics, on a disk without a sync too."""
    said = "not stopped within brokerShutdownTimeoutMs"
    connected(own_broker.addresses.pulsar).create_producer("t")
    assert own_broker.stop() == 0
    assert said not in own_broker.log_path.read_text()
    own_broker.start()
    client = connected(own_broker.addresses.pulsar)
    for number in range(50):
        client.create_producer(f"t-{number}")
    Admin.of(own_broker).configure(STOP_MS, "1")
    own_broker.stop()
    assert said in own_broker.log_path.read_text()
