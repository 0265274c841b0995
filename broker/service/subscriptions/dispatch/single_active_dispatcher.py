"""SingleActiveDispatcher: Exclusive and Failover, where one consumer at a time receives everything in order.

An Exclusive consumer may declare ranges of key hashes, as a reader with `keyHashRange` does: it gets the entries whose keys
hash into them, and the dispatcher passes over the others.

Entries are not tracked per consumer, unlike in Shared: the cursor alone knows what is acknowledged. A redelivery
therefore starts over at the first unacknowledged entry, and the redelivery count stays 0, as in Pulsar.
"""

from __future__ import annotations

from broker.service.compaction.compacted_reads import CompactedReads, TopicWithCompaction
from broker.service.consumer import Consumer, SubscriptionType
from broker.service.entry_facts import messages_left, messages_of
from broker.service.subscriptions.dispatch.active_consumer import choose_active
from broker.service.subscriptions.dispatch.by_key import hash_in
from broker.service.subscriptions.dispatch.dispatcher import DispatchContext, Dispatcher
from broker.service.subscriptions.dispatch.key_shared import StickyRangesSelector
from foundation.model.entry import Entry

RUNS_PER_TURN = 8
"""Runs of entries that one dispatcher sends before others and the sockets get their share of the loop turn."""


class SingleActiveDispatcher(Dispatcher):
    """Sends all entries to the active consumer; the others stand by (Failover)."""

    __slots__ = (
        "_compacted",
        "_delayed",
        "_newcomers",
        "_partition",
        "_ranges",
        "_topic",
        "_topic_name",
        "active",
        "kind",
    )

    def __init__(self, context: DispatchContext, kind: SubscriptionType, topic: TopicWithCompaction) -> None:
        """`topic` is asked for its compaction by the first consumer with `readCompacted`."""
        super().__init__(context)
        self.kind = kind
        """EXCLUSIVE or FAILOVER."""
        self.active: Consumer | None = None
        """The consumer that receives; None without consumers."""
        self._topic_name = context.topic_name
        self._partition = context.partition
        # Not a function of the subscription: a bound method for each dispatcher, and a cycle.
        self._topic: TopicWithCompaction | None = topic
        self._compacted: CompactedReads | None = None
        self._delayed = False
        self._ranges: StickyRangesSelector | None = None
        """The consumer's ranges of key hashes; None = it receives everything."""
        self._newcomers: list[Consumer] = []

    # Consumers

    def add_consumer(self, consumer: Consumer) -> None:
        """Adds a consumer, which may become the active one. ConsumerAssignError: its key hashes are no ranges."""
        declared = consumer.options.key_shared
        self._ranges = None
        # Only on Exclusive, as in Pulsar: a passive consumer of a Failover subscription could want other ranges.
        if self.kind is SubscriptionType.EXCLUSIVE and declared.sticky:
            ranges = StickyRangesSelector()
            ranges.add(consumer, declared.ranges)
            self._ranges = ranges
        self.consumers.append(consumer)
        before = self.active
        self._choose()
        if self.kind is SubscriptionType.FAILOVER and self.active is before:
            self._announce_as_passive(consumer)

    def remove_consumer(self, consumer: Consumer) -> None:
        """Removes a consumer; another one becomes active when it was the active one."""
        self.consumers.remove(consumer)
        if consumer is self.active:
            self.active = None
            self._choose_reads(None)
        self._choose()

    def _choose(self) -> None:
        chosen = choose_active(
            self.consumers,
            partition=self._partition,
            topic_name=self._topic_name,
            consistent_hashing=self.settings.failover_consistent_hashing,
        )
        if chosen is self.active or chosen is None:
            return
        self.active = chosen
        self._choose_reads(chosen)
        if self.kind is SubscriptionType.FAILOVER:
            self._start_over_later()
        else:
            self._start_over()

    def close(self) -> None:
        """Delivers nothing any more, and forgets the topic, whose subscription refers to it."""
        super().close()
        self._topic = None

    def _choose_reads(self, consumer: Consumer | None) -> None:
        """Reads the log, or the compacted view for a consumer that asked for it."""
        if self._compacted is not None:
            self._compacted.withdraw()
            self._compacted = None
        self.reads = self.cursor
        if consumer is not None and consumer.options.read_compacted and self._topic is not None:
            self.reads = self._compacted = CompactedReads(
                self.cursor, self._topic.compaction, earliest=consumer.options.earliest
            )

    def _announce_as_passive(self, consumer: Consumer) -> None:
        """Notes an ACTIVE_CONSUMER_CHANGE for the end of the turn.

        The answer to SUBSCRIBE must be written first: the client does not know its consumer before.
        """
        if not self._newcomers:
            self._turn.dispatch(self._announce_newcomers)
        self._newcomers.append(consumer)

    def _announce_newcomers(self, now_ns: int) -> None:
        newcomers, self._newcomers = self._newcomers, []
        for consumer in newcomers:
            # It may have left again within the turn.
            if consumer in self.consumers:
                consumer.port.active_changed(active=consumer is self.active)

    def _start_over_later(self) -> None:
        """Announces the active consumer and starts over after `activeConsumerFailoverDelayTimeMillis`.

        Acknowledgements of a former consumer may still be on their way; without the delay, more messages would be
        delivered twice. The first consumer waits too, as in Pulsar: the Go client drops an ACTIVE_CONSUMER_CHANGE
        that arrives together with the answer to SUBSCRIBE, so its application would never learn that it is active.
        """
        if not self._delayed:
            self._delayed = True
            self._call_later(self.settings.failover_delay_ms / 1000, self._end_delay)

    def _end_delay(self) -> None:
        # A closed dispatcher must not move the cursor, which its successor reads from by now.
        if self.closed:
            return
        self._delayed = False
        # Every consumer is told, as in Pulsar: one that was told before may have been active in between.
        for consumer in self.consumers:
            consumer.port.active_changed(active=consumer is self.active)
        self._start_over()

    def _start_over(self) -> None:
        self.reads.rewind()
        self.wake()

    # Dispatch

    def run_once(self, now_ns: int) -> None:
        """Sends runs of entries while permits and entries last."""
        self.cursor.context.note_change()
        consumer = self.active
        if consumer is None or self._delayed:
            return
        bytes_max = self.settings.read_bytes_max
        limits = None if self.limits is None else self._limits_in_force()
        for _ in range(RUNS_PER_TURN):
            if not consumer.port.writable:
                consumer.port.when_writable(self.wake)
                return
            if consumer.permits <= 0:
                return
            # Permits count messages and the cursor counts entries. Rounded up: what is left would cost a read of one entry.
            average = consumer.messages_per_entry or 1.0
            # A floor of the negative number, which is a call less than `ceil`.
            wanted = int(-(-consumer.permits // average))
            if wanted > self.settings.read_entries_max:
                wanted = self.settings.read_entries_max
            if limits is not None:
                messages, size = self._allowed(limits, now_ns)
                if not messages:
                    return
                per_entry = 1.0 if self.settings.throttle_entries else average
                wanted = min(wanted, max(1, int(messages / per_entry)))
                bytes_max = min(self.settings.read_bytes_max, size)
            entries = self.reads.take(wanted, bytes_max)
            if not entries:
                self._read_on(wanted)
                return
            messages, size = self._send(consumer, entries)
            if limits is not None:
                limits.take(len(entries) if self.settings.throttle_entries else messages, size, now_ns)
            if self._finds_nothing_more():
                return
        # Every round sent something, so there may be more: go on in the next round of the turn.
        self.wake()

    def _send(self, consumer: Consumer, entries: list[Entry]) -> tuple[int, int]:
        """Sends entries while permits last; the reads take the rest back. Returns the messages and bytes sent.

        The last entry may use more permits than are left: a batch is sent whole.
        """
        permits, ranges = consumer.permits, self._ranges
        wanted: list[Entry] = entries if ranges is None else []
        messages = size = 0
        for index, entry in enumerate(entries):
            if messages >= permits:
                self.reads.give_back(entry.position, entries[index:])
                # In place: the caller's list is the one that is delivered and counted below.
                del entries[index:]
                break
            if ranges is not None:
                # A key outside of the ranges belongs to another reader. It costs no permit, as in Pulsar.
                if ranges.select(hash_in(ranges, entry)) is None:
                    continue
                wanted.append(entry)
            messages += entry.messages or messages_of(entry)
            size += entry.size
        # Only a partly acknowledged batch needs an ack set of its own; without any, one call writes all frames.
        if self.cursor.acks.partly_acknowledged:
            self._send_one_by_one(consumer, wanted)
        elif wanted:
            consumer.deliver(wanted, messages, size)
        self.mark_delivered(entries)
        return messages, size

    def _send_one_by_one(self, consumer: Consumer, entries: list[Entry]) -> None:
        """Sends entries with their ack sets. The client drops acknowledged messages of a batch."""
        for entry in entries:
            ack_set = self.cursor.acks.ack_set_of(entry.position) or ()
            messages = messages_left(ack_set) if ack_set else messages_of(entry)
            consumer.deliver_one(entry, messages, 0, ack_set)

    # Redelivery

    def redeliver(self, consumer: Consumer) -> None:
        """Starts over at the first unacknowledged entry; ignored unless the consumer is the active one.

        The positions of the request do not matter: everything unacknowledged is delivered again, in order.
        """
        if consumer is self.active:
            self._start_over()
