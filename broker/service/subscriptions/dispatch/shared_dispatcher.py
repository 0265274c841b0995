"""SharedDispatcher: one loop for Shared and Key_Shared, where many consumers share a subscription's entries.

Every entry that was sent is pending at its consumer until it is acknowledged. Each run of the loop first sends what waits
for redelivery, then reads new entries. The loop is the same for both types; parts with one job each do the work:

    ConsumerSet      who is connected, and how many messages each consumer may be sent
    Redelivery       positions to be delivered again, and the storage reads for them
    InTurns, ByKey   which consumer gets which entry: in turns (Shared) or by its key (Key_Shared)
    SharedDelivery   writes entries to a consumer and notes them as pending
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import repeat

from broker.managed_ledger.managed_cursor import NOTHING_DEFERRED
from broker.service.consumer import Consumer, KeySharedMeta
from broker.service.settings import ServiceSettings
from broker.service.subscriptions.dispatch.by_key import ByKey, hash_in, selector_for
from broker.service.subscriptions.dispatch.consumer_set import ConsumerSet
from broker.service.subscriptions.dispatch.dispatcher import DispatchContext, Dispatcher
from broker.service.subscriptions.dispatch.in_turns import InTurns
from broker.service.subscriptions.dispatch.places import Place, Whereabouts
from broker.service.subscriptions.dispatch.redelivery import Redeliverer
from foundation.model.entry import Entry
from foundation.model.position import PositionKey
from foundation.model.range_set import EntryRange, RangeSet

ROUNDS_PER_TURN = 8
"""Runs of entries that one dispatcher sends before others and the sockets get their share of the loop turn."""


class SharedDispatcher(Dispatcher):
    """Sends entries to many consumers and tracks each until it is acknowledged."""

    __slots__ = ("_delays", "_delivery", "_due", "consumer_set", "keys", "redelivery")

    def __init__(self, context: DispatchContext, meta: KeySharedMeta | None = None) -> None:
        """`meta` is the Key_Shared mode of the first consumer; None makes it a Shared subscription."""
        super().__init__(context)
        self.consumer_set = ConsumerSet(self.consumers, self.settings, context.broker_unacked)
        """The consumers with their limits."""
        selector = None if meta is None else selector_for(meta, self.settings)
        hash_of = _no_hash if selector is None else partial(hash_in, selector)
        self.redelivery = Redeliverer(self.cursor, self._retry, hash_of)
        """Positions to be delivered again."""
        self._delays = context.delays
        self._due = NOTHING_DEFERRED
        """Positions whose delivery time has come, a bit each: there may be millions and few permits."""
        self._delivery = InTurns(context, self.consumer_set, self.redelivery)
        self.keys: ByKey | None = None
        """Owners of the key hashes; None on a Shared subscription."""
        if meta is not None and selector is not None:
            self.keys = ByKey(
                settings=self.settings,
                meta=meta,
                selector=selector,
                consumers=self.consumer_set,
                redelivery=self.redelivery,
                delivery=self._delivery,
            )

    def reconfigure(self, settings: ServiceSettings) -> None:
        """Takes the settings, and renews those of the parts too."""
        self.consumer_set.reconfigure(settings)
        if self.keys is not None:
            self.keys.settings = settings
        super().reconfigure(settings)

    # Consumers

    def add_consumer(self, consumer: Consumer) -> None:
        """Adds a consumer. ConsumerBusy: its mode differs. ConsumerAssignError: its key hashes do not fit."""
        if not self.consumers:
            # Nothing is pending anywhere, so everything unacknowledged is delivered from the beginning.
            self.cursor.rewind()
        if self.keys is not None:
            self.keys.add(consumer)
        # After the line above, which may refuse the consumer: a dispatcher without consumers must not wait.
        if not self.consumers:
            self._delays.add_waiter(self)
        self.consumer_set.add(consumer)
        self.wake()

    def remove_consumer(self, consumer: Consumer) -> None:
        """Removes a consumer; its pending entries go to the others, without a higher redelivery count."""
        self.consumer_set.remove(consumer)
        if self.consumers:
            self.redelivery.add_sent((key, consumer.hashes.get(key, 0)) for key in consumer.pending)
        else:
            self.redelivery.stop()
            self.cursor.on_acknowledged = None
            # The next consumer's dispatcher finds due messages when it reads them again.
            self._delays.remove_waiter(self)
            self._due = NOTHING_DEFERRED
            self.cursor.deferred = NOTHING_DEFERRED
        consumer.pending.clear()
        consumer.hashes.clear()
        if self.keys is not None:
            self.keys.remove(consumer)
        self.wake()

    # Dispatch

    def run_once(self, now_ns: int) -> None:
        """Sends entries for a few rounds, while permits and entries last."""
        self.cursor.context.note_change()
        consumers, redelivery, settings = self.consumer_set, self.redelivery, self.settings
        bytes_max = settings.read_bytes_max
        limits = None if self.limits is None else self._limits_in_force()
        self._delivery.limits, self._delivery.now_ns = limits, now_ns
        for _ in range(ROUNDS_PER_TURN):
            permits = consumers.permits(self.wake)
            if permits <= 0:
                # No consumer has permits: fetched entries must not hold the budget of reads in flight.
                redelivery.put_off()
                return
            wanted = min(consumers.entries_for(permits), settings.read_entries_max)
            if limits is not None:
                messages, size = self._allowed(limits, now_ns)
                if not messages:
                    redelivery.put_off()
                    return
                wanted = min(
                    wanted, messages if settings.throttle_entries else consumers.entries_for(messages)
                )
                bytes_max = min(settings.read_bytes_max, size)
            if self._due.count:
                self._queue_due(wanted)
            # Older entries first: new ones are read when nothing that waits could be sent.
            if redelivery.has_work and self._redeliver(wanted):
                continue
            if not self._send_new(wanted, bytes_max):
                return
        # The rounds are used up and there may be more: go on in the next round of the turn.
        self.wake()

    def _send_new(self, wanted: int, bytes_max: int) -> bool:
        """Sends entries that the cursor reads next; returns False when there is nothing to go on with."""
        if self.settings.pause_on_ack_state:
            wanted = min(wanted, self._entries_before_pause())
            if not wanted:
                return False
        keys, delays = self.keys, self._delays
        if keys is not None and not keys.may_read_on():
            return False
        if delays.held.count and delays.pauses(self.cursor.read_position):
            return False
        entries = self.cursor.take(wanted, bytes_max)
        if not entries:
            self._read_on(wanted)
            return False
        if delays.looks_in(entries[0].ledger_id):
            entries, late = delays.hold_back(entries)
            if late:
                # As in Pulsar, the expected read ends here: the entry is read again when it is due.
                self.mark_delivered(late)
            if not entries:
                return True
        if keys is not None:
            # Entries of other keys may be sent before one that has to wait, so each waits by itself.
            if unsent := keys.send(entries, again=False):
                self.redelivery.add_unsent(unsent)
                return True
        elif unsent := self._delivery.deal(entries):
            # The end of the run: the cursor returns it first at the next `take`.
            self.cursor.give_back(unsent[0].position, unsent)
        return not self._finds_nothing_more()

    def _entries_before_pause(self) -> int:
        """Returns how many entries may be read on; 0 while acknowledgements must come first.

        Nothing new is sent while the cursor's info cannot hold all acknowledgements. As in Pulsar, redelivered entries are
        sent all the same, because their acknowledgements close holes. For the same reason reading goes on up to the last
        acknowledged entry: consumers that all left and came back would otherwise get none of the holes, and the pause would
        never end.
        """
        cursor = self.cursor
        if cursor.store.stores_all_acks:
            cursor.on_acknowledged = None
            return self.settings.read_entries_max
        cursor.on_acknowledged = self.wake
        ledger_id, last = cursor.acks.beyond.last()
        following = cursor.acks.first_open(cursor.read_position)
        if following.ledger_id < ledger_id:
            return self.settings.read_entries_max
        return max(last - following.entry_id, 0) if following.ledger_id == ledger_id else 0

    def place_of(self, key: PositionKey) -> Whereabouts:
        """Returns the place of an unacknowledged entry; one that a transaction has acknowledged counts as forgotten here."""
        consumer = self.consumer_set.owner_of(key)
        if consumer is not None:
            return Whereabouts(Place.CONSUMER, consumer)
        if self.redelivery.has(key) or key in self._due:
            return Whereabouts(Place.REDELIVERY)
        if key in self._delays.held:
            return Whereabouts(Place.DELAYED)
        return Whereabouts(Place.FORGOTTEN if self.cursor.has_passed(*key) else Place.AHEAD)

    def deliver_forgotten(self, entries: list[Entry]) -> None:
        """Sends entries again that are in no place."""
        if self.keys is None:
            self.redelivery.add_fetched(entries)
        else:
            # Through the queue, where older entries of a key that wait keep their place before these.
            hash_of = self.redelivery.hash_of
            self.redelivery.add_sent([(entry.position, hash_of(entry)) for entry in entries])
            for consumer in self.consumers:
                for key in [entry.position for entry in entries]:
                    # The error that lost the entry may have left its hash, which would then drain for ever.
                    if key in consumer.hashes:
                        self.keys.settled(consumer, key)
        self.wake()

    def leave_out(self, held: RangeSet) -> None:
        """Lets the cursor leave out positions that wait for their delivery time."""
        self.cursor.deferred = held

    def due(self, keys: list[PositionKey]) -> None:
        """Notes positions whose delivery time has come, and wakes: reading may have paused for them."""
        passed = self.cursor.has_passed
        for ledger_id, entry_id in keys:
            # Others are still before the cursor, which finds them when it reads on.
            if passed(ledger_id, entry_id):
                if self._due is NOTHING_DEFERRED:
                    self._due = RangeSet()
                self._due.add(ledger_id, entry_id)
        self.wake()

    def _queue_due(self, wanted: int) -> None:
        """Passes some of the due positions on to the redelivery queue, as many as can be sent soon."""
        queue = self.redelivery.queue
        if len(queue) >= wanted if self.keys is None else not self.keys.may_read_on():
            return
        keys = self._due.pop_first(wanted)
        if self._delays.clock_went_back:
            # An entry may have been due once before; the consumer that has it must not get it again.
            keys = [key for key in keys if self.consumer_set.owner_of(key) is None]
        # The hash 0 stands for a key that is not known before the entry is read.
        self.redelivery.add_sent((key, 0) for key in keys)

    def _redeliver(self, wanted: int) -> bool:
        """Sends entries that wait for redelivery; returns True when any was sent, so new ones come later."""
        keys = self.keys
        entries = self.redelivery.read(wanted, None if keys is None else keys.redelivery_filter())
        if not entries:
            return False
        unsent = self._delivery.deal(entries) if keys is None else keys.send(entries, again=True)
        if unsent:
            self.redelivery.add_unsent(unsent)
        return len(unsent) < len(entries)

    # Acknowledgements and redelivery

    def settled(
        self, consumer: Consumer, key: PositionKey, remaining: int = 0, *, final: bool = True
    ) -> None:
        """Counts an acknowledgement, after which `remaining` messages of the entry are pending.

        The entry may be pending at another consumer: Pulsar lets every consumer acknowledge every entry.
        `final`: False in a transaction, which may abort; the redelivery count stays until it commits.
        """
        owner = consumer if key in consumer.pending else self.consumer_set.owner_of(key)
        if owner is not None:
            before = owner.pending[key]
            # A late acknowledgement of part of a batch must not raise the count again.
            remaining = min(remaining, before)
            if remaining:
                owner.pending[key] = remaining
            else:
                del owner.pending[key]
                if self.keys is not None and self.keys.settled(owner, key):
                    self.wake()
            if self.consumer_set.count_settled(owner, before - remaining):
                self.wake()
        if final:
            self.redelivery.acknowledged(key, remaining)
        elif not remaining:
            self.redelivery.discard(key)

    def run_settled(self, consumer: Consumer, run: EntryRange) -> None:
        """Counts the acknowledgement of whole entries that follow one another, as `settled` does for each."""
        take, settled = consumer.pending.pop, 0
        keys, redelivery = self.keys, self.redelivery
        counted = bool(redelivery.counts or redelivery.queue)
        for key in zip(repeat(run.ledger_id), range(run.first, run.last + 1)):
            before = take(key, 0)
            if not before:
                # At another consumer, or at none.
                self.settled(consumer, key)
                continue
            settled += before
            if keys is not None and keys.settled(consumer, key):
                self.wake()
            if counted:
                redelivery.acknowledged(key, 0)
        if self.consumer_set.count_settled(consumer, settled):
            self.wake()

    def take_back(self, keys: Iterable[tuple[PositionKey, int]]) -> None:
        """Sends entries again whose acknowledgements were taken back, given as (position, key hash) pairs.

        Some messages of a batch may be pending still; then the whole rest of the batch is sent again.
        """
        pairs = list(keys)
        self.redelivery.add_sent(pairs)
        for key, _ in pairs:
            owner = self.consumer_set.owner_of(key)
            if owner is not None:
                self.consumer_set.count_settled(owner, owner.pending.pop(key))
                if self.keys is not None:
                    self.keys.settled(owner, key)
            self.redelivery.count(key)
        self.wake()

    def redeliver(self, consumer: Consumer, keys: Iterable[PositionKey] | None) -> None:
        """Sends these positions again, None = all pending at the consumer.

        Positions that are not pending at this consumer are ignored, as in Pulsar.
        """
        asked = consumer.pending if keys is None else dict.fromkeys(keys)
        # A list, because the loop below removes from `pending`, which `asked` may be.
        wanted = [key for key in asked if key in consumer.pending]
        # First: `keys.settled` below removes the hashes that the queue needs.
        self.redelivery.add_sent([(key, consumer.hashes.get(key, 0)) for key in wanted])
        for key in wanted:
            self.consumer_set.count_settled(consumer, consumer.pending.pop(key))
            if self.keys is not None:
                self.keys.settled(consumer, key)
            self.redelivery.count(key)
        # Also with many other messages pending: a consumer that gives messages back must be able to receive them.
        consumer.blocked = False
        self.wake()


def _no_hash(entry: Entry) -> int:
    return 0
