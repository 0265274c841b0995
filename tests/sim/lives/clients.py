"""Clients of the topics: producers, consumers, and an administrator who deletes them; they come back to each new broker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.managed_ledger.managed_ledger_info import SHADOW_SOURCE
from broker.service.consumer import Consumer, SubscribeOptions, SubscriptionType
from broker.service.internal_cursors import COMPACTION_CURSOR
from broker.service.namespaces.namespaces import AlreadyExists, NamespaceNotFound
from broker.service.policies.table import OFFLOAD_POLICIES
from broker.service.subscriptions.subscription import Subscription
from broker.service.topics.new_topic import create_shadow
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError, TopicNotFound
from foundation.model.position import EARLIEST
from foundation.model.topic_name import parse_topic_name
from foundation.value import Json
from tests.fakes.messages import message
from tests.fakes.ports import FakeConsumerPort
from tests.sim.lives.broker import SimBroker
from tests.sim.lives.life import Kind, Life, Sent
from tests.sim.lives.sending import Receipts
from tests.sim.metadata import Broken

if TYPE_CHECKING:
    from tests.sim.lives.history import History

PAUSE_S = 1.0
RECEIVER_PERMITS = 1000
LEAKED_ENTRIES = 8
RUN_LENGTHS = (1, 1, 2, 5)
RATE_CHANGES = 0.1
"""Share of a producer's reads before which its topic's publish rate is set."""
OFFLOADING: Json = {
    "managedLedgerOffloadDriver": "aws-s3",
    "managedLedgerOffloadBucket": "sim",
    "managedLedgerOffloadThresholdInSeconds": 0,
    "managedLedgerOffloadDeletionLagInMillis": 4_000,
    # An entry is a piece of its own.
    "managedLedgerOffloadReadBufferSizeInBytes": 20,
}


class Slot:
    """A name that a topic has again and again."""

    def __init__(self, history: History, kind: Kind) -> None:
        self.kind = kind
        self.life: Life | None = None
        """The present one; None before its subscriptions are stored, and after its deletion."""
        self.ends_s = self._draw_end(history)
        self.done = False
        """True when the name is not used any more."""
        self._history = history
        self._numbers = 0

    def _draw_end(self, history: History) -> float:
        return history.loop.time() + history.rng.uniform(10.0, 200.0)

    async def serve(self, broker: SimBroker) -> None:
        """Uses the name as long as the broker lives."""
        while not self.done:
            try:
                if self.life is not None and self.life.ended:
                    await self._delete(broker)
                elif self.life is None:
                    await self._create(broker)
                elif self.kind.leaks and len(self.life.sent) >= LEAKED_ENTRIES:
                    await self._leak(broker)
                else:
                    await self._use(broker, self.life)
            except BrokerError as error:
                self._history.note(f"{self.kind.name}: {type(error).__name__}: {error}")
            await asyncio.sleep(self._history.rng.uniform(0.1, PAUSE_S))

    # From the creation to the deletion

    async def _create(self, broker: SimBroker) -> None:
        kind = self.kind
        life = Life(self._history.next_life(), kind)
        base = parse_topic_name(life.name).base
        with contextlib.suppress(AlreadyExists):
            if not broker.namespaces.tenant_exists("sim"):
                await broker.namespaces.create_tenant(
                    "sim", {"adminRoles": [], "allowedClusters": ["standalone"]}
                )
            if not broker.namespaces.exists(kind.namespace):
                await broker.namespaces.create(kind.namespace, {"bundles": {"numBundles": 4}})
        if kind.partitions and not await broker.registry.partitions.count(base):
            await broker.partitioned.create(base, kind.partitions, None)
        topic = await self._topic(broker, life.name)
        retention: Json = {"retentionTimeInMinutes": kind.keep_minutes, "retentionSizeInMB": -1}
        if kind.keep_minutes:
            await broker.namespaces.set_topic_policy(str(base), "retentionPolicies", retention)
        if kind.tiered:
            policy = OFFLOAD_POLICIES.form
            value = policy.write(policy.read(OFFLOADING))
            await broker.namespaces.set_topic_policy(str(base), OFFLOAD_POLICIES.topic_name, value)
            await broker.registry.topic_changed(str(base))
        if kind.ttl_s:
            await broker.namespaces.set_topic_policy(str(base), "messageTTLInSeconds", kind.ttl_s)
        if kind.shadowed:
            shadow = parse_topic_name(f"{life.name}-shadow")
            if not await broker.registry.exists(shadow):
                await create_shadow(broker.registry, shadow, {SHADOW_SOURCE: life.name})
        for name in kind.subscriptions:
            its_topic = await self._topic(broker, life.name_for(name))
            if name not in its_topic.subscriptions:
                await its_topic.subscribing.create(name, EARLIEST, {})
        if kind.keys:
            # As a first compaction does: without this cursor the log is trimmed as that of any other topic.
            await topic.subscribing.own_cursor(COMPACTION_CURSOR)
        self.life = life
        self._history.lives.append(life)
        self._history.note(f"{life.name} begins as life {life.number}")

    async def _topic(self, broker: SimBroker, name: str) -> PersistentTopic:
        topic = await broker.registry.get(parse_topic_name(name), create=True)
        assert isinstance(topic, PersistentTopic)
        return topic

    async def _delete(self, broker: SimBroker) -> None:
        life = self.life
        assert life is not None
        name = parse_topic_name(life.name).base
        certain = True
        try:
            if self.kind.namespace != "sim/lives":
                await broker.deletions.namespace(self.kind.namespace, force=True)
            elif self.kind.partitions:
                await broker.partitioned.delete(name, force=True)
            else:
                if self.kind.shadowed:
                    with contextlib.suppress(TopicNotFound):
                        await broker.deletions.topic(parse_topic_name(f"{name}-shadow"), force=True)
                await broker.deletions.topic(name, force=True)
        except (TopicNotFound, NamespaceNotFound):
            # An earlier request has decided it, and its answer was lost.
            certain = False
        if certain:
            await self._history.check_gone(life)
        self._history.counts.deleted += 1
        self._history.note(f"{name} is deleted")
        self.life = None
        self.ends_s = self._draw_end(self._history)

    async def _leak(self, broker: SimBroker) -> None:
        """Closes the topic; then somebody removes the node with its list."""
        life = self.life
        assert life is not None
        name = parse_topic_name(life.name)
        if str(name) in broker.registry.topics:
            await broker.registry.unload(name)
        # Its record would outlive the node.
        broker.registry.dormant.drop(str(name))
        if not await self._history.all_closed({ledger_id for ledger_id, _ in life.positions}):
            await self._topic(broker, life.name)
            return
        await self._history.lose_list(life)
        self.done = True

    # Messages

    async def _use(self, broker: SimBroker, life: Life) -> None:
        history = self._history
        topic = await self._topic(broker, life.name)
        port = Receipts(history, life, topic, broker.client)
        await topic.add_producer(port.producer)
        consumers = [
            await Reading.begin(history, await self._topic(broker, life.name_for(name)), life, name)
            for name in self.kind.subscriptions
        ]
        try:
            await self._work(broker, life, topic, port, consumers)
        finally:
            for reading in consumers:
                reading.leave()
            await port.leave()

    async def _work(
        self,
        broker: SimBroker,
        life: Life,
        topic: PersistentTopic,
        port: Receipts,
        consumers: Sequence[Reading],
    ) -> None:
        history = self._history
        while not (port.closed or topic.closed or any("closed" in one.port.events for one in consumers)):
            if history.loop.time() > self.ends_s and not self.kind.leaks:
                life.ended = True
                history.note(f"{life.name} is to be deleted")
                return
            if self.kind.leaks and len(life.sent) >= LEAKED_ENTRIES:
                return
            # A client whose connection is not read waits.
            if port.is_read:
                self._send_run(life, port, history.rng.choice(RUN_LENGTHS))
            if self.kind.rates and history.rates.random() < RATE_CHANGES:
                await self._change_rate(broker, life, port)
            for reading in consumers:
                reading.acknowledge()
            await asyncio.sleep(history.rng.expovariate(1 / PAUSE_S))

    async def _change_rate(self, broker: SimBroker, life: Life, port: Receipts) -> None:
        """Sets another publish rate, or the same one again."""
        rate = self._history.rates.choice(self.kind.rates)
        value: Json = {"publishThrottlingRateInMsg": rate, "publishThrottlingRateInByte": -1}
        base = str(parse_topic_name(life.name).base)
        port.rate_changes()
        life.rate_in_doubt = True
        await broker.namespaces.set_topic_policy(base, "publishRate", value)
        await broker.registry.topic_changed(base)
        life.rate_in_doubt = False
        port.rate_holds(rate)
        self._history.counts.rates_changed += 1

    def _send_run(self, life: Life, port: Receipts, length: int) -> None:
        """Sends messages as one read of a connection brings them."""
        history = self._history
        first = self._numbers + 1
        self._numbers += length
        bodies = []
        for number in range(first, first + length):
            body = b"#%d:%d" % (life.number, number)
            port.asked[number] = Sent(body, history.loop.time())
            bodies.append(message(body, key=life.key_of(number), at_ms=history.clock.now_ms()))
        port.send(first, bodies)


class Reading:
    """A consumer of one subscription, which acknowledges most of what it gets."""

    def __init__(
        self,
        history: History,
        life: Life,
        subscription: Subscription,
        consumer: Consumer,
        port: FakeConsumerPort,
    ) -> None:
        self._history = history
        self._life = life
        self._subscription = subscription
        self._consumer = consumer
        self.port = port
        self._looked = 0
        self._acked: set[tuple[int, int]] = set()
        """Entries that this consumer has acknowledged."""

    @classmethod
    async def begin(
        cls, history: History, topic: PersistentTopic, life: Life, name: str, *, compacted: bool = False
    ) -> Reading:
        """`compacted`: a reader of the compacted view, from its first message on."""
        port = FakeConsumerPort()
        number = history.next_life()
        options = SubscribeOptions(
            subscription=name,
            kind=SubscriptionType.EXCLUSIVE if compacted else SubscriptionType.SHARED,
            consumer_id=number,
            consumer_name=f"c{number}",
            earliest=True,
            durable=not compacted,
            read_compacted=compacted,
            start=EARLIEST if compacted else None,
        )
        subscription, consumer = await topic.subscribe(port, options)
        subscription.flow(consumer, RECEIVER_PERMITS)
        return cls(history, life, subscription, consumer, port)

    def received(self) -> Sequence[Entry]:
        """Returns what has come since the last call; a message of another life is an error."""
        new = self.port.got[self._looked :]
        self._looked = len(self.port.got)
        for entry in new:
            body = b"#" + bytes(entry.body).rpartition(b"#")[2]
            if not body.startswith(b"#%d:" % self._life.number):
                raise Broken(f"{self._life.name}, life {self._life.number}, gets {body!r}")
            if (entry.ledger_id, entry.entry_id) in self._acked:
                raise Broken(f"{self._life.name}: {body!r} is acknowledged and comes again to its consumer")
        return new

    def leave(self) -> None:
        """Disconnects."""
        self._subscription.remove_consumer(self._consumer)

    def acknowledge(self) -> None:
        """Acknowledges some of what has come."""
        name, life = self._subscription.name, self._life
        if name in life.kind.never_acks:
            self.received()
            return
        share = 0.7 if life.kind.ttl_s else 0.95
        keys = [
            (one.ledger_id, one.entry_id) for one in self.received() if self._history.rng.random() < share
        ]
        for key in keys:
            if (number := life.positions.get(key)) is not None:
                life.sent[number].acked.add(name)
        if keys:
            self._subscription.acknowledge(self._consumer, keys)
            self._acked.update(keys)
