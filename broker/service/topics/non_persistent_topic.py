"""NonPersistentTopic: delivers each message at once and stores nothing.

A consumer without permits, or one whose client does not read, misses the message; missed messages are counted.
"""

from __future__ import annotations

from broker.managed_ledger.stats import ChangedLedgers
from broker.service.consumer import Consumer, SubscribeOptions, SubscriptionType
from broker.service.entry_facts import facts_of
from broker.service.limits.broker_limits import BrokerLimits
from broker.service.policies.effective_policies import EffectivePolicies
from broker.service.ports import ConsumerPort, Sends
from broker.service.settings import ServiceSettings
from broker.service.subscriptions.dispatch.key_shared import sticky_key_hash
from broker.service.topics.topic import Topic
from foundation.model.entry import Entry
from foundation.model.errors import ConsumerBusy, NotAllowed, ServiceNotReady
from foundation.model.topic_name import TopicName, check_new_name
from foundation.model.txn_id import TxnId
from protocol.message_metadata import NO_KEY


class NonPersistentSubscription:
    """The consumers of a non-persistent topic under one name; there is no cursor."""

    __slots__ = (
        "_next",
        "consumers",
        "kind",
        "messages_dropped",
        "name",
        "retired_bytes_out",
        "retired_messages_out",
        "topic",
    )

    def __init__(self, topic: NonPersistentTopic, name: str, kind: SubscriptionType) -> None:
        self.topic = topic
        """The topic that is subscribed to."""
        self.name = name
        """Unique within the topic."""
        self.kind = kind
        """Type of the connected consumers."""
        self.consumers: list[Consumer] = []
        """Best priority first, then by name; the first one is the active one (Failover)."""
        self.messages_dropped = 0
        """Messages that no consumer could take."""
        self.retired_messages_out = 0
        """Messages delivered to consumers that left."""
        self.retired_bytes_out = 0
        """Bytes of those messages."""
        self._next = 0

    def add_consumer(self, consumer: Consumer) -> None:
        """Adds a consumer. ConsumerBusy when another one excludes it."""
        options = consumer.options
        if self.consumers and options.kind is not self.kind:
            raise ConsumerBusy(f"Subscription is of different type: {self.kind.label} is connected")
        if self.consumers and self.kind is SubscriptionType.EXCLUSIVE:
            raise ConsumerBusy("Exclusive consumer is already connected")
        self.kind = options.kind
        before = self.consumers[0] if self.consumers else None
        self.consumers.append(consumer)
        self.consumers.sort(key=lambda c: (c.options.priority, c.name))
        if self.kind is SubscriptionType.FAILOVER:
            active = self.consumers[0]
            if before is not None and before is not active:
                before.port.active_changed(active=False)
            consumer.port.active_changed(active=consumer is active)

    def remove_consumer(self, consumer: Consumer) -> None:
        """Removes a consumer, and the subscription with its last one."""
        if consumer not in self.consumers:
            return
        was_active = self.consumers[0] is consumer
        self.consumers.remove(consumer)
        self.topic.note_change()
        # Kept, because counters must never fall.
        self.retired_messages_out += consumer.messages_out
        self.retired_bytes_out += consumer.bytes_out
        if not self.consumers:
            self.topic.messages_out_before += self.retired_messages_out
            self.topic.bytes_out_before += self.retired_bytes_out
            self.topic.subscriptions.pop(self.name, None)
        elif was_active and self.kind is SubscriptionType.FAILOVER:
            self.consumers[0].port.active_changed(active=True)

    def flow(self, consumer: Consumer, permits: int) -> None:
        """Adds permits; messages that were missed before do not come again."""
        consumer.permits += permits

    def disconnect(self) -> None:
        """Closes all consumers; their clients look the topic up and subscribe again."""
        for consumer in list(self.consumers):
            consumer.port.closed_by_broker()
            self.remove_consumer(consumer)

    def dispatch(self, entry: Entry) -> None:
        """Delivers the entry to one consumer, or drops and counts it."""
        consumer = self._choose(entry)
        if consumer is None or not consumer.may_receive():
            self.messages_dropped += entry.messages
            return
        consumer.deliver((entry,), entry.messages, entry.size)

    def _choose(self, entry: Entry) -> Consumer | None:
        consumers = self.consumers
        if not consumers:
            return None
        # The first one is the active one, also when it cannot take a message: the others must stay passive.
        if self.kind in (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER):
            return consumers[0]
        if self.kind is SubscriptionType.KEY_SHARED:
            facts = facts_of(entry)
            return consumers[sticky_key_hash(NO_KEY if facts is None else facts.key) % len(consumers)]
        for _ in consumers:
            self._next = (self._next + 1) % len(consumers)
            if consumers[self._next].may_receive():
                break
        return consumers[self._next]


class NoTransactions:
    """The gate of a topic without a log, where nothing can be taken back."""

    def admit(self, txn: TxnId) -> None:
        """Raises NotAllowed."""
        raise NotAllowed(f"Transaction {txn}: the topic is not persistent; use a persistent one")


class NonPersistentTopic(Topic):
    """A topic that forwards messages to connected consumers."""

    __slots__ = (
        "_changed",
        "_ledger_name",
        "bytes_out_before",
        "messages_out_before",
        "subscriptions",
        "transactions",
    )

    def __init__(
        self,
        name: TopicName,
        settings: ServiceSettings,
        policies: EffectivePolicies,
        limits: BrokerLimits,
        changed: ChangedLedgers,
    ) -> None:
        """`changed`: gets the name of the managed ledger that a persistent topic would have."""
        super().__init__(name, settings, policies, limits)
        self._changed, self._ledger_name = changed, name.ledger_name
        self.subscriptions: dict[str, NonPersistentSubscription] = {}
        """Subscriptions with at least one consumer, by name."""
        self.messages_out_before = 0
        """Messages delivered by subscriptions that are gone."""
        self.bytes_out_before = 0
        """Bytes of those messages."""
        self.transactions = NoTransactions()
        """Refuses messages of transactions."""

    def note_change(self) -> None:
        """Notes that a number of the topic has changed: of its messages or its clients."""
        self._changed.note(self._ledger_name)

    def producers_changed(self) -> None:
        """Notes that a producer has come or left, for the sums over topics."""
        self.note_change()

    def publish(self, sends: Sends) -> None:
        """Delivers to every subscription, then confirms with position (0, 0): nothing is stored."""
        if self.closed:
            raise ServiceNotReady(f"Topic {self.name} is being closed")
        self.note_change()
        if self.single_sends:
            self.check_single(sends)
        messages, bodies = sends.messages, sends.bodies
        self.entries_in += len(bodies)
        self.messages_in += messages * len(bodies)
        self.bytes_in += sends.size
        for body in bodies:
            # All messages of a non-persistent topic have position (0, 0).
            entry = Entry(0, 0, b"", body, messages)
            for subscription in self.subscriptions.values():
                subscription.dispatch(entry)
            sends.port.stored(sends, 1, 0, 0)

    async def subscribe(
        self, port: ConsumerPort, options: SubscribeOptions
    ) -> tuple[NonPersistentSubscription, Consumer]:
        """Adds a consumer. ConsumerBusy, NotAllowed or ServiceNotReady refuse it."""
        if options.read_compacted:
            raise NotAllowed("readCompacted only valid on persistent topics")
        self.check_type(options.kind)
        self.check_open()
        subscription = self.subscriptions.get(options.subscription)
        if subscription is None:
            check_new_name("Subscription", options.subscription)
            subscription = NonPersistentSubscription(self, options.subscription, options.kind)
        consumer = Consumer(port, options)
        subscription.add_consumer(consumer)
        self.subscriptions[options.subscription] = subscription
        self.note_change()
        return subscription, consumer

    async def close(self) -> None:
        """Disconnects the clients; there is no storage to release."""
        self.closed = True
        self.disconnect_producers()
        # A copy: a subscription leaves the dict with its last consumer.
        for subscription in list(self.subscriptions.values()):
            subscription.disconnect()
