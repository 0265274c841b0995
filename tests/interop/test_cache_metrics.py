"""Every metric of the cache is there and counts what happens: a real broker is made to do all of it, one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pulsar
import pytest

from tests.interop.support import Admin, publish, receive, wait_until
from tests.vectors.broker_process import BrokerProcess

PREFIX = "pulsar_ml_cache_x_"
COUNT = 200
ROUNDS_MAX = 60
TTL = "managedLedgerCacheEvictionTimeThresholdMillis"
BODIES = [b"%01024d" % number for number in range(COUNT)]
SETTINGS = {
    "managedLedgerCacheSizeMB": "1",
    # A busy machine must not make entries too old before all have read them; the test makes it 200 ms then.
    TTL: "2000",
    "managedLedgerMaxEntriesPerLedger": "50",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "entryCacheSubscriptionMetricsMax": "2",
}
LEVELS = ("used_bytes", "entries", "removal_queue_length", "expected_entries", "expected_bytes")


@pytest.fixture(params=["magnetar", "pip430"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, SETTINGS | {"entryCachePolicy": request.param}) as broker:
        yield broker


class Counted:
    """The broker's metrics of the cache, by what is left of their names."""

    def __init__(self, admin: Admin) -> None:
        self.admin = admin

    def __call__(self, name: str, **labels: str) -> float:
        return self.admin.metric(PREFIX + name, **labels)

    def at_once(self) -> Callable[..., float]:
        """Returns a function that sums samples of one scrape, as `metric` sums those of a new one."""
        samples = self.admin.samples()

        def total(name: str, **labels: str) -> float:
            found = [one for one in samples if one.name == PREFIX + name]
            return float(sum(one.value for one in found if labels.items() <= one.labels.items()))

        return total

    def comes(self, name: str, **labels: str) -> None:
        wait_until(lambda: self(name, **labels) > 0, f"{name} {labels} is counted")

    def cache_is_empty(self) -> None:
        wait_until(lambda: self("entries") == 0, "what nobody needs has left")


def read_together(consumers: list[pulsar.Consumer], counted: Counted) -> int:
    """All of it from storage, until some of it was asked for at the same time; how often each has read it by then."""
    rounds = 1
    while not counted("coalesced_total"):
        assert rounds < ROUNDS_MAX, "they never asked for the same at the same time"
        counted.cache_is_empty()
        for consumer in consumers:
            consumer.redeliver_unacknowledged_messages()
        for consumer in consumers:
            assert receive(consumer, COUNT, acknowledge=False) == BODIES
        rounds += 1
    return rounds


def test_cache_metrics_count_inserts_hits_and_misses(
    broker: BrokerProcess, connected: Callable[[str], pulsar.Client], topic: str
) -> None:
    counted = Counted(Admin.of(broker))
    cache = counted.admin.get("magnetar/cache")
    assert isinstance(cache, dict)
    policy = cache["policy"]
    client = connected(broker.addresses.pulsar)
    client.subscribe(topic, "keeper").close()
    consumers = [client.subscribe(topic, f"s{number}", receiver_queue_size=COUNT) for number in range(5)]
    producer = client.create_producer(topic, batching_enabled=False)

    publish(producer, BODIES)
    for consumer in consumers:
        assert receive(consumer, COUNT, acknowledge=False) == BODIES
    assert (counted("insertions_total"), counted("hits_total")) == (COUNT, 5 * COUNT)
    assert counted("hit_bytes_total") > 5 * COUNT * 1024
    assert (counted("misses_total"), counted("coalesced_total")) == (0, 0)
    counted.admin.configure(TTL, "200")
    counted.comes("requeues_total", cause="may_return" if policy == "magnetar" else "recently_accessed")
    counted.cache_is_empty()
    assert counted("evicted_total", reason="ttl") == COUNT
    assert counted("evicted_bytes_total", reason="ttl") > COUNT * 1024
    assert counted("evicted_expected_total") == 0, "all of it was read"
    for histogram in ("evicted_age_seconds_count", "evicted_idle_seconds_count"):
        assert counted(histogram, reason="ttl") == COUNT
    assert counted("passes_total", reason="ttl") > 0
    assert counted("visits_total", reason="ttl") > 0
    assert counted("pass_slice_seconds_count", trigger="periodic") > 0

    rounds = read_together(consumers, counted)
    misses, coalesced = counted("misses_total"), counted("coalesced_total")
    assert counted("hits_total") + misses + coalesced == rounds * 5 * COUNT
    assert misses >= (rounds - 1) * COUNT
    assert counted("miss_bytes_total") > misses * 1024
    assert counted("coalesced_bytes_total") > coalesced * 1024
    for name, sum_of_all in (("hits", counted("hits_total")), ("misses", misses), ("coalesced", coalesced)):
        assert counted(f"topic_{name}_total", topic=f"persistent://public/default/{topic}") == sum_of_all
    shown = {
        sample.labels["subscription"]
        for sample in counted.admin.samples()
        if sample.name == PREFIX + "subscription_hits_total"
    }
    assert len(shown) == 2, "the busiest, as many as the setting says"
    reads = [counted(f"subscription_{name}_total") for name in ("hits", "misses", "coalesced")]
    assert sum(reads) == len(shown) * rounds * COUNT
    assert counted("subscriptions_left_out") == len(consumers) - 2
    for consumer in consumers:
        consumer.unsubscribe()

    lag_behind(client, producer, counted, topic)


def lag_behind(client: pulsar.Client, producer: pulsar.Producer, counted: Counted, topic: str) -> None:
    """A subscription that reads almost nothing: its expected entries stay until the cache is full."""
    slow = client.subscribe(topic, "slow", receiver_queue_size=1)
    publish(producer, BODIES)

    def are_requeued() -> bool:
        # Something new for each look: no policy keeps the entries of a reader that stands still for ever.
        publish(producer, BODIES[:10])
        seen = counted.at_once()
        return seen("requeues_total", cause="expected_reads") > 0 and all(seen(name) > 0 for name in LEVELS)

    wait_until(are_requeued, "entries are requeued, and all levels show them")
    publish(producer, [bytes(16 * 1024)] * 100)
    counted.comes("evicted_total", reason="size")
    counted.comes("evicted_expected_total", reason="size")
    assert counted("evicted_expected_bytes_total", reason="size") > 0
    assert counted("size_passes_total") > 0
    assert counted("visits_total", reason="size") > 0
    seen = counted.at_once()
    assert seen("evicted_age_seconds_count", reason="size") == seen("evicted_total", reason="size")

    def are_invalidated() -> bool:
        publish(producer, BODIES[:10])
        counted.admin.put(f"persistent/public/default/{topic}/unload")
        assert counted("evicted_total", reason="invalidate") >= counted(
            "evicted_expected_total", reason="invalidate"
        )
        return counted("evicted_expected_total", reason="invalidate") > 0

    wait_until(are_invalidated, "an unload removes what slow had not read, unless its time was over before")
    slow.close()


def test_cache_metrics_count_entries_removed_with_their_ledger(
    broker: BrokerProcess, connected: Callable[[str], pulsar.Client], topic: str
) -> None:
    counted = Counted(Admin.of(broker))
    client = connected(broker.addresses.pulsar)
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)

    def trimmed() -> bool:
        publish(producer, BODIES)
        receive(consumer, COUNT)
        return counted("evicted_total", reason="ledger") > 0

    wait_until(trimmed, "a ledger was trimmed while its entries were cached")
    assert counted("evicted_bytes_total", reason="ledger") > 1024
