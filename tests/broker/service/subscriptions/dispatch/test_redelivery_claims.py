"""A cached entry whose position waits for redelivery has exactly one claim of that subscription.

A model stands beside: for each waiting position, the entry that the cache held when the position was queued. While that
entry is cached, the subscription claims it; other subscriptions and repeated requests change nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.service.consumer import Consumer
from broker.service.subscriptions.dispatch import redelivery
from broker.service.subscriptions.dispatch.redelivery_queue import RedeliveryQueue
from broker.service.subscriptions.dispatch.shared_dispatcher import SharedDispatcher
from broker.service.subscriptions.subscription import Subscription
from broker.service.topics.persistent_topic import PersistentTopic
from entry_cache.policies.magnetar.magnetar import Magnetar
from foundation.model.entry import Entry
from foundation.model.position import Position, PositionKey
from protocol.bookie_frame import RC_IO_ERROR
from tests.fakes.ports import FakeConsumerPort
from tests.fakes.stage import KEY_SHARED, SHARED, Stage

SUBSCRIPTIONS = {"a": SHARED, "b": SHARED, "k": KEY_SHARED}
MS = 1_000_000
which, few = st.sampled_from(sorted(SUBSCRIPTIONS)), st.integers(1, 6)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("join"), which, st.integers(0, 12)),
        st.tuples(st.just("flow"), which, few),
        st.tuples(st.just("acknowledge"), which, few),
        st.tuples(st.just("acknowledge_at_the_cursor"), which, few),
        st.tuples(st.just("refuse"), which, few),
        st.tuples(st.just("leave"), which),
        st.tuples(st.just("slow"), which, st.booleans()),
        st.tuples(st.just("seek"), which, st.integers(0, 20)),
        st.tuples(st.just("publish"), st.lists(st.sampled_from("xyz"), min_size=1, max_size=8)),
        st.tuples(st.just("evict"), st.integers(1, 900)),
        st.tuples(st.just("invalidate"), st.integers(0, 20)),
        st.tuples(st.just("storage"), st.booleans()),
        st.tuples(st.just("settle")),
    ),
    min_size=20,
    max_size=60,
)


class WatchedQueue(RedeliveryQueue):
    """Notes the cached entry of each position when it is queued."""

    __slots__ = ("held",)
    peek: Callable[[int, int], Entry | None]

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[PositionKey, Entry | None] = {}

    def add(self, keys: Iterable[PositionKey], sticky_hash: int = 0) -> None:
        asked = list(keys)
        super().add(asked, sticky_hash)
        for key in asked:
            self.held[key] = WatchedQueue.peek(*key)

    def claimed(self) -> set[Entry]:
        held = [self.held[key] for key in self.keys()]
        return {entry for entry in held if entry is not None and entry.cached}


class Life:
    def __init__(self, stage: Stage, topic: PersistentTopic, subscriptions: dict[str, Subscription]) -> None:
        self.stage = stage
        self.topic = topic
        self.subscriptions = subscriptions
        self.dispatchers: set[SharedDispatcher] = set()
        self.policy = stage.environment.caches.policy
        self.read = stage.ledgers.batch_read

    async def step(self, name: str, *arguments: Any) -> None:
        self.stage.now_ns += MS
        await getattr(self, name)(*arguments)
        self.check()

    def check(self) -> None:
        """Called after each step, also before the dispatchers that it woke have run."""
        assert isinstance(self.policy, Magnetar)
        model: dict[Entry, set[int]] = {}
        for subscription in self.subscriptions.values():
            if isinstance(subscription.dispatcher, SharedDispatcher):
                self.dispatchers.add(subscription.dispatcher)
        for dispatcher in self.dispatchers:
            assert isinstance(dispatcher.redelivery.queue, WatchedQueue)
            for entry in dispatcher.redelivery.queue.claimed():
                model.setdefault(entry, set()).add(dispatcher.cursor.reader.number)
        found = {entry: readers for entry, readers in self.policy._queue.waiting.items() if entry.cached}
        assert found == model
        assert all(entry.expected_reads == len(model.get(entry, ())) for entry in self.policy if entry.cached)

    def _consumer(self, which: str) -> Consumer | None:
        consumers = self.subscriptions[which].consumers
        return consumers[0] if consumers else None

    # Events

    async def settle(self) -> None:
        await self.stage.settle()

    async def join(self, which: str, permits: int) -> None:
        await self.stage.consume(self.topic, SUBSCRIPTIONS[which], permits=permits, subscription=which)

    async def flow(self, which: str, permits: int) -> None:
        if consumer := self._consumer(which):
            self.subscriptions[which].flow(consumer, permits)

    async def leave(self, which: str) -> None:
        if consumer := self._consumer(which):
            self.subscriptions[which].remove_consumer(consumer)

    async def slow(self, which: str, writable: bool) -> None:
        if consumer := self._consumer(which):
            assert isinstance(consumer.port, FakeConsumerPort)
            if writable:
                consumer.port.becomes_writable()
            else:
                consumer.port.writable = False

    async def acknowledge(self, which: str, count: int) -> None:
        """Acknowledges pending entries and positions that wait for redelivery."""
        if consumer := self._consumer(which):
            dispatcher = self.subscriptions[which].dispatcher
            assert isinstance(dispatcher, SharedDispatcher)
            keys = [*list(consumer.pending)[:count], *dispatcher.redelivery.queue.keys()[:2]]
            self.subscriptions[which].acknowledge(consumer, keys)

    async def acknowledge_at_the_cursor(self, which: str, count: int) -> None:
        """Acknowledges at the cursor alone, as skipping messages by the admin API does."""
        if consumer := self._consumer(which):
            self.subscriptions[which].cursor.acknowledge(list(consumer.pending)[:count])

    async def refuse(self, which: str, count: int) -> None:
        if consumer := self._consumer(which):
            keys = list(consumer.pending)[-count:]
            self.subscriptions[which].redeliver(consumer, keys + keys, None)

    async def seek(self, which: str, number: int) -> None:
        place = self.topic.ledger.ledgers.position_at(number % max(1, self.topic.ledger.ledgers.entries))
        await self.stage.run(self.subscriptions[which].seek(place))

    async def publish(self, keys: list[str]) -> None:
        await self.stage.publish(self.topic, keys=keys)

    async def evict(self, size_bytes: int) -> None:
        caches = self.stage.environment.caches
        caches.eviction.free(caches.policy.begin_size_pass(size_bytes), self.stage.now_ns)

    async def invalidate(self, number: int) -> None:
        self.topic.ledger.cache.invalidate_before(
            Position(self.topic.ledger.last_confirmed.ledger_id, number)
        )

    async def storage(self, answers: bool) -> None:
        def refuse(
            ledger_id: int, first: int, count: int, size: int, done: Callable[[int, list[bytes]], None]
        ) -> None:
            self.stage.soon.append(lambda: done(RC_IO_ERROR, []))

        self.stage.ledgers.batch_read = self.read if answers else refuse  # type: ignore[method-assign,assignment]  # storage that refuses


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redelivery, "RedeliveryQueue", WatchedQueue)


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(steps)
def test_cached_entries_are_claimed_exactly_while_their_positions_wait(
    watched: None, steps: list[tuple[Any, ...]]
) -> None:
    async def play() -> None:
        stage = Stage(policy="magnetar", cache_bytes=1 << 20)
        topic = await stage.open()
        subscriptions = {
            name: await stage.run(topic.subscribing.create(name, Position(-1, -1))) for name in SUBSCRIPTIONS
        }
        WatchedQueue.peek = topic.ledger.cache.peek
        life = Life(stage, topic, subscriptions)
        for step in [("publish", list("xyxz")), *[("join", name, 3) for name in SUBSCRIPTIONS], *steps]:
            await life.step(*step)
        await life.step("storage", True)
        for name in SUBSCRIPTIONS:
            while subscriptions[name].consumers:
                await life.step("leave", name)
        await stage.fire()
        await life.step("settle")
        assert not [entry for entry in life.policy if entry.cached and entry.expected_reads]

    asyncio.run(play())


async def test_redelivery_read_claims_nothing_when_all_consumers_have_left() -> None:
    stage = Stage(policy="magnetar")
    topic = await stage.open()
    subscription, consumer, port = await stage.consume(topic, permits=10)
    await stage.publish(topic)
    caches = stage.environment.caches
    for cache in caches.caches:
        cache.clear()
    held: list[Callable[[], None]] = []
    stage.ledgers.batch_read = lambda *asked: held.append(lambda: asked[-1](RC_IO_ERROR, []))  # type: ignore[method-assign]
    subscription.redeliver(consumer, port.keys, None)
    await stage.settle()
    subscription.remove_consumer(consumer)
    topic.ledger.cache.insert_run([Entry(*port.keys[0], b"", b"of another reader", 1)], 1, stage.now_ns)
    await stage.consume(topic)
    assert held
    while held:
        held.pop()()
        await stage.settle()
    assert [entry.expected_reads for entry in caches.policy if entry.cached] == [0]
