"""Settings that are changed while clients are connected: each change is felt at once, taken back, and outlives a restart.

Law of the place: the setting is changed over REST, as an operator does; its effect is seen by clients or in the metrics.
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
    TTL: "60000",
    "managedLedgerContinueCachingAddedEntriesAfterLastActiveCursorLeavesMillis": "0",
}
"""Nothing leaves the cache before a setting is changed."""

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


def test_a_smaller_cache_lets_entries_go(client: pulsar.Client, admin: Admin, topic: str) -> None:
    consumer = _fill(client, topic)
    assert admin.metric(USED) > 4_000_000
    admin.configure(WATERMARK, "0.5")
    admin.configure(SIZE, "2")
    wait_until(lambda: admin.metric(USED) <= MIB, "no more than half of two megabytes is used")
    assert admin.metric(ENTRIES) > 0
    assert len(consumer.receive().data()) == 100_000
    consumer.close()


def test_a_cache_that_is_switched_off_and_on(client: pulsar.Client, admin: Admin, topic: str) -> None:
    consumer = _fill(client, topic)
    admin.configure(SIZE, "0")
    wait_until(lambda: admin.metric(ENTRIES) == 0, "the cache is empty")
    _fill(client, f"{topic}-off").close()
    assert admin.metric(ENTRIES) == 0
    admin.unconfigure(SIZE)
    _fill(client, f"{topic}-on").close()
    assert admin.metric(ENTRIES) == 40
    consumer.close()


def test_a_shorter_life_holds_for_what_is_cached_already(
    client: pulsar.Client, admin: Admin, topic: str
) -> None:
    consumer = _fill(client, topic)
    before = admin.metric(ENTRIES)
    assert before >= 40
    admin.configure(TTL, "20")
    wait_until(lambda: admin.metric(ENTRIES) == 0, "everything has grown too old")
    consumer.close()


# Topics and consumers


def test_who_may_create_topics(client: pulsar.Client, admin: Admin, topic: str) -> None:
    admin.configure("allowAutoTopicCreation", "false")
    with pytest.raises(pulsar.TopicNotFound):
        client.create_producer(topic)
    admin.unconfigure("allowAutoTopicCreation")
    client.create_producer(topic).close()


def test_partitions_of_topics_that_create_themselves(client: pulsar.Client, admin: Admin, topic: str) -> None:
    admin.configure("allowAutoTopicCreationType", "partitioned")
    admin.configure("defaultNumPartitions", "3")
    client.create_producer(topic).close()
    assert len(client.get_topic_partitions(topic)) == 3
    admin.configure("maxNumPartitionsPerPartitionedTopic", "4")
    admin.create_partitioned(f"{topic}-4", 4)
    with pytest.raises(urllib.error.HTTPError):
        admin.create_partitioned(f"{topic}-5", 5)


def test_redeliveries_of_a_consumer_that_is_connected(
    client: pulsar.Client, admin: Admin, topic: str
) -> None:
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=1)
    client.create_producer(topic).send(b"x")

    def count() -> int:
        message = consumer.receive(10_000)
        consumer.negative_acknowledge(message)
        return int(message.redelivery_count())

    assert (count(), count()) == (0, 1)
    admin.configure("subscriptionRedeliveryTrackerEnabled", "false")
    wait_until(lambda: count() == 0, "redeliveries are not counted any more")
    consumer.close()


# Restarts


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_restart_keeps_what_was_changed(own_broker: BrokerProcess, connected: Connect, how: str) -> None:
    admin = Admin(own_broker.addresses.admin)
    admin.configure(SIZE, "2")
    admin.configure(WATERMARK, "0.5")
    admin = _restarted(own_broker, how)
    assert _mapping(admin.get("brokers/configuration/values")) == {SIZE: "2", WATERMARK: "0.5"}
    assert _effective(admin, SIZE, WATERMARK, TTL) == ("2", "0.5", "60000")
    assert any(f"Applying config {SIZE} = 2 (dynamic)" in line for line in own_broker.log_lines())
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
    return Admin(broker.addresses.admin)


def test_what_the_new_start_contradicts_is_left_out(tmp_path: Path) -> None:
    most, partitions = "maxNumPartitionsPerPartitionedTopic", "defaultNumPartitions"
    partitioned: Mapping[str, str] = {"allowAutoTopicCreationType": "partitioned"}
    with BrokerProcess(tmp_path, partitioned) as broker:
        Admin(broker.addresses.admin).configure(most, "4")
    with BrokerProcess(tmp_path, {**partitioned, partitions: "8"}) as broker:
        assert _effective(Admin(broker.addresses.admin), most, partitions) == ("0", "8")
        assert any(f"{most} (4); what was set at run time is left out" in line for line in broker.log_lines())


def test_how_long_a_stop_may_take(own_broker: BrokerProcess, connected: Connect) -> None:
    """A millisecond is too short for closing a topic, whose record is written with an fsync."""
    said = "not stopped within brokerShutdownTimeoutMs"
    connected(own_broker.addresses.pulsar).create_producer("t")
    assert own_broker.stop() == 0
    assert said not in own_broker.log_path.read_text()
    own_broker.start()
    connected(own_broker.addresses.pulsar).create_producer("t")
    Admin(own_broker.addresses.admin).configure(STOP_MS, "1")
    own_broker.stop()
    assert said in own_broker.log_path.read_text()
