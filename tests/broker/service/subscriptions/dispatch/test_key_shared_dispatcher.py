"""Key_Shared subscriptions (PIP-379): a key is pending at one consumer and in order, in any order of events."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.service.consumer import Consumer, KeySharedMeta
from broker.service.subscriptions.dispatch.shared_dispatcher import SharedDispatcher
from broker.service.subscriptions.subscription import Subscription
from foundation.model.errors import ConsumerAssignError, ConsumerBusy
from foundation.model.position import Position
from tests.fakes.crowd import Crowd
from tests.fakes.ports import FakeConsumerPort
from tests.fakes.stage import KEY_SHARED, Stage

who, few = st.integers(0, 4), st.integers(1, 8)
keys = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8)
in_order_steps = st.one_of(
    st.tuples(st.just("join"), st.integers(0, 8)),
    st.tuples(st.just("flow"), who, few),
    st.tuples(st.just("acknowledge"), who, few),
    st.tuples(st.just("leave"), who),
    st.tuples(st.just("slow"), who, st.booleans()),
    st.tuples(st.just("publish"), keys, st.integers(0, 3)),
    st.tuples(st.just("settle")),
)
any_steps = st.one_of(in_order_steps, st.tuples(st.just("refuse"), who, few))


def play(steps: list[tuple[Any, ...]], *, in_order: bool, **config: Any) -> None:
    async def run() -> None:
        stage = Stage(round_robin_entries_max=2, **config)
        topic = await stage.open()
        await stage.run(topic.subscribing.create("s", Position(-1, -1)))
        crowd = Crowd(stage, topic, KEY_SHARED, in_order=in_order)
        for step, *arguments in [*steps, ("settle",)]:
            await (stage.settle() if step == "settle" else getattr(crowd, step)(*arguments))
        await crowd.finish()

    asyncio.run(run())


quick = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
caches = st.sampled_from([0, 400, 64 << 20])
budgets = st.sampled_from([0, 1, 500])


@quick
@given(st.lists(in_order_steps, max_size=35), caches, st.booleans(), st.sampled_from([3, 20_000]), budgets)
def test_key_is_pending_at_one_consumer_and_delivered_in_order(
    steps: list[tuple[Any, ...]],
    cache_bytes: int,
    ring: bool,
    ahead: int,
    reads_budget: int,
) -> None:
    play(
        steps,
        in_order=True,
        cache_bytes=cache_bytes,
        key_shared_consistent_hashing=ring,
        key_shared_points=3,
        look_ahead_per_subscription=ahead,
        read_entries_max=3,
        reads_budget=reads_budget,
    )


@quick
@given(st.lists(any_steps, max_size=35), caches, st.booleans())
def test_key_is_pending_at_one_consumer_when_messages_are_redelivered(
    steps: list[tuple[Any, ...]],
    cache_bytes: int,
    ring: bool,
) -> None:
    play(
        steps, in_order=False, cache_bytes=cache_bytes, key_shared_consistent_hashing=ring, read_entries_max=4
    )


Found = tuple[Subscription, Consumer, FakeConsumerPort]


async def two_with_moved_hashes(**config: Any) -> tuple[Stage, Found, Found]:
    """The first consumer holds one message of each key; the second owns half of the hashes and has permits."""
    stage = Stage(key_shared_consistent_hashing=False, **config)
    topic = await stage.open()
    first = await stage.consume(topic, KEY_SHARED, permits=100)
    await stage.publish(topic, keys=list("abcdefgh"))
    second = await stage.consume(topic, KEY_SHARED, permits=100)
    await stage.publish(topic, keys=list("abcdefgh"))
    return stage, first, second


async def test_moved_hash_is_delivered_after_the_former_owner_has_acknowledged() -> None:
    stage, (subscription, first, port), (_, _, other) = await two_with_moved_hashes()
    assert other.got == []
    waiting = 16 - len(port.got)
    assert waiting > 0
    subscription.acknowledge(first, port.keys[:8])
    await stage.settle()
    assert len(other.got) == waiting


async def test_waiting_consumer_is_woken_although_a_third_one_joined_meanwhile() -> None:
    stage, (subscription, first, port), (_, second, other) = await two_with_moved_hashes()
    await stage.consume(await stage.open(), KEY_SHARED)
    await stage.settle()
    subscription.acknowledge(first, port.keys[:8])
    await stage.settle()
    of_second = [key for key in "abcdefgh" if _owner(subscription, key) is second]
    assert of_second
    assert len(other.got) == len(of_second)


async def test_newer_entry_waits_while_an_older_one_of_its_hash_waits_for_redelivery() -> None:
    stage = Stage()
    topic = await stage.open()
    subscription, consumer, _ = await stage.consume(topic, KEY_SHARED, permits=5)
    dispatcher = subscription.dispatcher
    assert isinstance(dispatcher, SharedDispatcher)
    assert dispatcher.keys is not None
    assert dispatcher.keys.in_order(consumer, (0, 9), 77, again=False)
    dispatcher.redelivery.queue.add([(0, 3)], 77)
    assert not dispatcher.keys.in_order(consumer, (0, 9), 77, again=False)
    assert dispatcher.keys.in_order(consumer, (0, 9), 78, again=False)


async def test_draining_hashes_are_free_when_their_owner_leaves() -> None:
    stage, (subscription, first, _), (_, _, other) = await two_with_moved_hashes()
    subscription.remove_consumer(first)
    await stage.settle()
    assert sorted(other.keys) == [(0, number) for number in range(16)]


async def test_look_ahead_past_blocked_keys_ends_at_the_limit() -> None:
    stage = Stage(
        look_ahead_per_consumer=0,
        look_ahead_per_subscription=0,
        unacked_max_per_subscription=20,
        read_entries_max=5,
        key_shared_consistent_hashing=False,
    )
    topic = await stage.open()
    subscription, _, _ = await stage.consume(
        topic, KEY_SHARED
    )  # Without permits: nothing of its keys can go.
    _, _, port = await stage.consume(topic, KEY_SHARED, permits=1000)
    blocked = [f"k{n}" for n in range(200) if _owner(subscription, f"k{n}") is subscription.consumers[0]]
    await stage.publish(topic, keys=blocked)
    dispatcher = subscription.dispatcher
    assert isinstance(dispatcher, SharedDispatcher)
    assert 20 <= len(dispatcher.redelivery.queue) < 30
    assert port.got == []


async def test_redelivery_reads_about_as_many_entries_as_can_be_sent() -> None:
    stage = Stage(read_entries_max=100)
    topic = await stage.open()
    subscription, slow, of_slow = await stage.consume(topic, KEY_SHARED, permits=1)
    await stage.consume(topic, KEY_SHARED, permits=1000)
    await stage.publish(topic, keys=[f"k{number % 50}" for number in range(200)])
    reads = topic.ledger.cache.reads
    before, got = reads.hit_entries, len(of_slow.got)
    for _ in range(20):
        subscription.flow(slow, 1)
        await stage.settle()
    assert len(of_slow.got) - got == 20
    assert topic.ledger.cache.reads.hit_entries - before <= 40


def _owner(subscription: Subscription, key: str) -> object:
    from broker.service.subscriptions.dispatch.key_shared import sticky_hash_of

    dispatcher = subscription.dispatcher
    assert isinstance(dispatcher, SharedDispatcher)
    assert dispatcher.keys is not None
    return dispatcher.keys.selector.select(sticky_hash_of(key.encode()))


async def test_cached_entry_waits_while_storage_reads_an_older_one_of_its_key() -> None:
    stage = Stage(cache_bytes=0, key_shared_consistent_hashing=False)
    topic = await stage.open()
    subscription, first, port = await stage.consume(topic, KEY_SHARED, permits=100)
    await stage.publish(topic, keys=["a", "a"])
    second = port.got[1]
    subscription.redeliver(first, None, None)
    dispatcher = subscription.dispatcher
    assert isinstance(dispatcher, SharedDispatcher)
    ledger_cache = topic.ledger.cache
    known = {(second.ledger_id, second.entry_id): second}
    subscription.cursor._cache = _OneEntry(ledger_cache, known)  # type: ignore[assignment]
    await stage.settle()
    assert port.keys[2:] == [(0, 0), (0, 1)]


class _OneEntry:
    """The cache, but it has one more entry."""

    def __init__(self, cache: object, known: Mapping[tuple[int, int], object]) -> None:
        self._cache = cache
        self._known = known

    def get_again(self, reader: object, ledger_id: int, entry_id: int) -> object:
        return self._known.get((ledger_id, entry_id))

    def __getattr__(self, name: str) -> object:
        return getattr(self._cache, name)


async def test_overlapping_sticky_ranges_are_refused_without_a_trace() -> None:
    stage = Stage()
    topic = await stage.open()
    with pytest.raises(ConsumerAssignError):
        await stage.consume(topic, KEY_SHARED, ranges=((9, 3),), durable=False)
    assert topic.subscriptions == {}
    subscription, _, _ = await stage.consume(topic, KEY_SHARED, ranges=((0, 100),))
    with pytest.raises(ConsumerAssignError):
        await stage.consume(topic, KEY_SHARED, ranges=((50, 60),))
    with pytest.raises(ConsumerBusy):
        await stage.consume(topic, KEY_SHARED)
    assert len(subscription.consumers) == 1
    assert subscription.dispatcher is not None
    assert subscription.kind is KEY_SHARED
    assert isinstance(subscription.consumers[0].options.key_shared, KeySharedMeta)
    subscription.remove_consumer(subscription.consumers[0])
    with pytest.raises(ConsumerAssignError):
        await stage.consume(topic, KEY_SHARED, ranges=((9, 3),))
    assert not subscription.cursor.active, "no consumer is connected"
