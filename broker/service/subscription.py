"""Subscription: a named cursor on a topic, its consumers, and the dispatcher between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from broker.loop.turn import Turn
from broker.managed_ledger.managed_cursor import ManagedCursor
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.model.entry import Entry
from broker.model.errors import BrokerError, ConsumerBusy, MetadataError
from broker.model.position import EARLIEST, Position
from broker.model.topic_name import TopicName
from broker.service.consumer import Consumer, SubscribeOptions, SubscriptionType
from broker.service.dispatcher import CallLater, messages_left
from broker.service.key_shared_dispatcher import KeySharedDispatcher
from broker.service.settings import ServiceSettings
from broker.service.shared_dispatcher import SharedDispatcher
from broker.service.single_active_dispatcher import SingleActiveDispatcher

READER_RETURNS_SECONDS = 60.0
"""How long a reader's cursor that was reset waits for the reader to subscribe again."""

AnyDispatcher = SingleActiveDispatcher | SharedDispatcher


class SubscribedTopic(Protocol):
    """The topic, as its subscriptions know it."""

    name: TopicName
    settings: ServiceSettings
    turn: Turn
    ledger: ManagedLedger
    handed_over: Callable[[Iterable[Entry]], None]

    def limit(self, policy: str, setting: str) -> int: ...

    def acknowledged(self, subscription: Subscription) -> None: ...

    def forget_subscription(self, subscription: Subscription) -> None: ...

    async def newest_before(self, timestamp_ms: int) -> Position | None: ...

    def known_last_message(self) -> tuple[Position, int] | None: ...

    async def last_message(self) -> tuple[Position, int]: ...

    async def unsubscribe(
        self, subscription: Subscription, consumer: Consumer | None, *, force: bool
    ) -> None: ...


class Subscription:
    __slots__ = (
        "_call_later",
        "cursor",
        "dispatcher",
        "durable",
        "kind",
        "name",
        "resetting",
        "retired_acked",
        "retired_bytes_out",
        "retired_messages_out",
        "retired_redelivered",
        "topic",
    )

    def __init__(
        self, topic: SubscribedTopic, name: str, cursor: ManagedCursor, *, call_later: CallLater
    ) -> None:
        self.topic = topic
        self.name = name
        self.cursor = cursor
        self.durable = cursor.durable
        self.kind = SubscriptionType.EXCLUSIVE
        self.dispatcher: AnyDispatcher | None = None
        self.resetting = False
        self.retired_messages_out = 0
        """What consumers that have left were sent; with those that are here, the subscription's counters."""
        self.retired_bytes_out = 0
        self.retired_redelivered = 0
        self.retired_acked = 0
        self._call_later = call_later

    @property
    def consumers(self) -> list[Consumer]:
        return [] if self.dispatcher is None else self.dispatcher.consumers

    # Consumers

    def add_consumer(self, consumer: Consumer) -> None:
        """ConsumerBusy: another consumer excludes this one. ConsumerAssignError: its hash ranges do not fit."""
        options = consumer.options
        self._check(options)
        if self.dispatcher is None or not self.consumers:
            self._renew_dispatcher(options)
        assert self.dispatcher is not None
        self.cursor.activate()
        try:
            self.dispatcher.add_consumer(consumer)
        except BrokerError:
            self._leave_if_empty()
            raise

    def _check(self, options: SubscribeOptions) -> None:
        if self.resetting:
            raise ConsumerBusy(f"Subscription {self.name} is being reset; try again")
        if self.consumers and options.kind is not self.kind:
            raise ConsumerBusy(
                f"Subscription is of different type: {self.kind.label} is connected, {options.kind.label} was asked for"
            )
        if self.consumers and self.kind is SubscriptionType.EXCLUSIVE:
            raise ConsumerBusy("Exclusive consumer is already connected")
        limit = self.topic.limit("max_consumers_per_subscription", "consumers_max_per_subscription")
        if limit and len(self.consumers) >= limit:
            raise ConsumerBusy(f"Subscription {self.name} reached max consumers limit: {limit}")

    def _renew_dispatcher(self, options: SubscribeOptions) -> None:
        """The type of the first consumer is the type of the subscription until the last one leaves."""
        topic = self.topic
        before = self.dispatcher
        self.kind = options.kind
        common = {
            "topic_name": str(topic.name),
            "settings": topic.settings,
            "turn": topic.turn,
            "call_later": self._call_later,
            "handed_over": topic.handed_over,
        }
        if self.kind is SubscriptionType.SHARED:
            self.dispatcher = SharedDispatcher(self.cursor, **common)
        elif self.kind is SubscriptionType.KEY_SHARED:
            self.dispatcher = KeySharedDispatcher(self.cursor, meta=options.key_shared, **common)
        else:
            self.dispatcher = SingleActiveDispatcher(
                self.cursor, kind=self.kind, partition=topic.name.partition, **common
            )
        if before is not None:
            before.retire(self.dispatcher)

    def remove_consumer(self, consumer: Consumer) -> None:
        if consumer not in self.consumers:
            return
        assert self.dispatcher is not None
        self.retired_messages_out += consumer.messages_out
        self.retired_bytes_out += consumer.bytes_out
        self.retired_redelivered += consumer.messages_redelivered
        self.retired_acked += consumer.acked_messages
        self.dispatcher.remove_consumer(consumer)
        self._leave_if_empty()

    def _leave_if_empty(self) -> None:
        if not self.consumers:
            self.cursor.deactivate()
            self.cursor.rewind()  # What was read and not taken is given back.
            if not self.durable and not self.resetting:
                self.topic.forget_subscription(self)

    def flow(self, consumer: Consumer, permits: int) -> None:
        consumer.permits += permits
        if self.dispatcher is not None:
            self.dispatcher.wake()

    # Acknowledgements

    def acknowledge(self, consumer: Consumer, keys: Sequence[tuple[int, int]]) -> None:
        """Whole entries, one by one."""
        self.cursor.acknowledge(keys)
        dispatcher = self.dispatcher
        if isinstance(dispatcher, SharedDispatcher):
            for key in keys:
                dispatcher.settled(consumer, key)
        self._acknowledged(consumer, len(keys))

    def acknowledge_batch(
        self, consumer: Consumer, position: Position, ack_set: Sequence[int], batch_size: int
    ) -> None:
        """Some messages of a batch; set bits are those still to come (PIP-54)."""
        if not self.topic.settings.batch_index_acks:
            return
        self.cursor.acknowledge_batch(position, ack_set, batch_size)
        dispatcher = self.dispatcher
        if isinstance(dispatcher, SharedDispatcher):
            if self.cursor.acks.is_acknowledged(position):
                dispatcher.settled(consumer, position)
            elif left := messages_left(self.cursor.acks.ack_set_of(position) or ()):
                dispatcher.settled(consumer, position, left)
        self._acknowledged(consumer, 1)

    def acknowledge_cumulative(
        self, consumer: Consumer, position: Position, ack_set: Sequence[int] | None
    ) -> None:
        """Everything up to `position`. Without meaning on a shared subscription, where it is ignored as Pulsar does."""
        if isinstance(self.dispatcher, SharedDispatcher):
            return
        self.cursor.acknowledge_cumulative(
            position, ack_set if self.topic.settings.batch_index_acks else None
        )
        self._acknowledged(consumer, 1)

    def when_kept(self, callback: Callable[[], None]) -> None:
        """Call back when the acknowledgements so far are durable; at once where snapshots are throttled
        (`managedLedgerDefaultMarkDeleteRateLimit` above 0), as Pulsar does."""
        if self.topic.ledger.context.settings.mark_delete_rate > 0:
            callback()
        else:
            self.cursor.store.on_durable(callback)

    def _acknowledged(self, consumer: Consumer, count: int) -> None:
        consumer.acked_messages += count
        if self.dispatcher is not None and self.cursor.ledger.is_terminated:
            self.dispatcher.acknowledged()
        self.topic.acknowledged(self)

    # Redelivery and position

    def redeliver(
        self, consumer: Consumer, keys: Iterable[tuple[int, int]] | None, epoch: int | None
    ) -> None:
        """None = all. A higher consumer epoch marks what is sent from now on (PIP-84)."""
        if epoch is not None and consumer.epoch is not None and epoch > consumer.epoch:
            consumer.epoch = epoch
            consumer.port.renew_epoch(epoch)
        if isinstance(self.dispatcher, SharedDispatcher):
            self.dispatcher.redeliver(consumer, keys)
        elif self.dispatcher is not None:
            self.dispatcher.redeliver(consumer)

    async def seek(self, position: Position, ack_set: Sequence[int] = ()) -> None:
        """Next to be delivered is `position` (or what follows it). All consumers must subscribe again."""
        await self._reset(lambda: position, ack_set)

    async def seek_time(self, timestamp_ms: int) -> None:
        """Next is the first entry whose broker timestamp, else publish time, is not before `timestamp_ms`."""
        newest = await self.topic.newest_before(timestamp_ms)
        ledger = self.topic.ledger
        await self._reset(lambda: EARLIEST if newest is None else ledger.ledgers.next_valid(newest), ())

    async def _reset(self, target: Callable[[], Position], ack_set: Sequence[int]) -> None:
        if self.resetting:
            raise MetadataError(f"Subscription {self.name} is being reset already")
        self.resetting = True
        try:
            self.disconnect()
            position = target()
            await self.cursor.reset(position)
            if any(ack_set):
                self.cursor.acknowledge_batch(position, ack_set, 0)
        finally:
            self.resetting = False
            if not self.durable:
                self._call_later(READER_RETURNS_SECONDS, self._leave_if_empty)

    def disconnect(self) -> None:
        """Every consumer must look the topic up and subscribe again."""
        for consumer in list(self.consumers):
            consumer.port.closed_by_broker()
            self.remove_consumer(consumer)

    def close(self) -> None:
        """Nothing is dispatched any more. The cursor is closed or deleted with its log."""
        self.disconnect()
        if self.dispatcher is not None:
            self.dispatcher.closed = True
