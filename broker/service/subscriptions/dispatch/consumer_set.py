"""ConsumerSet: the consumers of a Shared or Key_Shared subscription, and how many messages each may be sent.

Three limits stand beside a consumer's permits: messages that it has not acknowledged, that the whole subscription has
not acknowledged, and that all subscriptions of the broker have not acknowledged (`UnackedLimit`). A consumer or
subscription that reaches its limit is blocked until half of it is acknowledged, as in Pulsar; without the gap between the
two marks, delivery would switch on and off with every acknowledgement.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from operator import attrgetter

from broker.service.consumer import Consumer
from broker.service.limits.unacked_limit import UnackedLimit
from broker.service.settings import ServiceSettings
from foundation.model.position import PositionKey

_by_priority = attrgetter("options.priority")


class ConsumerSet:
    """Connected consumers, best priority (lowest number) first, with their unacknowledged messages."""

    __slots__ = ("_broker", "blocked", "blocked_by_broker", "consumers", "settings", "unacked")

    def __init__(
        self, consumers: list[Consumer], settings: ServiceSettings, broker: UnackedLimit | None = None
    ) -> None:
        """`broker` is the limit of all subscriptions together; None without one."""
        self.consumers = consumers
        """The dispatcher's list itself; changed by `add` and `remove` alone."""
        self.settings = settings
        """Current values, renewed by the dispatcher."""
        self.unacked = 0
        """Messages pending at all consumers."""
        self.blocked = False
        """True from `maxUnackedMessagesPerSubscription` until half of them are acknowledged."""
        self.blocked_by_broker = False
        """True while the broker's limit is reached and this subscription holds more than its share."""
        self._broker = broker

    def add(self, consumer: Consumer) -> None:
        """Adds a consumer after those of its priority; the order among equals is that of joining."""
        self.consumers.append(consumer)
        self.consumers.sort(key=_by_priority)

    def reconfigure(self, settings: ServiceSettings) -> None:
        """Takes new limits, and ends blocks that they would not begin."""
        self.settings = settings
        limit = settings.unacked_max_per_subscription
        self.blocked = self.blocked and bool(limit) and self.unacked >= limit
        limit = settings.unacked_max_per_consumer
        for consumer in self.consumers:
            consumer.blocked = consumer.blocked and bool(limit) and consumer.unacked >= limit

    def remove(self, consumer: Consumer) -> bool:
        """Removes a consumer with its unacknowledged messages; returns True when that ends a block."""
        self.consumers.remove(consumer)
        return self.count_settled(consumer, consumer.unacked)

    def owner_of(self, key: PositionKey) -> Consumer | None:
        """Returns the consumer at which the entry is pending, or None."""
        # A scan, but only for an acknowledgement that comes from another consumer than the entry went to.
        return next((consumer for consumer in self.consumers if key in consumer.pending), None)

    def permits(self, wake: Callable[[], None]) -> int:
        """Sums the messages that all consumers can take now.

        A consumer whose connection cannot take more counts nothing; `wake` is called when it can again.
        """
        if self.blocked or (self._broker is not None and self._waits_for(self._broker, wake)):
            return 0
        limit = self.settings.unacked_max_per_consumer
        permits = 0
        for consumer in self.consumers:
            if consumer.permits > 0 and not consumer.blocked:
                if consumer.port.writable:
                    # As `capacity_of`, written out: a call per consumer and turn shows in a profile.
                    left = max(1, limit - consumer.unacked) if limit else consumer.permits
                    permits += min(consumer.permits, left)
                else:
                    consumer.port.when_writable(wake)
        return permits

    def _waits_for(self, broker: UnackedLimit, wake: Callable[[], None]) -> bool:
        """Returns True while this subscription must wait for the broker's limit; `wake` ends that."""
        # Half of the share once it waits, as in Pulsar: each acknowledgement would otherwise end it for one message.
        share = broker.share // 2 if self.blocked_by_broker else broker.share + 1
        self.blocked_by_broker = broker.blocked and self.unacked >= share
        if self.blocked_by_broker:
            broker.when_unblocked(wake)
        return self.blocked_by_broker

    def capacity_of(self, consumer: Consumer) -> int:
        """Returns how many messages the consumer may be sent now.

        At least one, if it has permits: a consumer above the limit that is not blocked has just given messages back.
        """
        limit = self.settings.unacked_max_per_consumer
        return min(consumer.permits, max(1, limit - consumer.unacked)) if limit else consumer.permits

    def entries_for(self, permits: int) -> int:
        """Estimates the entries that hold so many messages; at least 1.

        It uses the consumer with the smallest batches, so that the estimate is rather too high than too low.
        """
        fewest = min((consumer.messages_per_entry for consumer in self.consumers), default=1.0)
        return max(1, ceil(permits / max(1.0, fewest)))

    def count_sent(self, consumer: Consumer, messages: int) -> None:
        """Adds delivered messages to the unacknowledged ones; blocks the consumer or all of them at a limit."""
        self.unacked += messages
        consumer.unacked += messages
        if self._broker is not None:
            self._broker.add(messages)
        settings = self.settings
        limit = settings.unacked_max_per_consumer
        if limit and consumer.unacked >= limit:
            consumer.blocked = True
        limit = settings.unacked_max_per_subscription
        if limit and self.unacked >= limit:
            self.blocked = True

    def count_settled(self, consumer: Consumer, messages: int) -> bool:
        """Subtracts messages that are pending no longer; returns True when that ends a block."""
        self.unacked -= messages
        consumer.unacked -= messages
        unblocked = False
        if self._broker is not None:
            self._broker.add(-messages)
            unblocked = self.blocked_by_broker and self.unacked < self._broker.share // 2
        # Half, as in Pulsar: at the limit itself each acknowledgement would end the block for one message.
        if consumer.blocked and consumer.unacked <= self.settings.unacked_max_per_consumer // 2:
            consumer.blocked = False
            unblocked = True
        if self.blocked and self.unacked <= self.settings.unacked_max_per_subscription // 2:
            self.blocked = False
            unblocked = True
        return unblocked
