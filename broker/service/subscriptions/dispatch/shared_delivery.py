"""SharedDelivery: sends entries to a consumer of a Shared or Key_Shared subscription and notes them as pending."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.service.consumer import NONE_PENDING, Consumer
from broker.service.entry_facts import messages_left, messages_of
from foundation.model.entry import Entry

if TYPE_CHECKING:
    from broker.service.limits.dispatch_limit import DispatchLimits
    from broker.service.subscriptions.dispatch.consumer_set import ConsumerSet
    from broker.service.subscriptions.dispatch.dispatcher import DispatchContext
    from broker.service.subscriptions.dispatch.redelivery import Redeliverer


class SharedDelivery:
    """Writes entries to consumers: plain first deliveries in runs, all others one by one.

    A first delivery of a whole entry needs no field of its own in the MESSAGE command, so many of them are one call.
    An entry with a redelivery count or a partly acknowledged batch carries both in its command.
    """

    __slots__ = ("_consumers", "_cursor", "_mark_delivered", "_redelivery", "limits", "now_ns")

    def __init__(self, context: DispatchContext, consumers: ConsumerSet, redelivery: Redeliverer) -> None:
        self.limits: DispatchLimits | None = None
        """Delivery rates that count what is sent; renewed by the dispatcher at the begin of each run."""
        self.now_ns = 0
        """Begin of the dispatcher's run."""
        self._cursor = context.cursor
        self._mark_delivered = context.mark_delivered
        self._consumers = consumers
        self._redelivery = redelivery

    def send(self, consumer: Consumer, entries: list[Entry]) -> int:
        """Sends entries from the front while the consumer has capacity; returns how many were sent.

        The last entry may exceed the capacity: a batch is sent whole as soon as one message of it is allowed.
        """
        try:
            return self._send(consumer, entries)
        except Exception:
            # A defect, which the turn logs. Perhaps the client has not got the entries; as pending ones they would wait for
            # its acknowledgement until it leaves. As forgotten ones they are found and delivered again.
            for entry in entries:
                consumer.pending.pop((entry.ledger_id, entry.entry_id), None)
            raise

    def _send(self, consumer: Consumer, entries: list[Entry]) -> int:
        capacity = self._consumers.capacity_of(consumer)
        if consumer.pending is NONE_PENDING:
            consumer.pending = {}
        pending = consumer.pending
        partly_acknowledged = self._cursor.acks.partly_acknowledged
        counts = self._redelivery.counts
        plain: list[Entry] = []
        total = messages = size = sent = 0
        for entry in entries:
            if total >= capacity:
                break
            sent += 1
            key = (entry.ledger_id, entry.entry_id)
            # The attribute is 0 until the first dispatcher has counted; looking here saves a call per entry.
            left = entry.messages or messages_of(entry)
            if counts or partly_acknowledged:
                ack_set = self._cursor.acks.ack_set_of(entry.position) or ()
                count = counts.get(key, 0)
                if ack_set or count:
                    left = messages_left(ack_set) if ack_set else left
                    # Before this one, so that the client receives the entries in order.
                    if plain:
                        consumer.deliver(plain, messages, size)
                        plain, messages, size = [], 0, 0
                    shown = count if self._consumers.settings.redelivery_tracker else 0
                    consumer.deliver_one(entry, left, shown, ack_set)
                    pending[key] = left
                    total += left
                    continue
            pending[key] = left
            total += left
            messages += left
            size += entry.size
            plain.append(entry)
        if plain:
            consumer.deliver(plain, messages, size)
        # Once per call and after the deliveries: from here on the cache may evict the entries.
        self._mark_delivered(entries if sent == len(entries) else entries[:sent])
        self._consumers.count_sent(consumer, total)
        if self.limits is not None:
            size = sum(entry.size for entry in entries[:sent])
            self.limits.take(sent if self._consumers.settings.throttle_entries else total, size, self.now_ns)
        return sent
