"""How often an entry is read from storage when many subscriptions want it: at the end of a topic never, and after a
restart about once for all of them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pulsar
import pytest

from tests.interop.support import RECEIVE_MS, Admin, numbered, publish, receive, wait_until
from tests.vectors.broker_process import BrokerProcess

Type = pulsar.ConsumerType
Connect = Callable[[str], pulsar.Client]
HITS, MISSES = "pulsar_ml_cache_x_hits_total", "pulsar_ml_cache_x_misses_total"
STORAGE_READS = "pulsar_ml_cache_pendingreads_entries_read_total"
BUDGET_USED, BUDGET_LEFT = "pulsar_ml_reads_inflight_bytes", "pulsar_ml_reads_available_inflight_bytes"
SETTINGS = {
    "managedLedgerCacheSizeMB": "64",
    # A consumer that a busy machine stops for seconds must not find its entries evicted by their age.
    "managedLedgerCacheEvictionTimeThresholdMillis": "3600000",
}


def test_ten_subscriptions_at_the_end_of_a_topic_read_nothing_from_storage(
    client: pulsar.Client, admin: Admin, topic: str
) -> None:
    kinds = [Type.Shared, Type.Exclusive, Type.Failover, Type.KeyShared, Type.Shared] * 2
    consumers = [client.subscribe(topic, f"s{number}", kind) for number, kind in enumerate(kinds)]
    producer = client.create_producer(topic)
    hits, misses, asked = (admin.metric(name) for name in (HITS, MISSES, STORAGE_READS))
    for first in range(0, 1000, 200):
        publish(producer, numbered(200, first=first))
        for consumer in consumers:
            assert receive(consumer, 200) == numbered(200, first=first)
    assert admin.metric(HITS) - hits == 10 * 1000
    assert (admin.metric(MISSES) - misses, admin.metric(STORAGE_READS) - asked) == (0, 0)


@pytest.mark.parametrize(
    ("profile", "how"), [pytest.param("4.2", "stop", marks=pytest.mark.slow), ("5.0", "kill")]
)
def test_shared_subscriptions_that_catch_up_together_read_each_entry_about_once(
    tmp_path: Path, connected: Connect, topic: str, profile: str, how: str
) -> None:
    count = 20_000
    bodies = [b"%0512d" % number for number in range(count)]
    names = [f"s{number}" for number in range(5)]
    with BrokerProcess(tmp_path, SETTINGS | {"pulsarDefaults": profile}) as broker:
        client = connected(broker.addresses.pulsar)
        for name in names:
            client.subscribe(topic, name, Type.Shared).close()
        publish(client.create_producer(topic, max_pending_messages=count), bodies)
        client.close()
        if how == "stop":
            assert broker.stop() == 0
        else:
            broker.kill()
        broker.start()
        admin = Admin.of(broker)
        assert admin.metric(MISSES) == 0
        client = connected(broker.addresses.pulsar)
        consumers = [client.subscribe(topic, name, Type.Shared) for name in names]
        got = catch_up(consumers, count)
        assert all(sorted(one) == bodies for one in got)
        reads = admin.metric(MISSES) / count
        assert admin.metric(STORAGE_READS) == admin.metric(MISSES)
        assert 1 <= reads <= 1.1


@pytest.mark.one_broker("counts the budget of one process")
@pytest.mark.parametrize("cache_mb", ["0", "64"])
def test_a_small_budget_of_reads_in_flight_serves_everybody_and_is_whole_afterwards(
    broker_with: Callable[[Mapping[str, str]], BrokerProcess], connected: Connect, topic: str, cache_mb: str
) -> None:
    settings = {"managedLedgerCacheSizeMB": cache_mb, "managedLedgerMaxReadsInFlightSizeInMB": "1"}
    broker = broker_with(settings)
    admin = Admin.of(broker)
    client = connected(broker.addresses.pulsar)
    names = [f"s{number}" for number in range(5)]
    for name in names:
        client.subscribe(topic, name, Type.Shared).close()
    bodies = [number + os.urandom(200 * 1024) for number in numbered(60)]
    publish(client.create_producer(topic), bodies)
    wait_until(lambda: admin.metric("pulsar_ml_cache_x_entries") == 0, "the cache let the entries go")
    used = admin.metric(BUDGET_USED)
    assert (used, admin.metric(BUDGET_LEFT)) == (0, 1024 * 1024)
    got = catch_up([client.subscribe(topic, name, Type.Shared) for name in names], len(bodies))
    assert all(sorted(one) == sorted(bodies) for one in got)
    assert admin.metric(MISSES) >= len(bodies)
    wait_until(lambda: admin.metric(BUDGET_USED) == 0, "every share of the budget came back")
    assert admin.metric(BUDGET_LEFT) == 1024 * 1024


def catch_up(consumers: list[pulsar.Consumer], count: int) -> list[list[bytes]]:
    """Each in a thread of its own: what it received."""
    got: list[list[bytes]] = [[] for _ in consumers]

    def take(consumer: pulsar.Consumer, into: list[bytes]) -> None:
        while len(into) < count:
            message = consumer.receive(RECEIVE_MS)
            consumer.acknowledge(message)
            into.append(message.data())

    threads = [threading.Thread(target=take, args=pair) for pair in zip(consumers, got, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return got
