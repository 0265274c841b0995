"""Exclusive and Failover: the choice of the active consumer, its start, and redelivery in order."""

from __future__ import annotations

import gc
from types import MethodType

import pytest

from broker.service.consumer import SubscriptionType
from broker.service.subscriptions.dispatch.key_shared import sticky_hash_of
from broker.service.subscriptions.dispatch.single_active_dispatcher import SingleActiveDispatcher
from foundation.model.errors import ConsumerAssignError, ConsumerBusy
from foundation.model.position import Position
from tests.fakes.stage import EXCLUSIVE, FAILOVER, SHARED, Stage

PARTITION = "persistent://public/default/t-partition-1"


async def test_exclusive_subscription_refuses_a_second_consumer() -> None:
    stage = Stage()
    topic = await stage.open()
    subscription, first, _ = await stage.consume(topic, EXCLUSIVE)
    for kind in (EXCLUSIVE, SHARED):
        with pytest.raises(ConsumerBusy):
            await stage.consume(topic, kind)
    subscription.remove_consumer(first)
    await stage.consume(topic, SHARED)


@pytest.mark.parametrize("cache_bytes", [0, 64 << 20])
async def test_redelivery_starts_over_at_the_first_unacknowledged_entry(cache_bytes: int) -> None:
    stage = Stage(cache_bytes=cache_bytes)
    topic = await stage.open()
    subscription, consumer, port = await stage.consume(topic, EXCLUSIVE, permits=100)
    await stage.publish(topic, 4)
    subscription.acknowledge(consumer, [(0, 0), (0, 2)])
    subscription.redeliver(consumer, [(0, 3)], None)
    await stage.settle()
    assert port.keys == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 1), (0, 3)]
    assert set(port.counts) == {0}, "Exclusive and Failover do not count"


async def test_permits_go_below_zero_by_one_batch_and_slow_clients_get_nothing() -> None:
    stage = Stage()
    topic = await stage.open()
    _, consumer, port = await stage.consume(topic, EXCLUSIVE, permits=2)
    await stage.publish(topic, 3, batch=5)
    assert (len(port.got), consumer.permits) == (1, -3)
    port.writable = False
    consumer.permits = 100
    await stage.publish(topic, 1)
    assert len(port.got) == 1
    port.becomes_writable()
    await stage.settle()
    assert len(port.got) == 4


async def test_failover_switches_to_the_better_priority_after_the_delay() -> None:
    stage = Stage(failover_delay_ms=250)
    topic = await stage.open(PARTITION)
    subscription, second, low = await stage.consume(topic, FAILOVER, permits=100, priority=1)
    await stage.publish(topic, 2)
    assert (low.events, low.got) == ([], []), "a client may not know its consumer yet"
    await stage.fire()
    assert (low.events, len(low.got)) == (["active"], 2)
    _, first, high = await stage.consume(topic, FAILOVER, permits=100)
    subscription.acknowledge(second, [(0, 0)])
    await stage.publish(topic, 1)
    assert (len(low.got), len(high.got)) == (2, 0), "acknowledgements on their way may still come"
    assert [seconds for seconds, _ in stage.timers] == [0.25]
    assert (low.events, high.events) == (["active"], [])
    await stage.fire()
    assert (low.events, high.events) == (["active", "passive"], ["active"])
    assert high.keys == [(0, 1), (0, 2)]
    subscription.remove_consumer(first)
    await stage.fire()
    assert low.events[-1] == "active"
    assert low.keys[2:] == [(0, 1), (0, 2)]


async def test_joining_consumer_of_lower_priority_is_told_to_be_passive() -> None:
    stage = Stage()
    topic = await stage.open()
    _, _, first = await stage.consume(topic, FAILOVER, permits=1)
    _, _, second = await stage.consume(topic, FAILOVER, permits=1, priority=3)
    await stage.settle()
    assert (first.events, second.events) == ([], ["passive"])
    await stage.fire()
    assert (first.events, second.events) == (["active"], ["passive", "passive"])


async def test_partition_chooses_the_consumer_of_its_number_among_the_present_ones() -> None:
    stage = Stage()
    topic = await stage.open(PARTITION)
    names = ["a", "b", "c"]
    found = [await stage.consume(topic, FAILOVER, permits=1, name=name) for name in names]
    subscription = found[0][0]
    dispatcher = subscription.dispatcher
    assert isinstance(dispatcher, SingleActiveDispatcher)
    assert dispatcher.active is not None
    assert dispatcher.active.name == "b"
    subscription.remove_consumer(found[0][1])
    assert dispatcher.active.name == "c", "1 % 2 of b and c"


async def test_two_changes_within_the_delay_start_over_once() -> None:
    stage = Stage()
    topic = await stage.open(PARTITION)
    await stage.publish(topic, 2)
    found = [await stage.consume(topic, FAILOVER, permits=100, priority=p) for p in (1, 2, 3)]
    subscription = found[0][0]
    subscription.remove_consumer(found[0][1])
    subscription.remove_consumer(found[1][1])
    assert len(stage.timers) == 1
    await stage.fire()
    assert found[2][2].keys == [(0, 0), (0, 1)]


async def test_ending_delay_rewinds_nothing_when_its_dispatcher_is_retired() -> None:
    stage = Stage()
    topic = await stage.open(PARTITION)
    await stage.publish(topic, 2)
    found = [await stage.consume(topic, FAILOVER, permits=100, priority=p) for p in (1, 2)]
    for subscription, consumer, _ in found:
        subscription.remove_consumer(consumer)
    _, _, port = await stage.consume(topic, SHARED, permits=100)
    assert len(port.got) == 2
    await stage.fire()
    assert len(port.got) == 2


async def test_entries_beyond_the_permits_are_delivered_next_without_a_second_read() -> None:
    stage = Stage(cache_bytes=0)
    topic = await stage.open()
    await stage.run(topic.subscribing.create("s", Position(-1, -1)))
    await stage.publish(topic, 4, batch=2)
    subscription, consumer, port = await stage.consume(topic, EXCLUSIVE, permits=3)
    assert port.keys == [(0, 0), (0, 1)]
    subscription.flow(consumer, 100)
    await stage.settle()
    assert port.keys == [(0, 0), (0, 1), (0, 2), (0, 3)]


async def test_exclusive_consumer_with_key_ranges_gets_only_its_keys() -> None:
    """Readers with `keyHashRange` divide a topic; what one leaves out belongs to another."""
    stage = Stage()
    topic = await stage.open()
    keys = [f"k{number}" for number in range(40)]
    lower = [at for at, key in enumerate(keys) if sticky_hash_of(key.encode()) <= 32767]
    upper = [at for at in range(40) if at not in lower]
    assert lower
    assert upper
    await stage.publish(topic, keys=keys)
    subscription, _, low = await stage.consume(
        topic, EXCLUSIVE, permits=100, durable=False, subscription="low", ranges=((0, 32767),)
    )
    _, consumer, high = await stage.consume(
        topic, EXCLUSIVE, permits=3, durable=False, subscription="high", ranges=((32768, 65535),)
    )
    assert [entry for _, entry in low.keys] == lower
    # Entries of other keys cost no permits, so three permits bring three messages.
    assert [entry for _, entry in high.keys] == upper[:3]
    topic.subscriptions["high"].flow(consumer, 100)
    await stage.settle()
    assert [entry for _, entry in high.keys] == upper
    subscription.redeliver(subscription.consumers[0], None, None)
    await stage.settle()
    assert [entry for _, entry in low.keys] == lower * 2


@pytest.mark.parametrize("ranges", [((9, 5),), ((0, 10), (10, 20))])
async def test_exclusive_consumer_with_impossible_key_ranges_is_refused(
    ranges: tuple[tuple[int, int], ...],
) -> None:
    stage = Stage()
    topic = await stage.open()
    with pytest.raises(ConsumerAssignError):
        await stage.consume(topic, EXCLUSIVE, ranges=ranges)
    await stage.consume(topic, EXCLUSIVE)


async def test_failover_consumer_with_key_ranges_gets_everything() -> None:
    stage = Stage()
    topic = await stage.open()
    await stage.publish(topic, keys=["a", "b", "c", "d"])
    _, _, port = await stage.consume(topic, FAILOVER, permits=9, ranges=((0, 0),))
    await stage.fire()
    assert len(port.got) == 4


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER])
async def test_dispatcher_keeps_no_method_of_its_subscription(kind: SubscriptionType) -> None:
    stage = Stage()
    topic = await stage.open()
    subscription, _, _ = await stage.consume(topic, kind)
    kept = gc.get_referents(subscription.dispatcher)
    assert topic in kept
    assert [one for one in kept if isinstance(one, MethodType) and one.__self__ is subscription] == []
