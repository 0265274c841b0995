"""Messages are read from the cache or from storage, and a consumer that does not read holds up no other."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping

import pulsar
import pytest

from tests.interop.support import RECEIVE_MS, Admin, numbered, publish, read, receive, wait_until
from tests.vectors.broker_process import BrokerProcess

SETTINGS = {"managedLedgerCacheSizeMB": "32", "dbStorage_writeCacheMaxSizeMb": "16"}
Earliest = pulsar.InitialPosition.Earliest
HITS, MISSES = "pulsar_ml_cache_x_hits_total", "pulsar_ml_cache_x_misses_total"


def test_subscriptions_at_the_end_cause_no_storage_read(
    client: pulsar.Client, admin: Admin, topic: str
) -> None:
    consumers = [client.subscribe(topic, f"s{number}") for number in range(5)]
    reader = client.create_reader(topic, pulsar.MessageId.latest)
    producer = client.create_producer(topic)
    hits, misses = admin.metric(HITS), admin.metric(MISSES)
    for first in range(0, 500, 100):
        publish(producer, numbered(100, first=first))
        for consumer in consumers:
            assert receive(consumer, 100) == numbered(100, first=first)
        assert read(reader, 100) == numbered(100, first=first)
    assert admin.metric(HITS) - hits == 500 * 6
    assert admin.metric(MISSES) - misses == 0


def test_a_subscription_that_comes_late_reads_from_storage(
    client: pulsar.Client, admin: Admin, topic: str
) -> None:
    publish(client.create_producer(topic), numbered(500))
    wait_until(lambda: admin.metric("pulsar_ml_cache_x_entries") == 0, "the cache let the entries go")
    hits, misses = admin.metric(HITS), admin.metric(MISSES)
    assert receive(client.subscribe(topic, "s", initial_position=Earliest), 500) == numbered(500)
    assert admin.metric(MISSES) - misses >= 1
    assert (admin.metric(HITS) - hits) + (admin.metric(MISSES) - misses) >= 500


@pytest.mark.parametrize("by_mark_delete", ["false", "true"])
def test_without_expected_reads_entries_leave_when_the_slowest_has_read_or_acknowledged_them(
    broker_with: Callable[[Mapping[str, str]], BrokerProcess],
    connected: Callable[[str], pulsar.Client],
    topic: str,
    by_mark_delete: str,
) -> None:
    broker = broker_with(
        {
            "cacheEvictionByExpectedReadCount": "false",
            "cacheEvictionByMarkDeletedPosition": by_mark_delete,
            "managedLedgerCacheEvictionTimeThresholdMillis": "600000",
        }
    )
    client, admin = connected(broker.addresses.pulsar), Admin.of(broker)
    quick = client.subscribe(topic, "quick")
    slow = client.subscribe(topic, "slow", receiver_queue_size=1)
    publish(client.create_producer(topic), numbered(100))
    receive(quick, 100)
    assert admin.metric("pulsar_ml_cache_x_entries") >= 98, "the slow one has taken two at most"
    messages = [slow.receive(RECEIVE_MS) for _ in range(100)]
    if by_mark_delete == "true":
        assert admin.metric("pulsar_ml_cache_x_entries") == 100
        slow.acknowledge_cumulative(messages[-1])
    left = 1 if by_mark_delete == "true" else 0
    wait_until(lambda: admin.metric("pulsar_ml_cache_x_entries") == left, "nobody needs the rest")
    quick.close()
    slow.close()
    wait_until(lambda: admin.metric("pulsar_ml_cache_x_entries") == 0, "nobody reads")
    assert admin.metric("pulsar_ml_cache_x_evicted_total", reason="invalidate") == 100


@pytest.mark.one_broker("measures the memory of one process")
def test_a_consumer_that_does_not_read_holds_up_neither_others_nor_memory(
    broker: BrokerProcess, client: pulsar.Client, other_client: pulsar.Client, admin: Admin, topic: str
) -> None:
    """Its queue takes ten messages; the backlog of 400 MB waits in storage, not in the broker's memory."""
    body = os.urandom(1024 * 1024)
    slow = other_client.subscribe(topic, "slow", receiver_queue_size=10)
    quick = client.subscribe(topic, "quick")
    producer = client.create_producer(topic, max_pending_messages=20, block_if_queue_full=True)
    before = broker.resident_bytes()
    sending = threading.Thread(target=lambda: publish(producer, (body for _ in range(400))))
    sending.start()
    assert all(one == body for one in receive(quick, 400))
    sending.join()
    assert admin.subscription(topic, "slow")["msgBacklog"] == 400
    assert broker.resident_bytes() - before < 250 * 1024 * 1024
    assert all(one == body for one in receive(slow, 400))
