"""Decisions: the inputs and decisions of the cache as a stream of events, most of them about runs of entries.

Two consumers may listen. A ring of the newest events answers why an entry is or is not cached (`explain.py`), and a
recorder writes all events to files that can be replayed. An event is one tuple of numbers and names; it never holds an
entry, so it keeps no buffer alive. While neither consumer listens, every method returns at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from entry_cache.listener import HitKind, Obstacle, Redelivery, StorageRead
from entry_cache.observe.cache_events import (
    CAUSES_OF_REQUEUES,
    HIT_MOVES,
    NOT_COUNTED,
    STILL_EXPECTED,
    CacheEvent,
    Op,
)
from entry_cache.observe.decision_ring import DecisionRing
from entry_cache.observe.ledger_logs import LedgerLogs
from entry_cache.observe.reader_names import names_at_or_before
from entry_cache.observe.recorded_inputs import EventSink, RecordedInputs
from entry_cache.policy import Requeued
from entry_cache.range_cache import CachedLog
from entry_cache.reader import Reader
from entry_cache.runs import runs_of, split_runs
from foundation.model.entry import Entry

log = logging.getLogger("magnetar")


class RecordedRun(list[Entry]):
    """The entries of one read from the cache while a recorder listens.

    When the list is delivered as it is, its event is made without a look at its entries. That look would cost more than
    everything else that recording does.
    """

    __slots__ = ("hit", "removals")
    hit: CacheEvent
    """The event of the read."""
    removals: int
    """How often entries had been removed by then: if none were since, all of these are still cached."""


class WatcherFailure(NamedTuple):
    """The end of an observer that failed."""

    at_ns: int
    """Time of the event that it failed at."""
    reason: str
    """The error: its class and text."""


class Decisions:
    """A listener that notes the cache's events for the ring and for a recorder."""

    def __init__(self, keep: int, now_ns: Callable[[], int], record: EventSink | None = None) -> None:
        """`keep`: events in the ring, 0 = none. `record` must listen from the start, or its record has gaps."""
        self.now_ns = now_ns
        """Returns the time of an event that is noted now."""
        self.ring = DecisionRing(keep, now_ns)
        """The newest events."""
        self.logs = LedgerLogs()
        """Knows the log of each ledger; a listener of its own."""
        self._removals = 0
        """How often entries were removed from the cache."""
        self._record = record
        # Unlike a recorder it may come and go while the cache is in use: it hears of no deliveries.
        self._watch: Callable[[CacheEvent], object] | None = None
        self.watcher_failure: WatcherFailure | None = None
        """The failure of the last observer, until `watch` is called again."""
        self.on = keep > 0 or record is not None
        """True while the ring, a recorder or a watcher listens."""

    def listen(self, record: EventSink | None) -> None:
        """Begins or ends to pass every event to a recorder. To be called before the cache is made."""
        self._record = record
        self.on = record is not None or self.ring.kept_max > 0

    def watch(self, take: Callable[[CacheEvent], object] | None) -> None:
        """Begins or ends to pass inserts, reads and removals to an observer, at any time."""
        self._watch = take
        self.watcher_failure = None
        self.on = self._record is not None or take is not None or self.ring.kept_max > 0

    @property
    def hears_deliveries(self) -> bool:
        """True if a recorder listens: the ring does not keep deliveries."""
        return self._record is not None

    def inputs(self) -> RecordedInputs | None:
        """Returns the listener that records the rest of the events; None if no recorder listens."""
        return None if self._record is None else RecordedInputs(self._record, self.logs, self.now_ns)

    def keep(self, events: int) -> None:
        """Changes the length of the ring; see `DecisionRing.keep`."""
        self.ring.keep(events)
        self.on = self._record is not None or self._watch is not None or events > 0

    def _note(self, row: CacheEvent) -> None:
        self.ring.append(row)
        if self._watch is not None:
            self._tell_watcher(self._watch, row)
        if self._record is not None:
            self._record(row)

    def _tell_watcher(self, take: Callable[[CacheEvent], object], row: CacheEvent) -> None:
        """Passes an event to the observer, and leaves it when it fails."""
        try:
            take(row)
        except Exception as error:
            # It is called in the middle of inserts and reads: its defect would end the delivery of messages.
            self.watch(None)
            self.watcher_failure = WatcherFailure(row[0], f"{type(error).__name__}: {error}")
            log.exception("! the observer of cache events failed and is switched off; its page says so")

    # Entries that enter

    def inserted(
        self,
        cache: CachedLog,
        entries: Sequence[Entry],
        size_bytes: int,
        expected_reads: int | None,
        now_ns: int,
    ) -> None:
        """Notes INSERT, once for each run without gaps."""
        if not self.on:
            return
        head, count = entries[0], len(entries)
        detail = NOT_COUNTED if expected_reads is None else expected_reads
        first = head.entry_id
        who = () if cache.cursors is None else names_at_or_before(cache.cursors, (head.ledger_id, first))
        # Ids ascend, so the first and the last one tell of gaps without a look at those between.
        if entries[-1].entry_id - first == count - 1:
            ledger_id = head.ledger_id
            row: CacheEvent = (
                now_ns,
                Op.INSERT,
                cache.name,
                0,
                ledger_id,
                first,
                count,
                size_bytes,
                detail,
                who,
                (),
            )
            # As `_note`, written out: this runs once per message.
            self.ring.append(row)
            if self._watch is not None:
                self._tell_watcher(self._watch, row)
            if self._record is not None:
                self._record(row)
            return
        # A run in which some entries were present already: rare enough for a row of each entry.
        for entry in entries:
            run = (entry.ledger_id, entry.entry_id, 1, entry.size)
            self._note((now_ns, Op.INSERT, cache.name, 0, *run, detail, who, ()))

    def not_cached(self, cache: CachedLog, entries: Sequence[Entry], obstacle: Obstacle, now_ns: int) -> None:
        """Notes NOT_CACHED, for the ring."""
        if self.on:
            head = entries[0]
            # Only the ring gets it. A replay refuses the entries itself, so the event would be an output
            # without a use.
            run = (head.ledger_id, head.entry_id, len(entries), 0)
            self.ring.append((now_ns, Op.NOT_CACHED, cache.name, 0, *run, obstacle, (), ()))

    # Reads

    def run_read(
        self, cache: CachedLog, reader: Reader, entries: list[Entry], size_bytes: int
    ) -> list[Entry]:
        """Notes HIT of a run; returns a `RecordedRun` for a recorder."""
        if not self.on:
            return entries
        head, count = entries[0], len(entries)
        row: CacheEvent = (
            self.now_ns(),
            Op.HIT,
            cache.name,
            reader.number,
            head.ledger_id,
            head.entry_id,
            count,
            size_bytes,
            HIT_MOVES,
            reader.who,
            (),
        )
        self.ring.append(row)
        if self._watch is not None:
            self._tell_watcher(self._watch, row)
        if self._record is None:
            return entries
        self._record(row)
        # A copy, because a list takes no attributes; without a recorder the reader gets its own list.
        recorded = RecordedRun(entries)
        recorded.hit = row
        recorded.removals = self._removals
        return recorded

    def hit(self, cache: CachedLog, reader: Reader, run: tuple[int, int, int, int], kind: HitKind) -> None:
        """Notes HIT of single positions."""
        if self.on:
            self._note((self.now_ns(), Op.HIT, cache.name, reader.number, *run, int(kind), reader.who, ()))

    def asked_storage(
        self, read: StorageRead, cache: CachedLog, reader: Reader, ledger_id: int, first: int, count: int
    ) -> None:
        """Notes MISS, COALESCED or FAILED."""
        if self.on:
            # The `detail` lets a replay check that its cache has as many of the asked entries.
            cached = 0 if read is StorageRead.FAILED else _count_cached(cache, ledger_id, first, count)
            run = (ledger_id, first, count, 0)
            self._note((self.now_ns(), int(read), cache.name, reader.number, *run, cached, reader.who, ()))

    # Deliveries

    def delivered(self, entries: list[Entry]) -> None:
        """Notes DELIVER, for a recorder."""
        if type(entries) is RecordedRun and entries.removals == self._removals and self._record is not None:
            at_ns, _, log, _, ledger_id, first, count, size_bytes, _, _, _ = entries.hit
            # A dispatcher may deliver a part of the run, for lack of permits; then the runs are found entry by
            # entry.
            if count == len(entries):
                self._record((at_ns, Op.DELIVER, log, 0, ledger_id, first, count, size_bytes, 0, (), ()))
                return
        self._note_delivery(Op.DELIVER, entries, in_ring=False)

    def redelivery_changed(self, change: Redelivery, reader: Reader, entries: Sequence[Entry]) -> None:
        """Notes REDELIVERY and POSTPONED; DROPPED for a recorder."""
        # DROPPED comes with each acknowledgement of an entry that waited; it would push useful events out of
        # the ring.
        in_ring = change is not Redelivery.DROPPED
        if self._record is not None or (self.on and in_ring):
            self._note_delivery(Op(change), entries, reader.number, in_ring=in_ring)

    def _note_delivery(
        self, op: Op, entries: Sequence[Entry], reader: int = 0, *, in_ring: bool = True
    ) -> None:
        """Notes entries in runs of those that the cache holds (`detail` 0) and of other objects (1)."""
        now_ns = self.now_ns()
        # Another object of the same position may be cached. Its count is not touched by this delivery, so a
        # replay must leave it alone too.
        absent = [not entry.cached for entry in entries]
        for ledger_id, first, count, size_bytes, is_absent in split_runs(entries, absent):
            run = (ledger_id, first, count, size_bytes)
            row: CacheEvent = (now_ns, op, self.logs.of(ledger_id), reader, *run, int(is_absent), (), ())
            if in_ring:
                self.ring.append(row)
            if self._record is not None:
                self._record(row)

    # Passes and removals

    def requeued_wanted(self) -> Requeued | None:
        """Wants the requeued entries while anything listens."""
        return {} if self.on else None

    def requeued(self, requeued: Requeued) -> None:
        """Notes REQUEUE.

        Reads come before expected reads, and all before removals: a replay meets them in this order.
        """
        now_ns = self.now_ns()
        for cause in sorted(requeued, key=CAUSES_OF_REQUEUES.index, reverse=True):
            number = CAUSES_OF_REQUEUES.index(cause)
            for run in runs_of(requeued[cause]):
                self._note((now_ns, Op.REQUEUE, self.logs.of(run[0]), 0, *run, number, (), ()))

    def evicted(self, runs: Iterable[tuple[int, int, int, int, bool]], reason: int) -> None:
        """Notes EVICT; each run is flagged with True if reads of it were still expected. Called by `EvictionStats`."""
        if not self.on:
            return
        now_ns = self.now_ns()
        # Counted by call and not by entry: `delivered` only needs to know if anything was removed at all.
        self._removals += 1
        for ledger_id, first, count, size_bytes, expected in runs:
            run = (ledger_id, first, count, size_bytes)
            detail = reason + STILL_EXPECTED * expected
            self._note((now_ns, Op.EVICT, self.logs.of(ledger_id), 0, *run, detail, (), ()))


def _count_cached(cache: CachedLog, ledger_id: int, first: int, count: int) -> int:
    """Returns how many of `count` entries from `first` on are cached."""
    ledger = cache.ledgers.get(ledger_id)
    return 0 if ledger is None else len(ledger.ids_between(first, first + count))
