"""PersistentTopic: a managed ledger between producers and subscriptions.

Down: each SEND of a run becomes one entry of the ledger. Up: the ledger reports confirmed entries once per turn;
producers get their receipts and dispatchers wake. Law: a receipt is sent only for a confirmed entry, and receipts of
stored entries leave in the order of their entries.

    TopicSubscriptions     opens and deletes subscriptions
    DurableDeduplication   drops messages that are stored already, where a policy asks for it
    TopicPositions         finds entries by time, and the last message
    TopicCompaction        keeps the latest message of each key in a compacted ledger
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.managed_ledger.managed_cursor import ManagedCursor
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.managed_ledger.opening import INDEX, TIMESTAMP
from broker.service.compaction.topic_compaction import Compactor, TopicCompaction
from broker.service.consumer import Consumer, SubscribeOptions
from broker.service.internal_cursors import COMPACTION_CURSOR, DEDUPLICATION_CURSOR
from broker.service.limits.broker_limits import BrokerLimits
from broker.service.limits.storage_pause import StoragePause
from broker.service.policies.effective_policies import EffectivePolicies
from broker.service.policies.table import DELAYED, MESSAGE_TTL
from broker.service.ports import AddedSends, ConsumerPort, Sends
from broker.service.settings import ServiceSettings
from broker.service.subscriptions.backlog.message_expiry import MessageExpiry
from broker.service.subscriptions.backlog.quotas import TopicQuotas
from broker.service.subscriptions.delayed_delivery import DelayedDelivery
from broker.service.subscriptions.subscription import Subscription
from broker.service.subscriptions.topic_positions import TopicPositions
from broker.service.topics.durable_deduplication import DurableDeduplication
from broker.service.topics.topic import Topic
from broker.service.topics.topic_subscriptions import TopicSubscriptions
from broker.service.transactions.topic_transactions import TopicTransactions
from broker.service.transactions.transaction_buffer import TransactionBuffer
from foundation.loop.clock import CallLater
from foundation.loop.turn import Turn
from foundation.model.entry import Entry
from foundation.model.errors import (
    BrokerError,
    LedgerFenced,
    ServiceNotReady,
    TopicTerminated,
)
from foundation.model.position import Position
from foundation.model.topic_name import TopicName
from foundation.seldom import when_used

_EPOCH_PROPERTY: Final = "topicEpoch"
OWN_PROPERTIES: Final = frozenset((_EPOCH_PROPERTY, INDEX, TIMESTAMP))
"""Properties of a log that the broker itself keeps; administrators neither see nor set them."""


def _transactions_of(topic: PersistentTopic) -> TopicTransactions:
    call_later = topic.subscribing.call_later
    return TopicTransactions(topic.name, topic.ledger, topic.settings, call_later=call_later)


def _compaction_of(topic: PersistentTopic) -> TopicCompaction:
    return TopicCompaction(topic, topic.compactor)


def _positions_of(topic: PersistentTopic) -> TopicPositions:
    return TopicPositions(topic.ledger)


def _expiry_of(topic: PersistentTopic) -> MessageExpiry:
    return MessageExpiry(topic)


class PersistentTopic(Topic):
    """A topic whose messages are stored; opened and closed by the topic registry alone."""

    __slots__ = (
        "_on_fenced",
        "_pause",
        "_writer",
        "compactor",
        "deduplication",
        "delays",
        "dispatch_settings",
        "known_compaction",
        "known_expiry",
        "known_positions",
        "known_transactions",
        "ledger",
        "mark_delivered",
        "quotas",
        "subscribing",
        "subscriptions",
        "turn",
    )

    transactions: TopicTransactions = when_used("known_transactions", _transactions_of)
    """Transactions that publish to the topic or acknowledge on it."""
    compaction: TopicCompaction = when_used("known_compaction", _compaction_of)
    """The compacted ledger, and the compactions that make it."""
    positions: TopicPositions = when_used("known_positions", _positions_of)
    """Entries by time, and the last message."""
    expiry: MessageExpiry = when_used("known_expiry", _expiry_of)
    """Acknowledges messages whose time to live is over."""

    def __init__(
        self,
        name: TopicName,
        ledger: ManagedLedger,
        settings: ServiceSettings,
        policies: EffectivePolicies,
        limits: BrokerLimits,
        *,
        turn: Turn,
        call_later: CallLater,
        on_fenced: Callable[[PersistentTopic], None],
        compactor: Compactor,
    ) -> None:
        """`on_fenced` is called when another broker has taken the log over; the registry then closes the topic."""
        super().__init__(name, settings, policies, limits)
        self.ledger = ledger
        """The topic's log."""
        self.turn = turn
        """Runs dispatchers at the end of the loop turn."""
        self.mark_delivered = ledger.environment.caches.mark_delivered
        """Lowers the expected reads of delivered entries in the entry cache (PIP-430)."""
        self.dispatch_settings = settings
        """Settings for dispatchers, with the topic's own limits in them."""
        self.deduplication: DurableDeduplication | None = None
        """None where no policy asks for it; that keeps it off the path of a message."""
        self.known_transactions: TopicTransactions | None = None
        """`transactions`, None before their first use."""
        self.delays = DelayedDelivery(ledger, settings, policies.of(name, DELAYED), call_later)
        """Messages that wait for their delivery time."""
        self.known_positions: TopicPositions | None = None
        """`positions`, likewise."""
        self.compactor = compactor
        """The state that the compactions of all topics share."""
        self.known_compaction: TopicCompaction | None = None
        """`compaction`, likewise."""
        self.subscribing = TopicSubscriptions(self, call_later=call_later)
        """Opens, creates and deletes subscriptions."""
        self.subscriptions: dict[str, Subscription] = self.subscribing.by_name
        """Open subscriptions by name; `subscribing` alone changes it."""
        self.quotas = TopicQuotas(self)
        """Compares the backlog with its quotas."""
        self.known_expiry: MessageExpiry | None = None
        """`expiry`, likewise."""
        self.policies.retain(self.name, self.ledger.trimming)
        ledger.context.listener = self  # type: ignore[assignment]  # The ledger returns contexts as it got them.
        self._on_fenced = on_fenced
        self._pause: StoragePause | None = None
        """None while entries are stored."""
        # The writer itself in a slot: one look-up less on the way of every message.
        self._writer = ledger.writer
        epoch = ledger.properties.get(_EPOCH_PROPERTY)
        self.access.epoch = None if epoch is None else int(epoch)

    @property
    def is_terminated(self) -> bool:
        """True when an administrator ended the topic for producers."""
        return self.ledger.is_terminated

    @property
    def properties(self) -> dict[str, str]:
        """Texts that an administrator gave."""
        return {name: text for name, text in self.ledger.properties.items() if name not in OWN_PROPERTIES}

    @property
    def is_idle(self) -> bool:
        """True when, besides, nothing is stored."""
        return super().is_idle and not self.ledger.ledgers.size_bytes

    def apply_policies(self) -> None:
        """Applies the policies, to the settings of the dispatchers too."""
        super().apply_policies()
        self.quotas.renew()
        self.policies.retain(self.name, self.ledger.trimming)
        for shadow in self.policies.shadow_topics(self.name):
            if shadow.ledger_name not in self.ledger.trimming.shadows:
                # Nothing is superfluous before `Shadows.trim` has read what the shadow needs.
                self.ledger.trimming.hold(shadow.ledger_name)
        self.delays.settings = self.settings
        self.delays.policy = self.policies.of(self.name, DELAYED)
        self.dispatch_settings = self.policies.dispatch_settings(self.name)
        for subscription in self.subscriptions.values():
            subscription.renew_limits()
            if subscription.dispatcher is not None:
                subscription.dispatcher.reconfigure(self.dispatch_settings)

    def check_may_publish(self, *, encrypted: bool) -> None:
        """Raises also QuotaExceeded or QuotaRefused while the backlog is above its quota, ServiceNotReady during a
        pause.
        """
        super().check_may_publish(encrypted=encrypted)
        if self._pause is not None and (left_ns := self._pause.left_ns(self.ledger.environment.now_ns())):
            raise ServiceNotReady(
                f"{self.name} cannot be stored now; its producers may try again in {left_ns / 1e9:.1f} s"
            )
        self.quotas.check_producer()

    async def policies_changed(self) -> None:
        """Applies changed policies, and switches deduplication too."""
        await super().policies_changed()
        wanted = self.policies.deduplicates(self.name)
        if wanted != (self.deduplication is not None):
            await self.set_deduplication(wanted)

    async def compaction_cursor(self) -> ManagedCursor:
        """Opens the broker's own cursor of compactions."""
        return await self.subscribing.own_cursor(COMPACTION_CURSOR)

    async def keep_epoch(self) -> None:
        """Writes the access epoch into the log's properties."""
        await self.ledger.set_properties({_EPOCH_PROPERTY: str(self.access.epoch)})

    def producers_changed(self) -> None:
        """Notes that a producer has come or left, for the sums over topics and the searches for idle and unused ones."""
        context = self.ledger.context
        # One that comes and leaves between two looks is seen by none.
        self.used_at_ns = context.environment.now_ns()
        context.note_change()
        context.environment.perhaps_idle.note(context.name)

    # Publishing

    def publish(self, sends: Sends) -> None:
        """Adds an entry to the log for each SEND; `entries_added` or `add_failed` brings the outcomes to the port.

        A duplicate gets its receipt before this returns. ServiceNotReady, EncryptionRequired, TopicTerminated,
        PersistenceError, or NotAllowed for a message or a delay that is too long refuse what is left of the run.
        """
        # As `check_open`, written out: this runs once per run.
        if self.closed:
            raise ServiceNotReady(f"Topic {self.name} is being closed")
        if sends.delayed:
            self.delays.accept(sends.bodies[0])
        if self.single_sends:
            self.check_single(sends)
        if self.deduplication is not None:
            self.deduplication.settle_repeated(sends)
        bodies = sends.bodies
        if not bodies:
            return
        count = len(bodies)
        self.entries_in += count
        self.messages_in += sends.messages * count
        self.bytes_in += sends.size
        try:
            self._writer.add(bodies, sends.messages, sends)
        except LedgerFenced:
            self._on_fenced(self)
            raise
        except TopicTerminated:
            # CLOSE_PRODUCER goes before the SEND_ERROR, as in Pulsar. The Go client forgets a producer at a SEND_ERROR
            # that says "terminated": it would ignore a later CLOSE_PRODUCER and its sends would time out.
            self.disconnect_producers()
            raise

    def entries_added(self, entries: list[Entry], added: list[AddedSends], now_ns: int) -> None:
        """Sends receipts for confirmed entries, in order, and wakes the dispatchers. Called by the ledger."""
        if self.deduplication is not None:
            # Before the receipts, which settle the SENDs.
            interval = self.settings.deduplication_snapshot_entries
            self.deduplication.entries_added(entries, added, self.access.producers, interval)
        ledger_id, entry_id = entries[0].ledger_id, entries[0].entry_id
        for sends, count, _ in added:
            sends.port.stored(sends, count, ledger_id, entry_id)
            entry_id += count
        if self._pause is not None:
            self._pause = None
        if self.known_transactions is not None and self.known_transactions.buffer is not None:
            # Before the dispatchers: an open transaction moves the end of what they may read.
            self.known_transactions.entries_added(entries)
        self.subscribing.wake()
        if self.ledger.shadows:
            self.ledger.grown()

    def add_failed(self, added: list[AddedSends], error: BrokerError) -> None:
        """Refuses entries that could not be added, and closes every producer. Called by the ledger.

        Producers come back and send again from the first message without a receipt. Left open, they could get later
        messages stored before the failed one.
        """
        if self.deduplication is not None:
            # Or a message that the client sends again would be judged UNKNOWN for ever.
            self.deduplication.add_failed()
        self._pause = self._pause or StoragePause()
        self._pause.add_failed(self.ledger.environment.now_ns())
        # CLOSE_PRODUCER goes first, as in `publish`.
        self.disconnect_producers()
        for sends, count, _ in added:
            sends.port.not_stored(sends, count, error)
        if isinstance(error, LedgerFenced):
            self._on_fenced(self)

    def taken_over(self) -> None:
        """Has the topic closed: a cursor of it can store no acknowledgement any more. Called by the ledger."""
        self._on_fenced(self)

    def last_sequence_id(self, producer_name: str) -> int:
        """Returns the last sequence id that deduplication knows of a producer; -1 without deduplication."""
        return -1 if self.deduplication is None else self.deduplication.last_sequence_id(producer_name)

    async def set_deduplication(self, enabled: bool) -> None:
        """Switches deduplication on or off; a call that changes nothing is allowed."""
        if enabled and self.deduplication is None:
            self.deduplication = await DurableDeduplication.open(self.ledger, self.settings)
        elif not enabled:
            self.deduplication = None
            await self.ledger.cursors.delete(DEDUPLICATION_CURSOR)

    # Subscriptions

    async def subscribe(self, port: ConsumerPort, options: SubscribeOptions) -> tuple[Subscription, Consumer]:
        """Adds a consumer. Raises as `TopicSubscriptions.subscribe`."""
        return await self.subscribing.subscribe(port, options)

    # Life

    async def terminate(self) -> Position:
        """Ends the topic for producers and returns the last position; consumers read to the end."""
        last = await self.ledger.terminate()
        self.disconnect_producers()
        # Consumers that have received and acknowledged everything are told of the end.
        self.subscribing.wake()
        self.ledger.grown()
        return last

    async def _disconnect(self) -> None:
        self.closed = True
        self.delays.close()
        self.disconnect_producers()
        if self.known_compaction is not None:
            await self.known_compaction.close()
        await self.subscribing.close()
        if self.known_transactions is not None:
            self.known_transactions.close()

    async def close(self) -> None:
        """Disconnects the clients, writes acknowledgements and closes the last ledger."""
        await self._disconnect()
        await self.ledger.close()

    async def abandon(self) -> None:
        """Disconnects the clients and stores nothing more of the log."""
        await self._disconnect()
        await self.ledger.abandon()


def transaction_buffer(topic: PersistentTopic) -> TransactionBuffer | None:
    """Returns the messages of transactions; None until a transaction publishes to the topic."""
    return None if topic.known_transactions is None else topic.known_transactions.buffer


async def open_compaction(topic: PersistentTopic) -> None:
    """Finds what former compactions of the topic have left. Raises as `TopicCompaction.open`."""
    if topic.ledger.store.beside or COMPACTION_CURSOR in topic.ledger.cursors.by_name:
        await topic.compaction.open()


async def expire(topic: PersistentTopic) -> None:
    """Expires what is old enough, if messages have a time to live. Raises as `MessageExpiry.look`."""
    if topic.policies.of(topic.name, MESSAGE_TTL) > 0:
        await topic.expiry.look()
