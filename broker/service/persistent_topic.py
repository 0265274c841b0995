"""PersistentTopic: a managed ledger with producers in front and subscriptions behind it.

Down: a producer's message becomes an entry of the ledger. Up: entries that were confirmed come back in one run per turn,
become receipts, and wake the dispatchers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.loop.turn import Turn
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.model.entry import Buffer, Entry
from broker.model.errors import (
    BrokerError,
    ConsumerBusy,
    LedgerFenced,
    MetadataError,
    NotAllowed,
    PersistenceError,
    ServiceNotReady,
    SubscriptionNotFound,
)
from broker.model.position import EARLIEST, LATEST, Position
from broker.model.topic_name import TopicName
from broker.service.consumer import Consumer, SubscribeOptions, SubscriptionType
from broker.service.deduplication import Deduplication, Verdict
from broker.service.deduplication_cursor import DEDUPLICATION_CURSOR, load_deduplication
from broker.service.dispatcher import CallLater, facts_of
from broker.service.ports import ConsumerPort
from broker.service.producer import Producer
from broker.service.settings import ServiceSettings
from broker.service.subscription import Subscription
from broker.service.topic import EncryptionRequired, Topic
from protocol.broker_entry_metadata import decode
from protocol.message_metadata import read_facts

if TYPE_CHECKING:
    from broker.service.namespaces import Namespaces

_Context = tuple[Producer, int, int, int]
"""(producer, sequence id, highest sequence id, bytes)"""

_EPOCH_PROPERTY = "topicEpoch"


class PersistentTopic(Topic):
    __slots__ = (
        "_call_later",
        "_last_message",
        "_opening",
        "deduplication",
        "handed_over",
        "ledger",
        "on_fenced",
        "subscriptions",
        "turn",
    )

    def __init__(
        self,
        name: TopicName,
        ledger: ManagedLedger,
        settings: ServiceSettings,
        namespaces: Namespaces,
        *,
        turn: Turn,
        call_later: CallLater,
    ) -> None:
        super().__init__(name, settings, namespaces)
        self.ledger = ledger
        self.turn = turn
        self.handed_over = ledger.ground.caches.delivered
        self.subscriptions: dict[str, Subscription] = {}
        self.deduplication: Deduplication | None = None
        self.on_fenced: Callable[[], None] | None = None
        """Another broker has taken the log over: only opening the topic again can help."""
        self._call_later = call_later
        self._opening = asyncio.Lock()
        self._last_message = (EARLIEST, -1)
        """The answer to whoever asked last. Followers of many topics ask again and again."""
        ledger.listener = self  # type: ignore[assignment]  # Contexts come back as they were given.
        for cursor_name, cursor in ledger.cursors.items():
            if cursor_name != DEDUPLICATION_CURSOR:
                self.subscriptions[cursor_name] = Subscription(
                    self, cursor_name, cursor, call_later=call_later
                )
        epoch = ledger.properties.get(_EPOCH_PROPERTY)
        self.access.epoch = None if epoch is None else int(epoch)

    @property
    def is_terminated(self) -> bool:
        return self.ledger.is_terminated

    def reconfigure(self, settings: ServiceSettings) -> None:
        super().reconfigure(settings)
        for subscription in self.subscriptions.values():
            if subscription.dispatcher is not None:
                subscription.dispatcher.reconfigure(settings)

    async def keep_epoch(self) -> None:
        await self.ledger.set_property(_EPOCH_PROPERTY, str(self.access.epoch))

    # Publishing

    def publish(
        self,
        producer: Producer,
        sequence_id: int,
        highest_sequence_id: int,
        messages: int,
        body: Buffer,
        chunk: bool,
    ) -> None:
        if self.closed:
            raise ServiceNotReady(f"Topic {self.name} is being closed")
        if producer.encrypted and self.encryption_required and not read_facts(body).encrypted:
            raise EncryptionRequired("Messages must be encrypted")
        size = len(body)
        if self.deduplication is not None and not self._is_new(
            producer, sequence_id, highest_sequence_id, body, size, chunk
        ):
            return
        self.entries_in += 1
        self.messages_in += messages
        self.bytes_in += size
        try:
            self.ledger.add(body, messages, (producer, sequence_id, highest_sequence_id, size))
        except LedgerFenced:
            self._fenced()
            raise

    def _is_new(
        self, producer: Producer, sequence_id: int, highest: int, body: Buffer, size: int, chunk: bool
    ) -> bool:
        assert self.deduplication is not None
        last_chunk = True
        if chunk:
            facts = read_facts(body)
            last_chunk = facts.chunk >= facts.chunks - 1
        verdict = self.deduplication.judge(producer.name, sequence_id, highest, last_chunk=last_chunk)
        if verdict is Verdict.NEW:
            return True
        if verdict is Verdict.UNKNOWN:
            raise PersistenceError("Cannot determine whether the message is a duplicate at this time")
        producer.port.receipt(sequence_id, highest, -1, -1, size)
        return False

    def entries_added(self, entries: list[Entry], contexts: list[_Context], now_ns: int) -> None:
        """The ledger has confirmed these, in order."""
        for entry, (producer, sequence_id, highest, size) in zip(entries, contexts, strict=True):
            producer.port.receipt(sequence_id, highest, entry.ledger_id, entry.entry_id, size)
        if self.deduplication is not None:
            self._note_stored(entries, contexts)
        for subscription in self.subscriptions.values():
            if subscription.dispatcher is not None:
                subscription.dispatcher.wake()

    def _note_stored(self, entries: list[Entry], contexts: list[_Context]) -> None:
        assert self.deduplication is not None
        for entry, (producer, sequence_id, highest, _) in zip(entries, contexts, strict=True):
            facts = facts_of(entry)
            if facts is None or facts.chunk >= facts.chunks - 1:
                self.deduplication.stored(producer.name, sequence_id, highest)
        if self.deduplication.entries_since_snapshot >= self.settings.deduplication_snapshot_entries:
            self._keep_deduplication(entries[-1].position)

    def _keep_deduplication(self, through: Position) -> None:
        assert self.deduplication is not None
        self.deduplication.forget(set(self.access.producers))
        cursor = self.ledger.cursors[DEDUPLICATION_CURSOR]
        cursor.acknowledge_cumulative(through, properties=self.deduplication.snapshot())

    def add_failed(self, contexts: list[_Context], error: BrokerError) -> None:
        """Every producer has to come back and send again from the first message without a receipt: what it has
        sent behind the failed one must not be stored before it."""
        if self.deduplication is not None:
            self.deduplication.failed()
        for producer, sequence_id, _, size in contexts:
            producer.port.refused(sequence_id, size, error)
        self.disconnect_producers()
        if isinstance(error, LedgerFenced):
            self._fenced()

    def _fenced(self) -> None:
        if self.on_fenced is not None:
            self.on_fenced()

    def last_sequence_id(self, producer_name: str) -> int:
        return -1 if self.deduplication is None else self.deduplication.last_sequence_id(producer_name)

    async def set_deduplication(self, enabled: bool) -> None:
        """Follow the broker's setting or the namespace's policy; safe to repeat."""
        if enabled and self.deduplication is None:
            self.deduplication = await load_deduplication(self.ledger, self.settings)
        elif not enabled:
            self.deduplication = None
            await self.ledger.delete_cursor(DEDUPLICATION_CURSOR)

    # Subscriptions

    def consumers_of(self, subscription: str) -> list[Consumer]:
        found = self.subscriptions.get(subscription)
        return [] if found is None else found.consumers

    async def subscribe(self, port: ConsumerPort, options: SubscribeOptions) -> tuple[Subscription, Consumer]:
        """ConsumerBusy, NotAllowed, SubscriptionNotFound as Pulsar answers them."""
        if options.read_compacted and options.kind not in (
            SubscriptionType.EXCLUSIVE,
            SubscriptionType.FAILOVER,
        ):
            raise NotAllowed("readCompacted only allowed on failover or exclusive subscriptions")
        limit = self.limit("max_consumers_per_topic", "consumers_max_per_topic")
        if limit and sum(len(s.consumers) for s in self.subscriptions.values()) >= limit:
            raise ConsumerBusy(f"Topic '{self.name}' reached max consumers limit")
        async with self._opening:
            self._check_open()
            subscription = self.subscriptions.get(options.subscription)
            if subscription is None:
                subscription = await self._create_subscription(options)
            elif subscription.durable != options.durable:
                kind = "Durable" if subscription.durable else "NonDurable"
                raise NotAllowed(f"{kind} subscription with the same name already exists.")
            consumer = Consumer(port, options)
            subscription.add_consumer(consumer)
            return subscription, consumer

    def _check_open(self) -> None:
        if self.closed:
            raise ServiceNotReady(f"Topic {self.name} is being closed; look it up again")

    async def _create_subscription(self, options: SubscribeOptions) -> Subscription:
        name = options.subscription
        if name == DEDUPLICATION_CURSOR:
            raise NotAllowed(f"Subscription name {name} is the broker's own")
        limit = self.limit("max_subscriptions_per_topic", "subscriptions_max")
        if limit and len(self.subscriptions) >= limit:
            raise NotAllowed(f"Exceed the maximum number of subscriptions of the topic: {self.name}")
        if options.durable:
            if not self._may_create_subscription():
                raise SubscriptionNotFound(f"Subscription {name} does not exist and may not be created")
            start = await self._start(options, EARLIEST if options.earliest else LATEST)
            cursor = await self.ledger.open_cursor(name, start)
        else:
            default = EARLIEST if options.earliest else LATEST
            start = await self._start(options, options.start or default)
            cursor = self.ledger.new_non_durable_cursor(name, start)
        subscription = Subscription(self, name, cursor, call_later=self._call_later)
        self.subscriptions[name] = subscription
        return subscription

    def _may_create_subscription(self) -> bool:
        policy = self.namespaces.policy(self.name.namespace, "autoSubscriptionCreationOverride")
        if isinstance(policy, dict):
            return policy.get("allowAutoSubscriptionCreation") is True
        return self.settings.auto_subscription_creation

    async def _start(self, options: SubscribeOptions, default: Position) -> Position:
        if not options.rollback_ms:
            return default
        newest = await self.newest_before(self.ledger.ground.wall_ms() - options.rollback_ms)
        return EARLIEST if newest is None else self.ledger.next_valid(newest)

    async def create_subscription(self, name: str, initial: Position) -> Subscription:
        """A subscription without a consumer. ConsumerBusy when the name is taken."""
        async with self._opening:
            self._check_open()
            if name in self.subscriptions or name == DEDUPLICATION_CURSOR:
                raise ConsumerBusy(f"Subscription {name} already exists on topic {self.name}")
            cursor = await self.ledger.open_cursor(name, initial)
            subscription = Subscription(self, name, cursor, call_later=self._call_later)
            self.subscriptions[name] = subscription
            return subscription

    async def unsubscribe(
        self, subscription: Subscription, consumer: Consumer | None, *, force: bool
    ) -> None:
        """Delete the subscription. MetadataError while other consumers are connected, unless forced."""
        others = [other for other in subscription.consumers if other is not consumer]
        if others and not force:
            raise MetadataError("Unconnected or shared consumer attempting to unsubscribe")
        async with self._opening:
            if consumer is not None:
                subscription.remove_consumer(consumer)
            subscription.close()
            if not subscription.durable:
                self.forget_subscription(subscription)
            elif self.subscriptions.get(subscription.name) is subscription:
                await self.ledger.delete_cursor(subscription.name)
                del self.subscriptions[subscription.name]

    def forget_subscription(self, subscription: Subscription) -> None:
        """A non-durable subscription lost its last consumer."""
        if self.subscriptions.get(subscription.name) is subscription:
            del self.subscriptions[subscription.name]
            self.ledger.drop_non_durable_cursor(subscription.cursor)

    def acknowledged(self, subscription: Subscription) -> None:
        """A place for what follows the slowest acknowledgement: trimming."""

    # Positions

    async def newest_before(self, timestamp_ms: int) -> Position | None:
        """The newest entry that the broker took, or else its client sent, before the time (PIP-70)."""

        def older(entry: Entry) -> bool:
            stamped = decode(entry.header).broker_timestamp_ms
            if stamped is not None:
                return stamped < timestamp_ms
            facts = facts_of(entry)
            return facts is not None and facts.publish_time_ms < timestamp_ms

        return await self.ledger.find_newest(older)

    def known_last_message(self) -> tuple[Position, int] | None:
        """As `last_message`; None while its entry has to be read first."""
        last = self.ledger.last_confirmed
        if last.entry_id < 0:
            return EARLIEST, -1
        return self._last_message if self._last_message[0] == last else None

    async def last_message(self) -> tuple[Position, int]:
        """(last entry, index of its last message in the batch or -1); an empty topic has (EARLIEST, -1)."""
        known = self.known_last_message()
        if known is not None:
            return known
        last = self.ledger.last_confirmed
        facts = facts_of(await self.ledger.read_entry(last))
        self._last_message = last, -1 if facts is None or not facts.batched else facts.messages - 1
        return self._last_message

    # Life

    async def terminate(self) -> Position:
        last = await self.ledger.terminate()
        self.disconnect_producers()
        for subscription in self.subscriptions.values():
            if subscription.dispatcher is not None:
                subscription.dispatcher.wake()
        return last

    async def disconnect(self) -> None:
        self.closed = True
        self.disconnect_producers()
        async with self._opening:  # A subscription that is being made gets ready first and is closed then.
            for subscription in list(self.subscriptions.values()):
                subscription.close()

    async def close(self) -> None:
        await self.disconnect()
        await self.ledger.close()

    async def delete(self) -> None:
        await self.disconnect()
        await self.ledger.delete()
