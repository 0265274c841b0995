"""TopicSubscriptions: opens, creates and deletes the subscriptions of one persistent topic.

Law: these three wait for the metadata store, and one of them runs at a time per topic. Two clients that subscribe at once
under a new name therefore share one subscription, and closing the topic waits for a subscription that is being made.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.managed_ledger.managed_cursor import ManagedCursor
from broker.managed_ledger.managed_ledger_info import NO_NUMBERS, NO_PROPERTIES
from broker.service.consumer import Consumer, SubscribeOptions, SubscriptionType
from broker.service.internal_cursors import COMPACTION_CURSOR, INTERNAL_CURSORS, UNLISTED_CURSORS
from broker.service.policies.table import MAX_CONSUMERS, MAX_SUBSCRIPTIONS
from broker.service.ports import ConsumerPort
from broker.service.subscriptions.subscription import REPLICATED, SubscribedTopic, Subscription
from foundation.loop.clock import CallLater
from foundation.model.errors import ConsumerBusy, MetadataError, NotAllowed, SubscriptionNotFound
from foundation.model.position import EARLIEST, LATEST, Position
from foundation.model.topic_name import check_new_name
from foundation.seldom import lock_of


class TopicSubscriptions:
    """The subscriptions of one topic, by name."""

    __slots__ = ("_topic", "by_name", "bytes_out_before", "call_later", "messages_out_before")

    def __init__(self, topic: SubscribedTopic, *, call_later: CallLater) -> None:
        self.by_name: dict[str, Subscription] = {}
        """Open subscriptions; changed by this class alone."""
        self._topic = topic
        self.call_later = call_later
        """Starts timers."""
        self.messages_out_before = 0
        """Messages that deleted subscriptions were sent since the topic was opened."""
        self.bytes_out_before = 0
        """The bytes of these messages."""
        for name, cursor in topic.ledger.cursors.by_name.items():
            # The broker's own cursors are no subscriptions: no client may join or delete one.
            if name not in UNLISTED_CURSORS:
                self.by_name[name] = Subscription(topic, name, cursor, call_later=call_later)

    async def subscribe(self, port: ConsumerPort, options: SubscribeOptions) -> tuple[Subscription, Consumer]:
        """Adds a consumer, and its subscription when it is missing.

        ConsumerBusy, NotAllowed, SubscriptionNotFound and ConsumerAssignError refuse it as Pulsar does.
        """
        topic = self._topic
        if options.read_compacted and options.kind not in (
            SubscriptionType.EXCLUSIVE,
            SubscriptionType.FAILOVER,
        ):
            raise NotAllowed("readCompacted only allowed on failover or exclusive subscriptions")
        topic.check_type(options.kind)
        host = port.address.rpartition(":")[0]
        topic.rates.check_subscribe((host, options.consumer_name, options.consumer_id))
        limit = topic.policies.of(topic.name, MAX_CONSUMERS)
        if limit and sum(len(one.consumers) for one in self.by_name.values()) >= limit:
            raise ConsumerBusy(f"Topic '{topic.name}' reached max consumers limit")
        async with lock_of(self):
            topic.check_open()
            subscription = self.by_name.get(options.subscription)
            if subscription is None or subscription.name in INTERNAL_CURSORS:
                subscription = await self._open(options)
            elif subscription.durable != options.durable:
                kind = "Durable" if subscription.durable else "NonDurable"
                raise NotAllowed(f"{kind} subscription with the same name already exists.")
            else:
                subscription.take_wishes(options)
            # Within the lock: a subscription that is being deleted must not get a consumer.
            consumer = Consumer(port, options)
            subscription.add_consumer(consumer)
            return subscription, consumer

    async def _open(self, options: SubscribeOptions) -> Subscription:
        topic, name = self._topic, options.subscription
        if name in INTERNAL_CURSORS:
            raise NotAllowed(f"Subscription name {name} is the broker's own")
        check_new_name("Subscription", name)
        limit = topic.policies.of(topic.name, MAX_SUBSCRIPTIONS)
        if limit and len(self.by_name.keys() - INTERNAL_CURSORS) >= limit:
            raise NotAllowed(f"Exceed the maximum number of subscriptions of the topic: {topic.name}")
        default = EARLIEST if options.earliest else LATEST
        if options.durable:
            if not topic.policies.may_create_subscriptions(topic.name):
                raise SubscriptionNotFound(f"Subscription {name} does not exist and may not be created")
            numbers = {REPLICATED: 1} if options.replicated else NO_NUMBERS
            start = await self._start(options, default)
            cursor = await topic.ledger.cursors.open(name, start, numbers, options.properties)
        else:
            start = await self._start(options, options.start or default)
            cursor = topic.ledger.cursors.open_non_durable(name, start, options.properties)
        subscription = Subscription(topic, name, cursor, call_later=self.call_later)
        self.by_name[name] = subscription
        return subscription

    async def _start(self, options: SubscribeOptions, default: Position) -> Position:
        if not options.rollback_ms:
            return default
        now_ms = self._topic.ledger.environment.wall_ms()
        return await self._topic.positions.first_since(now_ms - options.rollback_ms)

    async def create(
        self,
        name: str,
        initial: Position,
        properties: Mapping[str, str] = NO_PROPERTIES,
        *,
        replicated: bool = False,
    ) -> Subscription:
        """Creates a durable subscription without a consumer. ConsumerBusy when the name is in use."""
        topic = self._topic
        async with lock_of(self):
            topic.check_open()
            if name in self.by_name or name in INTERNAL_CURSORS:
                raise ConsumerBusy(f"Subscription {name} already exists on topic {topic.name}")
            check_new_name("Subscription", name)
            numbers = {REPLICATED: 1} if replicated else NO_NUMBERS
            cursor = await topic.ledger.cursors.open(name, initial, numbers, properties)
            subscription = Subscription(topic, name, cursor, call_later=self.call_later)
            self.by_name[name] = subscription
            return subscription

    async def own_cursor(self, name: str) -> ManagedCursor:
        """Returns a cursor of the broker's own, made at the first entry if it is missing, and lists it."""
        async with lock_of(self):
            self._topic.check_open()
            if name not in self.by_name:
                cursor = await self._topic.ledger.cursors.open(name, EARLIEST)
                self.by_name[name] = Subscription(self._topic, name, cursor, call_later=self.call_later)
            return self.by_name[name].cursor

    async def delete(self, subscription: Subscription, consumer: Consumer | None, *, force: bool) -> None:
        """Deletes a subscription for its `consumer`, or for an administrator (None).

        MetadataError while other consumers are connected, unless forced.
        """
        others = [other for other in subscription.consumers if other is not consumer]
        # Checked before the lock, so that a refusal does not wait for the metadata store.
        if others and not force:
            raise MetadataError("Unconnected or shared consumer attempting to unsubscribe")
        async with lock_of(self):
            if consumer is not None:
                subscription.remove_consumer(consumer)
            subscription.close()
            if not subscription.durable:
                self.forget(subscription)
            elif self.by_name.get(subscription.name) is subscription:
                await self._topic.ledger.cursors.delete(subscription.name)
                self._drop(subscription)
                if subscription.name == COMPACTION_CURSOR:
                    # After the cursor, whose stored property names the ledger.
                    await self._topic.compaction.forget()

    def forget(self, subscription: Subscription) -> None:
        """Drops a non-durable subscription, which ends with its last consumer."""
        if self.by_name.get(subscription.name) is subscription:
            self._drop(subscription)
            self._topic.ledger.cursors.drop_non_durable(subscription.cursor)

    def _drop(self, subscription: Subscription) -> None:
        """Removes a subscription without consumers from the list, and keeps its counts."""
        del self.by_name[subscription.name]
        subscription.cursor.context.note_change()
        self.messages_out_before += subscription.retired_messages_out
        self.bytes_out_before += subscription.retired_bytes_out

    async def close(self) -> None:
        """Disconnects all consumers. Waits for a subscription that is being made, and closes it too."""
        async with lock_of(self):
            for subscription in list(self.by_name.values()):
                subscription.close()
