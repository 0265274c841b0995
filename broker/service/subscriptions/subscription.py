"""Subscription: a named cursor on a persistent topic, its consumers, and the dispatcher between them.

The first consumer's type chooses the dispatcher. Acknowledgements go to the cursor first, then to the dispatcher, which
tracks pending entries (Shared, Key_Shared).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from broker.managed_ledger.managed_cursor import ManagedCursor
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.service.compaction.topic_compaction import TopicCompaction
from broker.service.consumer import Consumer, SubscribeOptions, SubscriptionType
from broker.service.entry_facts import messages_left
from broker.service.internal_cursors import COMPACTION_CURSOR
from broker.service.limits.broker_limits import TopicRateLimits
from broker.service.limits.dispatch_limit import DispatchLimit
from broker.service.policies.effective_policies import EffectivePolicies
from broker.service.policies.table import MAX_CONSUMERS_PER_SUBSCRIPTION
from broker.service.settings import ServiceSettings
from broker.service.subscriptions.backlog.evictions import NONE_EXPIRED
from broker.service.subscriptions.delayed_delivery import DelayedDelivery
from broker.service.subscriptions.dispatch.dispatcher import DispatchContext
from broker.service.subscriptions.dispatch.shared_dispatcher import SharedDispatcher
from broker.service.subscriptions.dispatch.single_active_dispatcher import SingleActiveDispatcher
from broker.service.subscriptions.hole_watch import HoleWatch
from broker.service.subscriptions.topic_positions import TopicPositions
from broker.service.successor import MayMove
from broker.service.transactions.subscription_transactions import (
    SubscriptionTransactions,
    replaced_properties,
    shown_properties,
)
from broker.service.transactions.topic_transactions import TopicTransactions
from foundation.loop.clock import CallLater
from foundation.loop.turn import Turn
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError, ConsumerBusy, MetadataError, NotAllowed
from foundation.model.position import Position
from foundation.model.range_set import EntryRange
from foundation.model.topic_name import TopicName

REPLICATED: Final = "pulsar.replicated.subscription"
"""Pulsar's name of the number that a replicated subscription keeps with its position."""

END_TOLD_AFTER_SECONDS: Final = 1.0
"""Time until a consumer that joins a terminated topic may be told of the end."""

READER_RETURNS_SECONDS = 60.0
"""Time that a reader's cursor is kept after a seek, until the reader subscribes again."""

AnyDispatcher = SingleActiveDispatcher | SharedDispatcher
"""One of the two dispatchers; the type of the first consumer chooses."""


class SubscriptionOwner(Protocol):
    """The collection that a subscription belongs to (`TopicSubscriptions`)."""

    async def delete(self, subscription: Subscription, consumer: Consumer | None, *, force: bool) -> None:
        """Deletes the subscription; see `TopicSubscriptions.delete`."""

    def forget(self, subscription: Subscription) -> None:
        """Drops a non-durable subscription without consumers."""


class Expiry(Protocol):
    """Acknowledges messages that are too old (`MessageExpiry`)."""

    async def expire(self, subscription: Subscription, before_ms: int) -> int:
        """Acknowledges messages older than the time, as `MessageExpiry.expire` does."""


class SubscribedTopic(MayMove, Protocol):
    """The topic, as far as its subscriptions use it."""

    name: TopicName
    """Full name."""
    settings: ServiceSettings
    """Current values."""
    dispatch_settings: ServiceSettings
    """The same for dispatchers, with the topic's own limits in them."""
    turn: Turn
    """Runs dispatchers at the end of the loop turn."""
    ledger: ManagedLedger
    """The topic's log."""
    mark_delivered: Callable[[Iterable[Entry]], None]
    """Lowers the expected reads of delivered entries in the entry cache."""
    policies: EffectivePolicies
    """Limits and permissions."""
    rates: TopicRateLimits
    """Rates of publishing, delivering and subscribing."""
    delays: DelayedDelivery
    """Messages that wait for their delivery time."""
    positions: TopicPositions
    """Entries by time, and the last message."""
    transactions: TopicTransactions
    """Transactions that publish to the topic or acknowledge on it."""
    compaction: TopicCompaction
    """The compacted ledger, for consumers with `readCompacted`."""

    @property
    def subscribing(self) -> SubscriptionOwner:
        """The collection that the subscription belongs to."""

    @property
    def expiry(self) -> Expiry:
        """Acknowledges messages that are too old."""

    def check_open(self) -> None:
        """Raises ServiceNotReady while the topic is being closed."""

    def check_type(self, kind: SubscriptionType) -> None:
        """Raises NotAllowed for a subscription type that is forbidden."""


class Subscription:
    """A cursor with consumers; lives as long as its cursor, and keeps its counters when consumers leave."""

    __slots__ = (
        "_call_later",
        "cursor",
        "dispatch_limit",
        "dispatcher",
        "durable",
        "expired",
        "holes",
        "kind",
        "left_at_ns",
        "name",
        "resetting",
        "retired_bytes_out",
        "retired_flow_ms",
        "retired_messages_out",
        "retired_redelivered",
        "topic",
        "transactional",
    )

    def __init__(
        self, topic: SubscribedTopic, name: str, cursor: ManagedCursor, *, call_later: CallLater
    ) -> None:
        self.topic = topic
        """The topic that is subscribed to."""
        self.name = name
        """Unique within the topic."""
        self.cursor = cursor
        """Read position and acknowledgements."""
        self.durable = cursor.durable
        """False for a reader's subscription, which ends with its consumer."""
        self.kind = SubscriptionType.EXCLUSIVE
        """Type of the connected consumers, or of the last one that left."""
        self.dispatcher: AnyDispatcher | None = None
        """None until the first consumer joins; it stays when the last one leaves."""
        self.dispatch_limit: DispatchLimit | None = None
        """The subscription's own delivery rate; None until a policy sets one."""
        self.left_at_ns = cursor.context.environment.now_ns()
        """When the last consumer left, or when the subscription was opened; monotonic."""
        self.resetting = False
        """True while a seek moves the cursor; no consumer can join meanwhile."""
        self.expired = NONE_EXPIRED
        """Counts of expired entries, replaced by each expiry."""
        self.holes: HoleWatch | None = None
        """Looks for forgotten entries; None before the first look that found a consumer of a shared type."""
        self.retired_messages_out = 0
        """Messages delivered to consumers that left; with those of connected ones, the subscription's count."""
        self.retired_bytes_out = 0
        """Bytes delivered to consumers that left."""
        self.retired_flow_ms = 0
        """Wall clock of the last FLOW of consumers that left; 0 = none came."""
        self.retired_redelivered = 0
        """Messages delivered again to consumers that left."""
        self.transactional: SubscriptionTransactions | None = None
        """Acknowledgements of open transactions; None before the first one."""
        self._call_later = call_later
        cursor.context.note_change()

    @property
    def consumers(self) -> list[Consumer]:
        """Connected consumers; [] before the first one."""
        return [] if self.dispatcher is None else self.dispatcher.consumers

    @property
    def delayed(self) -> int:
        """Number of unacknowledged entries that wait for their delivery time; 0 for types that deliver at once."""
        if self.kind not in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED):
            return 0
        acks = self.cursor.acks
        return self.topic.delays.held.count_after(acks.ledger_id, acks.entry_id, acks.beyond)

    @property
    def delayed_index_bytes(self) -> int:
        """Memory of the topic's index of delayed entries, which its subscriptions share; 0 for other types."""
        if self.kind not in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED):
            return 0
        return self.topic.delays.entries.size_bytes

    @property
    def waiting_for_redelivery(self) -> int:
        """Entries in the redelivery queue; 0 for Exclusive and Failover, which rewind the cursor instead."""
        dispatcher = self.dispatcher
        return len(dispatcher.redelivery.queue) if isinstance(dispatcher, SharedDispatcher) else 0

    # Properties

    @property
    def properties(self) -> Mapping[str, str]:
        """Text that its first consumer or an administrator gave."""
        return shown_properties(self.cursor.store.cursor_properties)

    @property
    def replicated(self) -> bool:
        """True when a consumer asked to replicate its position to other clusters."""
        return REPLICATED in self.cursor.acks.properties

    async def keep_properties(self, properties: Mapping[str, str]) -> None:
        """Replaces the properties; returns when they are stored. Raises MetadataError."""
        store = self.cursor.store
        store.keep_properties(replaced_properties(store.cursor_properties, properties))
        await self.cursor.store.flush()

    def take_wishes(self, options: SubscribeOptions) -> None:
        """Keeps what a consumer wants of an existing subscription, where nothing was set before."""
        if options.properties and not self.properties:
            store = self.cursor.store
            store.keep_properties(replaced_properties(store.cursor_properties, options.properties))
        if options.replicated and not self.replicated:
            self.cursor.acks.properties = {**self.cursor.acks.properties, REPLICATED: 1}
            self.cursor.store.changed()

    def add_consumer(self, consumer: Consumer) -> None:
        """Adds a consumer.

        ConsumerBusy when another consumer excludes it or a seek is running; ConsumerAssignError when its key hashes
        do not fit. A refused consumer leaves nothing.
        """
        options = consumer.options
        self._check(options)
        if self.dispatcher is None or not self.consumers:
            self._renew_dispatcher(options)
        assert self.dispatcher is not None
        self.cursor.activate()
        try:
            self.dispatcher.add_consumer(consumer)
        except BrokerError:
            self._deactivate_if_empty()
            raise
        if self.cursor.context.is_terminated:
            self._tell_end_later(consumer)

    def _tell_end_later(self, consumer: Consumer) -> None:
        """Holds REACHED_END_OF_TOPIC back from a consumer that joins a terminated topic.

        The Go client closes its connection at this command and subscribes again at once. Without the delay it would
        do so hundreds of times per second; Pulsar's broker tells it about once per second too.
        """

        def tell() -> None:
            consumer.end_told = False
            if self.dispatcher is not None:
                self.dispatcher.wake()

        consumer.end_told = True
        self._call_later(END_TOLD_AFTER_SECONDS, tell)

    def _check(self, options: SubscribeOptions) -> None:
        if self.resetting:
            raise ConsumerBusy(f"Subscription {self.name} is being reset; try again")
        if self.consumers and options.kind is not self.kind:
            raise ConsumerBusy(
                f"Subscription is of different type: {self.kind.label} is connected, {options.kind.label} was asked for"
            )
        if self.consumers and self.kind is SubscriptionType.EXCLUSIVE:
            raise ConsumerBusy("Exclusive consumer is already connected")
        limit = self.topic.policies.of(self.topic.name, MAX_CONSUMERS_PER_SUBSCRIPTION)
        if limit and len(self.consumers) >= limit:
            raise ConsumerBusy(f"Subscription {self.name} reached max consumers limit: {limit}")

    def _renew_dispatcher(self, options: SubscribeOptions) -> None:
        """Makes the dispatcher for the type that the first consumer brings."""
        topic = self.topic
        before = self.dispatcher
        self.kind = options.kind
        context = DispatchContext(
            cursor=self.cursor,
            topic_name=str(topic.name),
            partition=topic.name.partition,
            settings=topic.dispatch_settings,
            turn=topic.turn,
            call_later=self._call_later,
            mark_delivered=topic.mark_delivered,
            broker_unacked=topic.rates.unacked,
            delays=topic.delays,
        )
        if self.kind is SubscriptionType.SHARED:
            self.dispatcher = SharedDispatcher(context)
        elif self.kind is SubscriptionType.KEY_SHARED:
            self.dispatcher = SharedDispatcher(context, options.key_shared)
        else:
            self.dispatcher = SingleActiveDispatcher(context, self.kind, topic)
        if before is not None:
            # A read of the old dispatcher may be running; its end must wake the new one.
            before.retire(self.dispatcher)
        self.renew_limits()

    def renew_limits(self) -> None:
        """Gives the dispatcher the delivery rates that hold now."""
        topic = self.topic
        rate = topic.policies.subscription_dispatch_rate(topic.name, self.name)
        self.dispatch_limit = topic.rates.limit_of(self.dispatch_limit, rate)
        if self.dispatcher is not None:
            self.dispatcher.limits = topic.rates.dispatch_limits(self.dispatch_limit)

    def remove_consumer(self, consumer: Consumer) -> None:
        """Removes a consumer; ignored for one that has left already."""
        if consumer not in self.consumers:
            return
        assert self.dispatcher is not None
        # Kept before the consumer goes: the subscription's counters must never fall.
        self.retired_messages_out += consumer.messages_out
        self.retired_bytes_out += consumer.bytes_out
        self.retired_redelivered += consumer.messages_redelivered
        self.retired_flow_ms = max(self.retired_flow_ms, consumer.last_consumed_flow_ms)
        self.dispatcher.remove_consumer(consumer)
        context = self.cursor.context
        self.left_at_ns = context.environment.now_ns()
        context.note_change()
        context.environment.perhaps_idle.note(context.name)
        self._deactivate_if_empty()

    def _deactivate_if_empty(self) -> None:
        if not self.consumers:
            self.cursor.deactivate()
            # Entries that were read and not sent are read again by the next consumer.
            self.cursor.rewind()
            if not self.durable and not self.resetting:
                self.topic.subscribing.forget(self)

    def flow(self, consumer: Consumer, permits: int) -> None:
        """Adds permits and wakes the dispatcher."""
        consumer.permits += permits
        if self.dispatcher is not None:
            self.dispatcher.wake()

    # Acknowledgements

    def acknowledge(
        self, consumer: Consumer, keys: Sequence[tuple[int, int]], runs: Sequence[EntryRange] = ()
    ) -> None:
        """Acknowledges whole entries, by their positions and in runs."""
        self.cursor.acknowledge(keys, runs)
        dispatcher = self.dispatcher
        if isinstance(dispatcher, SharedDispatcher):
            for key in keys:
                dispatcher.settled(consumer, key)
            for run in runs:
                dispatcher.run_settled(consumer, run)
        count = len(keys)
        for _, first, last in runs:
            count += last - first + 1
        self._acknowledged(consumer, count)

    def acknowledge_batch(
        self, consumer: Consumer, position: Position, ack_set: Sequence[int], batch_size: int
    ) -> None:
        """Acknowledges messages of a batch; set bits in `ack_set` are the ones still unacknowledged (PIP-54).

        Ignored with `acknowledgmentAtBatchIndexLevelEnabled=false`, as in Pulsar.
        """
        if not self.topic.settings.batch_index_acks:
            return
        self.cursor.acknowledge_batch(position, ack_set, batch_size)
        dispatcher = self.dispatcher
        if isinstance(dispatcher, SharedDispatcher):
            # The cursor decides: together with earlier acknowledgements this one may have completed the entry.
            if self.cursor.acks.is_acknowledged(position):
                dispatcher.settled(consumer, position)
            elif left := messages_left(self.cursor.acks.ack_set_of(position) or ()):
                dispatcher.settled(consumer, position, left)
        self._acknowledged(consumer, 1)

    def acknowledge_cumulative(
        self, consumer: Consumer, position: Position, ack_set: Sequence[int] | None
    ) -> None:
        """Acknowledges everything up to `position`, of its batch what `ack_set` leaves out.

        Ignored on Shared and Key_Shared subscriptions, as in Pulsar: consumers there do not get all entries.
        """
        if isinstance(self.dispatcher, SharedDispatcher):
            return
        self.cursor.acknowledge_cumulative(
            position, ack_set if self.topic.settings.batch_index_acks else None
        )
        self._acknowledged(consumer, 1)

    def require_transactional(self) -> SubscriptionTransactions:
        """Returns the acknowledgements of transactions; from the first call on the cursor passes over them."""
        if self.transactional is None:
            self.transactional = SubscriptionTransactions(str(self.topic.name), self.cursor)
            self.topic.transactions.watch(self.name, self.transactional.pending)
        return self.transactional

    def when_kept(self, callback: Callable[[], None]) -> None:
        """Calls back when the acknowledgements so far are durable.

        At once with `managedLedgerDefaultMarkDeleteRateLimit` above 0, as Pulsar does: with throttled writes the
        client would wait up to a second for each answer.
        """
        if self.topic.ledger.context.settings.mark_delete_rate > 0:
            callback()
        else:
            self.cursor.store.on_durable(callback)

    def _acknowledged(self, consumer: Consumer, count: int) -> None:
        consumer.acked_messages += count
        if self.dispatcher is not None and self.cursor.context.is_terminated:
            self.dispatcher.acknowledged()

    # Redelivery and position

    def redeliver(
        self, consumer: Consumer, keys: Iterable[tuple[int, int]] | None, epoch: int | None
    ) -> None:
        """Delivers these positions again, None = all that are pending.

        A higher consumer epoch marks everything delivered from now on, so that the client can drop older messages
        that are still on their way (PIP-84).
        """
        if epoch is not None and consumer.epoch is not None and epoch > consumer.epoch:
            consumer.epoch = epoch
            consumer.port.renew_epoch(epoch)
        if isinstance(self.dispatcher, SharedDispatcher):
            self.dispatcher.redeliver(consumer, keys)
        elif self.dispatcher is not None:
            self.dispatcher.redeliver(consumer)

    def acknowledge_through(self, position: Position) -> None:
        """Acknowledges every entry through the position for an administrator; earlier positions change nothing.

        Works for all types, unlike a consumer's cumulative acknowledgement. NotAllowed for the broker's own subscription.
        """
        self._check_movable()
        self.cursor.acknowledge_cumulative(position)
        if self.dispatcher is not None and self.cursor.context.is_terminated:
            self.dispatcher.acknowledged()

    def _check_movable(self) -> None:
        if self.name == COMPACTION_CURSOR:
            # Its position is the horizon: moved, messages would be missing from the compacted view.
            raise NotAllowed(f"The position of subscription {self.name} is the broker's own")

    async def seek(self, position: Position, ack_set: Sequence[int] = ()) -> None:
        """Moves the cursor: the next delivery is `position`, or the next entry where there is none.

        Disconnects all consumers; they subscribe again. A seek to a time takes its position from
        `TopicPositions.first_since`. MetadataError while another seek is running.
        """
        self._check_movable()
        if self.resetting:
            raise MetadataError(f"Subscription {self.name} is being reset already")
        self.resetting = True
        try:
            self.disconnect()
            # After `disconnect`: while the new position is stored, no consumer may acknowledge at the old one.
            await self.cursor.reset(position)
            if any(ack_set):
                self.cursor.acknowledge_batch(position, ack_set, 0)
        finally:
            self.resetting = False
            if not self.durable:
                # The reader reconnects after a seek. Its cursor would be gone if it ended with its last consumer.
                self._call_later(READER_RETURNS_SECONDS, self._deactivate_if_empty)

    def disconnect(self) -> None:
        """Closes all consumers; their clients look the topic up and subscribe again."""
        for consumer in list(self.consumers):  # A copy, because each pass removes the consumer.
            consumer.port.closed_by_broker()
            self.remove_consumer(consumer)

    def close(self) -> None:
        """Disconnects all consumers for good. The cursor is closed or deleted with its log."""
        self.disconnect()
        if self.dispatcher is not None:
            self.dispatcher.close()
        if self.transactional is not None:
            # A subscription that is made anew under the name must not inherit them.
            self.topic.transactions.unwatch(self.name)
