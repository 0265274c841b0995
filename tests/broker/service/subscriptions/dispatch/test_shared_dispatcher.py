"""Shared subscriptions: entries are delivered once, permits and limits hold, in any order of events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.service.consumer import Consumer
from broker.service.subscriptions.dispatch.shared_dispatcher import SharedDispatcher
from broker.service.subscriptions.subscription import Subscription
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.model.entry import Entry
from foundation.model.position import Position
from foundation.model.range_set import EntryRange
from tests.fakes.crowd import Crowd
from tests.fakes.ports import FakeConsumerPort
from tests.fakes.stage import SHARED, TOPIC, Stage

who, few = st.integers(0, 4), st.integers(1, 12)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("join"), st.integers(0, 12), st.integers(0, 1)),
        st.tuples(st.just("flow"), who, few),
        st.tuples(st.just("acknowledge"), who, few),
        st.tuples(st.just("refuse"), who, few),
        st.tuples(st.just("leave"), who),
        st.tuples(st.just("slow"), who, st.booleans()),
        st.tuples(st.just("publish"), st.lists(st.just("k"), min_size=1, max_size=8), st.integers(0, 3)),
        st.tuples(st.just("settle")),
    ),
    max_size=30,
)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps,
    st.sampled_from([0, 64 << 20]),
    st.sampled_from([4, 50_000]),
    st.sampled_from([0, 6]),
    st.sampled_from([0, 1, 500]),
)
def test_every_entry_is_delivered_and_pending_at_one_consumer_only(
    steps: list[tuple[Any, ...]],
    cache_bytes: int,
    entries_per_ledger: int,
    limit: int,
    reads_budget: int,
) -> None:
    async def play() -> None:
        stage = Stage(
            cache_bytes=cache_bytes,
            entries_per_ledger=entries_per_ledger,
            reads_budget=reads_budget,
            round_robin_entries_max=2,
            unacked_max_per_consumer=limit,
            unacked_max_per_subscription=2 * limit,
        )
        topic = await stage.open()
        await stage.run(topic.subscribing.create("s", Position(-1, -1)))
        crowd = Crowd(stage, topic, SHARED, in_order=False)
        for step, *arguments in [*steps, ("settle",)]:
            await (stage.settle() if step == "settle" else getattr(crowd, step)(*arguments))
        await crowd.finish()

    asyncio.run(play())


async def test_consumers_of_the_best_priority_receive_in_turns() -> None:
    stage = Stage(round_robin_entries_max=1)
    topic = await stage.open()
    ports = [(await stage.consume(topic, permits=2, priority=p))[2] for p in (1, 0, 0)]
    await stage.publish(topic, 5)
    assert [len(port.got) for port in ports] == [1, 2, 2]
    assert ports[0].keys == [(0, 4)]


async def test_permits_go_below_zero_by_one_batch_at_most() -> None:
    stage = Stage()
    topic = await stage.open()
    subscription, consumer, port = await stage.consume(topic, permits=2)
    await stage.publish(topic, 3, batch=5)
    assert (len(port.got), consumer.permits) == (1, -3)
    subscription.flow(consumer, 3)
    await stage.settle()
    assert len(port.got) == 1, "a balance of 0 is no permit"
    subscription.flow(consumer, 1)
    await stage.settle()
    assert (len(port.got), consumer.permits) == (2, -4)


async def test_consumer_is_blocked_at_its_unacked_limit_until_half_is_acknowledged() -> None:
    stage = Stage(unacked_max_per_consumer=4)
    topic = await stage.open()
    subscription, consumer, port = await stage.consume(topic, permits=100)
    await stage.publish(topic, 10)
    assert (len(port.got), consumer.blocked) == (4, True)
    subscription.acknowledge(consumer, port.keys[:1])
    await stage.settle()
    assert len(port.got) == 4
    subscription.acknowledge(consumer, port.keys[1:2])
    await stage.settle()
    assert len(port.got) == 6
    subscription.redeliver(consumer, port.keys[2:3], None)
    await stage.settle()
    assert port.counts.count(1) == 1, "a redelivery goes on though too many are out"


async def test_subscription_is_blocked_at_its_unacked_limit_until_half_is_acknowledged() -> None:
    stage = Stage(unacked_max_per_subscription=4, round_robin_entries_max=1, read_entries_max=1)
    topic = await stage.open()
    subscription, first, port = await stage.consume(topic, permits=100)
    _, second, other = await stage.consume(topic, permits=100)
    await stage.publish(topic, 12)
    assert (len(port.got), len(other.got)) == (2, 2)
    subscription.acknowledge(first, port.keys[:1])
    await stage.settle()
    assert len(port.got) + len(other.got) == 4, "not before half of them are acknowledged"
    subscription.acknowledge(second, other.keys[:1])
    await stage.settle()
    assert len(port.got) + len(other.got) == 6
    subscription.remove_consumer(first)
    await stage.settle()
    assert len(other.got) > 3, "what a leaver had counts no longer"


async def test_slow_client_gets_nothing_until_it_is_writable_again() -> None:
    stage = Stage()
    topic = await stage.open()
    _, _, slow = await stage.consume(topic, permits=100)
    slow.writable = False
    _, _, other = await stage.consume(topic, permits=2)
    await stage.publish(topic, 5)
    assert (len(slow.got), len(other.got)) == (0, 2)
    slow.becomes_writable()
    await stage.settle()
    assert len(slow.got) == 3


async def test_redelivery_count_grows_with_requests_and_not_with_leaving_consumers() -> None:
    stage = Stage()
    topic = await stage.open()
    await stage.publish(topic, 2)
    subscription, first, port = await stage.consume(topic, permits=100)
    for _ in range(3):
        subscription.redeliver(first, port.keys[:1], None)
        await stage.settle()
    assert port.counts == [0, 0, 1, 2, 3]
    assert first.messages_redelivered == 3
    _, _, other = await stage.consume(topic, permits=100)
    subscription.remove_consumer(first)
    await stage.settle()
    assert list(zip(other.keys, other.counts, strict=True)) == [((0, 0), 3), ((0, 1), 0)]


async def test_acknowledgement_settles_an_entry_that_is_pending_at_another_consumer() -> None:
    stage = Stage()
    topic = await stage.open()
    subscription, first, port = await stage.consume(topic, permits=100)
    _, second, _ = await stage.consume(topic)
    await stage.publish(topic, 3)
    subscription.acknowledge(second, port.keys)
    assert (first.pending, first.unacked, subscription.cursor.backlog) == ({}, 0, 0)


async def test_redelivery_of_a_batch_carries_its_unacknowledged_messages() -> None:
    stage = Stage()
    topic = await stage.open()
    subscription, consumer, port = await stage.consume(topic, permits=100)
    await stage.publish(topic, 1, batch=3)
    position = Position(*port.keys[0])
    subscription.acknowledge_batch(consumer, position, (0b111,), 3)
    assert (consumer.pending, consumer.unacked) == ({position: 3}, 3), "nothing was acknowledged"
    subscription.acknowledge_batch(consumer, position, (0b110,), 3)
    assert (consumer.pending, consumer.unacked) == ({position: 2}, 2)
    subscription.redeliver(consumer, None, None)
    await stage.settle()
    assert port.ack_sets == [(), (0b110,)]
    subscription.acknowledge_batch(consumer, position, (0b001,), 3)
    assert (consumer.pending, consumer.unacked, subscription.cursor.backlog) == ({}, 0, 0)


async def test_redelivery_count_begins_anew_when_a_part_of_a_batch_is_acknowledged() -> None:
    """As asked of Apache Pulsar 4.2.4, which also counts from 1 after an acknowledgement that changes nothing."""
    stage = Stage()
    topic = await stage.open()
    subscription, consumer, port = await stage.consume(topic, permits=100)
    _, other, _ = await stage.consume(topic)
    await stage.publish(topic, 1, batch=4)
    position = Position(*port.keys[0])
    for by, ack_set in ((consumer, 0b1110), (consumer, 0b1100), (consumer, 0b1100), (other, 0b1000)):
        for _ in range(2):
            subscription.redeliver(consumer, [position], None)
            await stage.settle()
        subscription.acknowledge_batch(by, position, (ack_set,), 4)
    assert port.counts == [0, 1, 2, 1, 2, 1, 2, 1, 2]


async def test_redelivery_that_waits_counts_one_when_a_part_of_its_batch_is_acknowledged() -> None:
    stage = Stage()
    topic = await stage.open()
    subscription, consumer, port = await stage.consume(topic, permits=100)
    await stage.publish(topic, 1, batch=3)
    position = Position(*port.keys[0])
    subscription.redeliver(consumer, [position], None)
    await stage.settle()
    subscription.redeliver(consumer, [position], None)
    subscription.acknowledge_batch(consumer, position, (0b110,), 3)
    await stage.settle()
    assert (port.ack_sets, port.counts) == ([(), (), (0b110,)], [0, 1, 1])
    subscription.acknowledge_batch(consumer, position, (0,), 3)
    dispatcher = subscription.dispatcher
    assert isinstance(dispatcher, SharedDispatcher)
    assert not dispatcher.redelivery.counts


async def test_successor_is_woken_by_a_read_of_the_retired_dispatcher() -> None:
    stage = Stage(cache_bytes=0)
    topic = await stage.open()
    await stage.run(topic.subscribing.create("s", Position(-1, -1)))
    await stage.publish(topic, 3)
    subscription, first, _ = await stage.consume(topic)
    subscription.flow(first, 10)
    stage.soon.popleft()()  # The read of storage is out now.
    assert subscription.cursor.reading
    subscription.remove_consumer(first)
    second = Consumer(FakeConsumerPort(), first.options)
    subscription.add_consumer(second)
    subscription.flow(second, 10)
    stage.turn._run()  # It finds the read out and has to wait for its end.
    await stage.settle()
    assert second.messages_out == 3


async def test_redelivery_fetches_no_more_than_one_batch_at_a_time() -> None:
    stage = Stage(cache_bytes=0, read_entries_max=5)
    topic = await stage.open()
    await stage.run(topic.subscribing.create("s", Position(-1, -1)))
    await stage.publish(topic, 50)
    subscription, consumer, port = await stage.consume(topic, permits=1000)
    assert len(port.got) == 50
    subscription.redeliver(consumer, None, None)
    dispatcher = subscription.dispatcher
    assert isinstance(dispatcher, SharedDispatcher)
    for _ in range(3):
        dispatcher.run_once(0)
    assert len(dispatcher.redelivery.fetching) == 5
    await stage.settle()
    assert len(port.got) == 100


async def three_pending(**options: Any) -> tuple[Stage, Subscription, Consumer, FakeConsumerPort]:
    """Without a cache: three entries with a consumer that has asked for more, none acknowledged."""
    stage = Stage(cache_bytes=0, **options)
    topic = await stage.open()
    await stage.run(topic.subscribing.create("s", Position(-1, -1)))
    await stage.publish(topic, 3)
    subscription, consumer, port = await stage.consume(topic, permits=100)
    assert len(port.got) == 3
    return stage, subscription, consumer, port


def take_all(stage: Stage) -> Callable[[], None]:
    """Takes the whole budget of reads in flight; answers how to give it back."""
    limiter = stage.environment.reads_limiter
    permits = limiter.acquire(limiter.budget_bytes, 0, lambda permits: None)
    assert permits is not None
    return lambda: limiter.release(permits, 0)


async def test_refused_read_is_retried_with_growing_delays() -> None:
    stage = Stage(cache_bytes=0, reads_budget=1 << 20, reads_queue=0)
    topic = await stage.open()
    await stage.run(topic.subscribing.create("s", Position(-1, -1)))
    await stage.publish(topic, 3)
    give_back = take_all(stage)
    subscription, consumer, port = await stage.consume(topic, permits=10)
    asked = []
    for _ in range(3):
        subscription.flow(consumer, 10)  # No reason to ask again before the time.
        await stage.settle()
        asked += [seconds for seconds, _ in stage.timers]
        await stage.fire()
    assert asked == [0.1, 0.2, 0.4]
    give_back()
    await stage.fire()
    assert len(port.got) == 3


async def test_refused_redelivery_read_is_retried_with_growing_delays_and_loses_nothing() -> None:
    stage, subscription, consumer, port = await three_pending(reads_budget=1 << 20, reads_queue=0)
    give_back = take_all(stage)
    subscription.redeliver(consumer, None, None)
    await stage.settle()
    asked = []
    for _ in range(3):
        subscription.flow(consumer, 10)
        await stage.settle()
        asked += [seconds for seconds, _ in stage.timers]
        await stage.fire()
    assert asked == [0.1, 0.2, 0.4]
    assert isinstance(subscription.dispatcher, SharedDispatcher)
    assert len(subscription.dispatcher.redelivery.queue) == 3
    give_back()
    await stage.fire()
    assert port.keys[3:] == port.keys[:3]
    assert consumer.unacked == 3


async def test_fetched_entries_are_queued_as_positions_when_the_client_is_slow() -> None:
    stage, subscription, consumer, port = await three_pending(reads_budget=1 << 20)
    subscription.redeliver(consumer, None, None)
    stage.turn._run()
    port.writable = False
    await stage.settle()
    assert isinstance(subscription.dispatcher, SharedDispatcher)
    assert len(subscription.dispatcher.redelivery.queue) == 3
    assert stage.environment.reads_limiter.remaining_bytes == 1 << 20
    port.becomes_writable()
    await stage.settle()
    assert port.keys[3:] == port.keys[:3]


async def test_entries_fetched_for_a_consumer_that_left_are_delivered_once() -> None:
    stage, subscription, consumer, _ = await three_pending()
    subscription.redeliver(consumer, None, None)
    stage.turn._run()  # The redelivery read is running now.
    subscription.remove_consumer(consumer)
    second = Consumer(port := FakeConsumerPort(), consumer.options)
    subscription.add_consumer(second)
    subscription.flow(second, 100)
    await stage.settle()
    assert len(port.got) == 3
    assert (second.unacked, len(second.pending)) == (3, 3)


async def three_lost() -> tuple[Stage, Subscription, Consumer, FakeConsumerPort, list[Entry]]:
    """Three entries that are pending at no consumer, and one permit."""
    stage, subscription, consumer, port = await three_pending()
    dispatcher = subscription.dispatcher
    assert isinstance(dispatcher, SharedDispatcher)
    for key in list(consumer.pending):
        dispatcher.consumer_set.count_settled(consumer, consumer.pending.pop(key))
    topic = stage.registry.topics[TOPIC]
    assert isinstance(topic, PersistentTopic)
    entries = await stage.run(topic.ledger.read_readable(EntryRange(0, 0, 2)))
    consumer.permits = 1
    return stage, subscription, consumer, port, entries


async def test_entries_behind_fetched_ones_that_were_acknowledged_are_sent_at_once() -> None:
    stage, subscription, consumer, port, entries = await three_lost()
    assert isinstance(subscription.dispatcher, SharedDispatcher)
    subscription.dispatcher.deliver_forgotten(entries)
    # In the same turn, so the first run of the dispatcher takes this entry alone, for one permit, and sends nothing.
    subscription.acknowledge(consumer, [(0, 0)])
    await stage.settle()
    assert port.keys[3:] == [(0, 1)]


async def test_fetched_entry_that_a_transaction_gives_back_is_delivered_once() -> None:
    stage, subscription, consumer, port, entries = await three_lost()
    consumer.permits = 10
    assert isinstance(subscription.dispatcher, SharedDispatcher)
    subscription.dispatcher.deliver_forgotten(entries)
    # The abort ends in the same turn as the read.
    subscription.dispatcher.take_back([((0, 1), 0)])
    await stage.settle()
    assert port.keys[3:] == [(0, 0), (0, 1), (0, 2)]
    assert consumer.unacked == 3
