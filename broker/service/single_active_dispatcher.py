"""SingleActiveDispatcher: Exclusive and Failover, where one consumer at a time receives everything in order.

Acknowledgements are not tracked per consumer; a redelivery always starts over at the first message that is not
acknowledged, and the redelivery count stays 0, as in Pulsar.
"""

from __future__ import annotations

from bisect import bisect_left

from broker.model.entry import Entry
from broker.service.consumer import Consumer, SubscriptionType
from broker.service.dispatcher import Dispatcher, messages_left, messages_of
from broker.service.key_shared import sticky_key_hash

RUNS_PER_TURN = 8
"""Runs of entries handed out before other dispatchers and the sockets get their share of the turn."""

_RING_POINTS = 100


class SingleActiveDispatcher(Dispatcher):
    __slots__ = ("_announce", "_delayed", "_partition", "active", "kind")

    def __init__(self, *args: object, kind: SubscriptionType, partition: int, **named: object) -> None:
        super().__init__(*args, **named)  # type: ignore[arg-type]
        self.kind = kind
        self.active: Consumer | None = None
        self._partition = partition
        self._delayed = False
        self._announce: list[tuple[Consumer, bool]] = []

    # Consumers

    def add_consumer(self, consumer: Consumer) -> None:
        self.consumers.append(consumer)
        before = self.active
        self._choose()
        if self.kind is SubscriptionType.FAILOVER and self.active is before:
            self._tell(consumer, active=False)

    def remove_consumer(self, consumer: Consumer) -> None:
        self.consumers.remove(consumer)
        left = consumer is self.active
        if left:
            self.active = None
        self._choose(left=left)

    def _choose(self, *, left: bool = False) -> None:
        before, chosen = self.active, self._chosen()
        if chosen is before or chosen is None:
            return
        self.active = chosen
        if self.kind is SubscriptionType.FAILOVER:
            if before is not None:
                self._tell(before, active=False)
            self._tell(chosen, active=True)
        if self.kind is SubscriptionType.FAILOVER and (before is not None or left):
            self._take_over_later()
        else:
            self._start_over()

    def _chosen(self) -> Consumer | None:
        """The best priority's consumers by name; a partition takes the one of its number, any other topic a ring's."""
        if not self.consumers:
            return None
        best = min(consumer.options.priority for consumer in self.consumers)
        candidates = sorted(
            (consumer for consumer in self.consumers if consumer.options.priority == best),
            key=lambda consumer: consumer.name,
        )
        if len(candidates) == 1:
            return candidates[0]
        if self._partition >= 0 and not self.settings.failover_consistent_hashing:
            return candidates[self._partition % len(candidates)]
        return _on_ring(candidates, self.topic_name)

    def _tell(self, consumer: Consumer, *, active: bool) -> None:
        """At the end of the turn, so that the answer to SUBSCRIBE goes first."""
        if not self._announce:
            self._turn.dispatch(self._tell_all)
        self._announce.append((consumer, active))

    def _tell_all(self, now_ns: int) -> None:
        announce, self._announce = self._announce, []
        for consumer, active in announce:
            if consumer in self.consumers:
                consumer.port.active_changed(active=active)

    def _take_over_later(self) -> None:
        """Let acknowledgements that are on their way arrive, so that little is delivered twice."""
        if not self._delayed:
            self._delayed = True
            self._call_later(self.settings.failover_delay_ms / 1000, self._take_over)

    def _take_over(self) -> None:
        if not self.closed:
            self._delayed = False
            self._start_over()

    def _start_over(self) -> None:
        self.cursor.rewind()
        self.wake()

    # Dispatch

    def run_once(self, now_ns: int) -> None:
        consumer = self.active
        if consumer is None or self._delayed:
            return
        for _ in range(RUNS_PER_TURN):
            if not consumer.port.writable:
                consumer.port.when_writable(self.wake)
                return
            if consumer.permits <= 0:
                return
            wanted = max(1, int(consumer.permits / consumer.messages_per_entry))
            wanted = min(wanted, self.settings.read_entries_max)
            entries = self.cursor.take(wanted, self.settings.read_bytes_max)
            if not entries:
                self._read_more(wanted)
                return
            self._hand_over(consumer, entries)
        self.wake()

    def _hand_over(self, consumer: Consumer, entries: list[Entry]) -> None:
        """Send what the permits allow; the last entry may overdraw them, the rest goes back to the cursor."""
        permits = consumer.permits
        messages = size = 0
        for index, entry in enumerate(entries):
            if messages >= permits:
                self.cursor.give_back(entry.position, entries[index:])
                del entries[index:]
                break
            messages += entry.messages or messages_of(entry)
            size += entry.size
        self.dispatched_entries += len(entries)
        if self.cursor.acks.partly_acknowledged:
            self._hand_over_partly_acked(consumer, entries)
        else:
            consumer.deliver(entries, messages, size)
        self._handed_over(entries)

    def _hand_over_partly_acked(self, consumer: Consumer, entries: list[Entry]) -> None:
        for entry in entries:
            ack_set = self.cursor.acks.ack_set_of(entry.position) or ()
            messages = messages_left(ack_set) if ack_set else messages_of(entry)
            consumer.deliver_one(entry, messages, 0, ack_set)

    # Redelivery

    def redeliver(self, consumer: Consumer) -> None:
        """Whatever was asked for, everything unacknowledged comes again, and only to the active consumer."""
        if consumer is self.active:
            self._start_over()


def _on_ring(candidates: list[Consumer], topic_name: str) -> Consumer:
    """Each consumer has points at the hashes of its name and a number; the topic's name picks the next point."""
    ring: dict[int, Consumer] = {}
    for consumer in candidates:
        for point in range(_RING_POINTS):
            ring[sticky_key_hash(f"{consumer.name}{point}".encode())] = consumer
    points = sorted(ring)
    place = bisect_left(points, sticky_key_hash(topic_name.encode()))
    return ring[points[place % len(points)]]
