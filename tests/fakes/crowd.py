"""Crowd: consumers of one subscription that come, ask, acknowledge, refuse and leave, with checks of each delivery.

Checked at every delivery: no other consumer holds the entry, permits are overdrawn by one entry at most; for Key_Shared
also: one consumer alone holds entries of a key's hash, and a key's entries come in order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.service.consumer import Consumer, SubscriptionType
from broker.service.entry_facts import facts_of, messages_of
from broker.service.subscriptions.dispatch.key_shared import sticky_hash_of
from broker.service.subscriptions.dispatch.shared_dispatcher import SharedDispatcher
from broker.service.subscriptions.subscription import Subscription
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.model.entry import Entry
from tests.fakes.ports import FakeConsumerPort, Key
from tests.fakes.stage import KEY_SHARED, Stage


@dataclass
class Member:
    number: int
    """Its number. Unlike `id()`, it is never used again for a later member."""
    subscription: Subscription
    consumer: Consumer
    port: FakeConsumerPort
    permits: int = 0
    held: dict[Key, Entry] = field(default_factory=dict)


class Crowd:
    def __init__(
        self, stage: Stage, topic: PersistentTopic, kind: SubscriptionType, *, in_order: bool
    ) -> None:
        self.stage = stage
        self.topic = topic
        self.kind = kind
        self.in_order = in_order
        """No consumer refuses messages, so each gets a key's entries in order."""
        self.members: list[Member] = []
        self.delivered: set[Key] = set()
        self.published = 0
        self._joined = 0
        self._last: dict[tuple[int, bytes], Key] = {}

    async def join(self, permits: int, priority: int = 0) -> None:
        port = FakeConsumerPort(self._check)
        subscription, consumer, _ = await self.stage.consume(
            self.topic, self.kind, port=port, priority=priority
        )
        self._joined += 1
        self.members.append(Member(self._joined, subscription, consumer, port))
        await self.flow(len(self.members) - 1, permits)

    async def flow(self, which: int, permits: int) -> None:
        if permits and self.members:
            member = self.members[which % len(self.members)]
            member.permits += permits
            member.subscription.flow(member.consumer, permits)

    async def leave(self, which: int) -> None:
        if self.members:
            member = self.members.pop(which % len(self.members))
            member.held.clear()
            member.subscription.remove_consumer(member.consumer)

    async def acknowledge(self, which: int, count: int) -> None:
        if self.members:
            member = self.members[which % len(self.members)]
            keys = list(member.held)[:count]
            for key in keys:
                del member.held[key]
            member.subscription.acknowledge(member.consumer, keys)

    async def refuse(self, which: int, count: int) -> None:
        """Negative acknowledgement, each named twice."""
        if self.members:
            member = self.members[which % len(self.members)]
            keys = list(member.held)[-count:]
            for key in keys:
                del member.held[key]
            if keys:
                member.subscription.redeliver(member.consumer, keys + keys, None)

    async def slow(self, which: int, writable: bool) -> None:
        if self.members:
            port = self.members[which % len(self.members)].port
            if writable:
                port.becomes_writable()
            else:
                port.writable = False

    async def publish(self, keys: list[str], batch: int, delays_ms: list[int] | None = None) -> None:
        self.published += len(keys)
        await self.stage.publish(self.topic, keys=keys, batch=batch, delays_ms=delays_ms)

    async def pass_time(self, ms: int) -> None:
        await self.stage.pass_time(ms)

    def _check(self, port: FakeConsumerPort, entry: Entry) -> None:
        key = (entry.ledger_id, entry.entry_id)
        member = next((one for one in self.members if one.port is port), None)
        assert member is not None, f"{key} went to a consumer that has left"
        assert all(key not in one.held for one in self.members), f"{key} is with two at once"
        assert member.permits > 0, f"{key} was not asked for"
        facts = facts_of(entry)
        assert facts is not None
        tick_ms = self.topic.delays.policy.tick_ms
        assert facts.deliver_at_ms <= self.stage.wall_ms + tick_ms, f"{key} is early"
        if self.kind is KEY_SHARED:
            self._check_key(member, entry, key)
        member.permits -= messages_of(entry)
        member.held[key] = entry
        self.delivered.add(key)

    def _check_key(self, member: Member, entry: Entry, key: Key) -> None:
        name = _key_of(entry)
        for one in self.members:
            if one is not member:
                assert _hash(name) not in {_hash(_key_of(held)) for held in one.held.values()}, (
                    "two have the key"
                )
        if self.in_order:
            mine = (member.number, name)
            assert self._last.get(mine, (-1, -1)) < key, f"{key} of {name!r} is late"
            self._last[mine] = key

    async def finish(self) -> None:
        """Leaves one consumer, which receives and acknowledges all entries; then no state may be left."""
        while len(self.members) > 1:
            await self.leave(0)
        if not self.members:
            await self.join(0)
        for _ in range(self.published + 5):
            await self.pass_time(10_000)
            await self.slow(0, True)
            await self.flow(0, 1000)
            await self.stage.settle()
            await self.acknowledge(0, 10_000)
            await self.stage.settle()
            if len(self.delivered) == self.published and not self.members[0].held:
                break
        [member] = self.members
        limiter = self.stage.environment.reads_limiter
        assert (limiter.remaining_bytes, limiter.queued) == (limiter.budget_bytes, 0)
        assert len(self.delivered) == self.published, "an entry was never delivered"
        assert member.subscription.cursor.backlog == 0
        dispatcher = member.subscription.dispatcher
        assert isinstance(dispatcher, SharedDispatcher)
        assert (
            dispatcher.consumer_set.unacked,
            len(dispatcher.redelivery.queue),
            dispatcher.redelivery.counts,
        ) == (0, 0, {})
        assert (member.consumer.pending, member.consumer.hashes, member.consumer.unacked) == ({}, {}, 0)


def _key_of(entry: Entry) -> bytes:
    facts = facts_of(entry)
    assert facts is not None
    return facts.key


def _hash(key: bytes) -> int:
    return sticky_hash_of(key)
