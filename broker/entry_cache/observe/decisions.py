"""Decisions: the inputs and decisions of the cache as a stream of events, most of them about runs of entries.

Two consumers may listen. A ring of the newest events answers why an entry is or is not cached (`explain.py`), and a
recorder writes all events to files that can be replayed. An event is one tuple of numbers and names; it never holds an
entry, so it keeps no buffer alive. While neither consumer listens, every method returns at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from broker.entry_cache.active_cursors import ActiveCursors
from broker.entry_cache.listener import CursorChange, HitKind, Obstacle, Pass, StorageRead
from broker.entry_cache.observe.cache_events import (
    CAUSES_OF_REQUEUES,
    HIT_MOVES,
    STILL_EXPECTED,
    Op,
    Row,
    detail_of,
)
from broker.entry_cache.observe.decision_ring import DecisionRing
from broker.entry_cache.observe.ledger_logs import LedgerLogs
from broker.entry_cache.policy import Requeued
from broker.entry_cache.range_cache import CachedLog
from broker.entry_cache.reader import Reader
from broker.entry_cache.runs import runs_of, split_runs
from broker.entry_cache.settings import EntryCacheSettings
from broker.model.entry import Entry
from broker.model.position import Position

LOOKS_UNTOLD_MAX: Final = 1 << 30
"""A PINNED event follows after this many looks at the latest, so that their number fits a recorder's column."""

Recorder = Callable[[Row], object]
"""Takes every event, in order."""


class RecordedRun(list[Entry]):
    """The entries of one read from the cache while a recorder listens.

    When the list is delivered as it is, its event is made without a look at its entries. That look would cost more than
    everything else that recording does.
    """

    __slots__ = ("hit", "removals")
    hit: Row
    """The event of the read."""
    removals: int
    """How often entries had been removed by then: if none were since, all of these are still cached."""


class Decisions:
    """A listener that notes the cache's events for the ring and for a recorder."""

    __slots__ = ("_looks", "_record", "_removals", "logs", "now_ns", "on", "ring")

    def __init__(self, keep: int, now_ns: Callable[[], int], record: Recorder | None = None) -> None:
        """`keep`: events in the ring, 0 = none. `record` must listen from the start, or its record has gaps."""
        self.now_ns = now_ns
        """Returns the time of an event that is noted now."""
        self.ring = DecisionRing(keep, now_ns)
        """The newest events."""
        self.logs = LedgerLogs()
        """Knows the log of each ledger; a listener of its own."""
        self._removals = 0
        """How often entries were removed from the cache."""
        self._looks = 0
        """Looks at pinned bytes since the last PINNED event."""
        self._record = record
        self.on = keep > 0 or record is not None
        """True while the ring or a recorder listens."""

    def listen(self, record: Recorder | None) -> None:
        """Begins or ends to pass every event to a recorder. Call it before the cache is made."""
        self._record = record
        self.on = record is not None or self.ring.kept_max > 0

    @property
    def hears_deliveries(self) -> bool:
        """True if a recorder listens: the ring does not keep deliveries."""
        return self._record is not None

    def keep(self, events: int) -> None:
        """Changes the length of the ring; see `DecisionRing.keep`."""
        self.ring.keep(events)
        self.on = self._record is not None or events > 0

    def _note(self, row: Row) -> None:
        self.ring.append(row)
        if self._record is not None:
            self._record(row)

    # Entries that enter

    def appended(self, cache: CachedLog, entries: Sequence[Entry], now_ns: int) -> None:
        """APPEND, for a recorder."""
        if self._record is not None:
            self.logs.seen(entries[0].ledger_id, cache.name)
            self._record(_sized_row(Op.APPEND, cache.name, entries, 0, now_ns))

    def fetched(
        self, cache: CachedLog, entries: Sequence[Entry], expected_reads: int | None, now_ns: int
    ) -> None:
        """FETCHED, for a recorder."""
        if self._record is not None and entries:
            self.logs.seen(entries[0].ledger_id, cache.name)
            self._record(_sized_row(Op.FETCHED, cache.name, entries, detail_of(expected_reads), now_ns))

    def inserted(
        self,
        cache: CachedLog,
        entries: Sequence[Entry],
        size_bytes: int,
        expected_reads: int | None,
        now_ns: int,
    ) -> None:
        """INSERT, once for each run without gaps."""
        if not self.on:
            return
        head, detail = entries[0], detail_of(expected_reads)
        who = () if cache.cursors is None else cache.cursors.names_at_or_before(head.position)
        if entries[-1].entry_id - head.entry_id == len(entries) - 1:
            run = (head.ledger_id, head.entry_id, len(entries), size_bytes)
            self._note((now_ns, Op.INSERT, cache.name, 0, *run, detail, who, ()))
            return
        for entry in entries:
            run = (entry.ledger_id, entry.entry_id, 1, entry.size)
            self._note((now_ns, Op.INSERT, cache.name, 0, *run, detail, who, ()))

    def offered_again(self, cache: CachedLog, entry: Entry, expected_reads: int | None, now_ns: int) -> None:
        """OFFER, for a recorder."""
        if self._record is not None:
            run = (entry.ledger_id, entry.entry_id, 1, entry.size)
            self._record((now_ns, Op.OFFER, cache.name, 0, *run, detail_of(expected_reads), (), ()))

    def not_cached(self, cache: CachedLog, entries: Sequence[Entry], obstacle: Obstacle, now_ns: int) -> None:
        """NOT_CACHED, for the ring."""
        if self.on:
            head = entries[0]
            run = (head.ledger_id, head.entry_id, len(entries), 0)
            self.ring.append((now_ns, Op.NOT_CACHED, cache.name, 0, *run, obstacle, (), ()))

    # Reads

    def run_read(
        self, cache: CachedLog, reader: Reader, entries: list[Entry], size_bytes: int
    ) -> list[Entry]:
        """HIT of a run; returns a `RecordedRun` for a recorder."""
        if not self.on:
            return entries
        head = entries[0]
        run = (head.ledger_id, head.entry_id, len(entries), size_bytes)
        row: Row = (self.now_ns(), Op.HIT, cache.name, reader.number, *run, HIT_MOVES, reader.who, ())
        self.ring.append(row)
        if self._record is None:
            return entries
        self._record(row)
        recorded = RecordedRun(entries)
        recorded.hit = row
        recorded.removals = self._removals
        return recorded

    def hit(self, cache: CachedLog, reader: Reader, run: tuple[int, int, int, int], kind: HitKind) -> None:
        """HIT of single positions."""
        if self.on:
            self._note((self.now_ns(), Op.HIT, cache.name, reader.number, *run, int(kind), reader.who, ()))

    def asked_storage(
        self, read: StorageRead, cache: CachedLog, reader: Reader, ledger_id: int, first: int, count: int
    ) -> None:
        """MISS, COALESCED or FAILED."""
        if self.on:
            cached = 0 if read is StorageRead.FAILED else cache.count_cached(ledger_id, first, count)
            run = (ledger_id, first, count, 0)
            self._note((self.now_ns(), int(read), cache.name, reader.number, *run, cached, reader.who, ()))

    def arrived(
        self, read: StorageRead, cache: CachedLog, reader: Reader, entries: Sequence[Entry], size_bytes: int
    ) -> None:
        """ARRIVED, for a recorder."""
        if self._record is not None:
            head = entries[0]
            run = (head.ledger_id, head.entry_id, len(entries), size_bytes)
            row = (self.now_ns(), Op.ARRIVED, cache.name, reader.number, *run, int(read), (), ())
            self._record(row)

    # Deliveries

    def delivered(self, entries: list[Entry]) -> None:
        """DELIVER, for a recorder."""
        if type(entries) is RecordedRun and entries.removals == self._removals and self._record is not None:
            at_ns, _, log, _, ledger_id, first, count, size_bytes, _, _, _ = entries.hit
            if count == len(entries):
                self._record((at_ns, Op.DELIVER, log, 0, ledger_id, first, count, size_bytes, 0, (), ()))
                return
        self._note_delivery(Op.DELIVER, entries, in_ring=False)

    def redelivery_expected(self, reader: Reader, entries: Sequence[Entry]) -> None:
        """REPLAY."""
        if self.on:
            self._note_delivery(Op.REPLAY, entries, reader.number)

    def delivery_postponed(self, reader: Reader, entries: Sequence[Entry]) -> None:
        """KEPT_BACK."""
        if self.on:
            self._note_delivery(Op.KEPT_BACK, entries, reader.number)

    def redelivery_dropped(self, reader: Reader, entries: Sequence[Entry]) -> None:
        """GIVEN_UP, for a recorder."""
        if self._record is not None:
            self._note_delivery(Op.GIVEN_UP, entries, reader.number, in_ring=False)

    def _note_delivery(
        self, op: Op, entries: Sequence[Entry], reader: int = 0, *, in_ring: bool = True
    ) -> None:
        """Notes entries in runs of those that the cache holds (`detail` 0) and of other objects (1)."""
        now_ns = self.now_ns()
        absent = [not entry.cached for entry in entries]
        for ledger_id, first, count, size_bytes, is_absent in split_runs(entries, absent):
            run = (ledger_id, first, count, size_bytes)
            row: Row = (now_ns, op, self.logs.of(ledger_id), reader, *run, int(is_absent), (), ())
            if in_ring:
                self.ring.append(row)
            if self._record is not None:
                self._record(row)

    # Passes and removals

    def requeued_wanted(self) -> Requeued | None:
        """Wants the requeued entries while anything listens."""
        return {} if self.on else None

    def pass_began(self, trigger: Pass, now_ns: int, visits_max: int) -> None:
        """TICK or SIZE_CHECK, for a recorder, before the pass runs."""
        if self._record is not None:
            self._record((now_ns, int(trigger), "", 0, 0, 0, visits_max, 0, 0, (), ()))

    def requeued(self, requeued: Requeued) -> None:
        """REQUEUE. Reads come before expected reads, and all before removals: a replay meets them in this order."""
        now_ns = self.now_ns()
        for cause in sorted(requeued, key=CAUSES_OF_REQUEUES.index, reverse=True):
            number = CAUSES_OF_REQUEUES.index(cause)
            for run in runs_of(requeued[cause]):
                self._note((now_ns, Op.REQUEUE, self.logs.of(run[0]), 0, *run, number, (), ()))

    def evicted(self, runs: Iterable[tuple[int, int, int, int, bool]], reason: int) -> None:
        """EVICT; each run is flagged with True if reads of it were still expected. Called by `EvictionStats`."""
        if not self.on:
            return
        now_ns = self.now_ns()
        self._removals += 1
        for ledger_id, first, count, size_bytes, expected in runs:
            run = (ledger_id, first, count, size_bytes)
            detail = reason + STILL_EXPECTED * expected
            self._note((now_ns, Op.EVICT, self.logs.of(ledger_id), 0, *run, detail, (), ()))

    def invalidating(self, cache: CachedLog, position: Position, now_ns: int, *, whole_ledger: bool) -> None:
        """INVALIDATE, for a recorder."""
        if self._record is not None:
            self._record((now_ns, Op.INVALIDATE, cache.name, 0, *position, 0, 0, int(whole_ledger), (), ()))

    def pinned_looked_at(self, size_bytes: int, matters: bool) -> None:
        """PINNED, for a recorder, if a decision depends on the look.

        Which receive buffers are kept alive cannot be told from anything else in a record. See `StrictSize`.
        """
        if self._record is not None:
            self._looks += 1
            if matters or self._looks == LOOKS_UNTOLD_MAX:
                self._record((self.now_ns(), Op.PINNED, "", 0, 0, 0, self._looks, size_bytes, 0, (), ()))
                self._looks = 0

    # Cursors and settings, which make a record readable by itself

    def cursor_changed(
        self,
        change: CursorChange,
        cache: CachedLog,
        reader: Reader,
        position: Position,
        at_ns: int | None = None,
    ) -> None:
        """CURSOR_ADDED, CURSOR_MOVED, CURSOR_LEFT, CURSOR_FORGOTTEN or ACK, for a recorder."""
        if self._record is not None:
            now_ns = self.now_ns() if at_ns is None else at_ns
            self._record((now_ns, int(change), cache.name, reader.number, *position, 0, 0, 0, (), ()))

    def cache_removed(self, cache: CachedLog) -> None:
        """CLOSE, for a recorder."""
        if self._record is not None:
            self._record((self.now_ns(), Op.CLOSE, cache.name, 0, 0, 0, 0, 0, 0, (), ()))

    def cursors_attached(self, cache: CachedLog, cursors: ActiveCursors, detail: int, now_ns: int) -> None:
        """OPEN, for a recorder. Records hold whole microseconds, so the span is rounded up to lose nothing."""
        if self._record is not None:
            continue_us = -(-cursors.continue_caching_ns // 1000)
            self._record((now_ns, Op.OPEN, cache.name, 0, 0, 0, 0, continue_us, detail, (), ()))

    def reader_made(self, cache: CachedLog, reader: Reader) -> None:
        """READER, for a recorder."""
        if self._record is not None:
            row = (self.now_ns(), Op.READER, cache.name, reader.number, 0, 0, 0, 0, 0, reader.who, ())
            self._record(row)

    def configured(self, settings: EntryCacheSettings) -> None:
        """SETTINGS, for a recorder."""
        if self._record is not None:
            text = settings.to_text()
            self._record((self.now_ns(), Op.SETTINGS, "", 0, 0, 0, 0, 0, 0, (text,), ()))


def _sized_row(op: Op, log: str, entries: Sequence[Entry], detail: int, at_ns: int) -> Row:
    """Returns APPEND or FETCHED, the only events that tell the size of each entry."""
    head = entries[0]
    sizes = [entry.size for entry in entries]
    return (at_ns, op, log, 0, head.ledger_id, head.entry_id, len(sizes), sum(sizes), detail, (), sizes)
