"""Decisions: what the cache was told and what it did, as a stream of events, most of them about runs of entries.

Two may listen: a ring of the newest events answers why an entry is or is not cached, and a recorder writes all of
them to files that can be replayed. Nothing is noted while neither does. An event costs one tuple; it holds numbers
and names, never entries, so that it keeps no memory alive.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from broker.entry_cache.cache_events import STILL_EXPECTED, Event, Obstacle, Op, Row
from broker.entry_cache.reader import Reader
from broker.entry_cache.runs import LeftRun, Run
from broker.model.entry import Entry

CLOSED_LEDGERS_MAX: Final = 65_536
"""Ledgers without cached entries whose logs are still known."""

LOOKS_UNTOLD_MAX: Final = 1 << 30
"""So that their number fits a recorder's columns."""

ROWS_PER_SLICE: Final = 20_000
"""Events that take 1 to 2 ms to look through."""


class TakenRun(list[Entry]):
    """What one read took from the cache while a recorder listens. Handed over as it is, it is told of without a look at
    its entries, which costs more than all the rest."""

    __slots__ = ("departures", "hit")
    departures: int
    """How often entries had left the cache by then: while none has left since, all of these are cached."""
    hit: Row
    """The event of the read."""


class Decisions:
    __slots__ = ("_closed", "_departures", "_looks", "_open", "_ring", "_since_ns", "now_ns", "on", "record")

    def __init__(self, keep: int, now_ns: Callable[[], int]) -> None:
        """`keep`: events in the ring, 0 = none."""
        self.now_ns = now_ns
        """The time of an event that is noted now."""
        self._ring: deque[Row] = deque(maxlen=keep)
        self._since_ns = now_ns()
        """When noting began."""
        self._open: dict[int, str] = {}
        """Of each ledger that caches hold entries of, its log."""
        self._closed: OrderedDict[int, str] = OrderedDict()
        """Likewise of those that none holds any more, or ever did; the newest of them."""
        self._departures = 0
        """Times that entries have left the cache."""
        self._looks = 0
        """At what entries pin, since the last one that was told."""
        self.record: Callable[[Row], object] | None = None
        """Gets every event, in order, while it is set; see `listen`."""
        self.on = keep > 0
        """Whether anybody listens."""

    def listen(self, record: Callable[[Row], object] | None) -> None:
        """Begin or end to hand every event to a recorder."""
        self.record = record
        self.on = record is not None or bool(self._ring.maxlen)

    def keep(self, events: int) -> None:
        """Another length of the ring; what is kept already stays as far as it fits."""
        began_anew = not self._ring.maxlen
        self._ring = deque(self._ring, events)
        self._since_ns = self.now_ns() if began_anew else self.since_ns
        self.on = self.record is not None or events > 0

    # Looking back

    @property
    def kept_max(self) -> int:
        return self._ring.maxlen or 0

    @property
    def kept(self) -> int:
        return len(self._ring)

    @property
    def forgets(self) -> bool:
        """Whether the ring is full: events older than `since_ns` have been dropped."""
        return len(self._ring) == self._ring.maxlen

    @property
    def since_ns(self) -> int:
        """What happened since then is in the ring."""
        return self._ring[0][0] if self._ring and self.forgets else self._since_ns

    def events(self) -> Iterator[Event]:
        """The ring, oldest first."""
        return map(_event, list(self._ring))

    def about(self, ledger_id: int, entry_id: int) -> Iterator[list[Event]]:
        """Those of the ring that tell of the entry, oldest first, in slices between which the loop may turn."""
        rows = list(self._ring)
        for start in range(0, len(rows), ROWS_PER_SLICE):
            yield [
                _event(row)
                for row in rows[start : start + ROWS_PER_SLICE]
                if row[4] == ledger_id and 0 <= entry_id - row[5] < row[6]
            ]

    # Noting; callers ask `on` first

    def ledger_opened(self, ledger_id: int, log: str) -> None:
        """Ledger ids are unique in a broker, so events about entries name their log by it."""
        self._closed.pop(ledger_id, None)
        self._open[ledger_id] = log

    def ledger_closed(self, ledger_id: int) -> None:
        """No cache holds entries of it any more; what was taken from one may still be handed over."""
        log = self._open.pop(ledger_id, None)
        if log is not None:
            self._know_closed(ledger_id, log)

    def _know_closed(self, ledger_id: int, log: str) -> None:
        self._closed[ledger_id] = log
        if len(self._closed) > CLOSED_LEDGERS_MAX:
            self._closed.popitem(last=False)

    def _log_of(self, ledger_id: int) -> str:
        """Empty where that is not known any more."""
        return self._open.get(ledger_id) or self._closed.get(ledger_id, "")

    def entries(
        self,
        op: Op,
        log: str,
        entries: Sequence[Entry],
        size_bytes: int,
        detail: int,
        at_ns: int,
        who: Sequence[str] = (),
    ) -> None:
        """INSERT, OFFER: consecutive entries, at least one. The ring keeps INSERT alone."""
        head = entries[0]
        run = (head.ledger_id, head.entry_id, len(entries), size_bytes)
        row: Row = (at_ns, op, log, 0, *run, detail, who, ())
        if op is Op.INSERT:
            self._ring.append(row)
        if self.record is not None:
            self.record(row)

    def sized(self, op: Op, log: str, entries: Sequence[Entry], detail: int, at_ns: int) -> None:
        """APPEND, FETCHED: consecutive entries, at least one, of whose sizes a recorder learns here and only here."""
        if self.record is not None:
            head = entries[0]
            if head.ledger_id not in self._open and head.ledger_id not in self._closed:
                self._know_closed(head.ledger_id, log)
            sizes = [entry.size for entry in entries]
            run = (head.ledger_id, head.entry_id, len(sizes), sum(sizes))
            self.record((at_ns, op, log, 0, *run, detail, (), sizes))

    def not_cached(self, log: str, entries: Sequence[Entry], obstacle: Obstacle, at_ns: int) -> None:
        """Consecutive entries, at least one."""
        head = entries[0]
        self._ring.append(
            (at_ns, Op.NOT_CACHED, log, 0, head.ledger_id, head.entry_id, len(entries), 0, obstacle, (), ())
        )

    def read(
        self,
        op: Op,
        log: str,
        reader: Reader,
        ledger_id: int,
        first: int,
        count: int,
        size_bytes: int,
        detail: int = 0,
    ) -> Row:
        """HIT, MISS, COALESCED, FAILED."""
        number, who = reader.number, reader.who
        row: Row = (self.now_ns(), op, log, number, ledger_id, first, count, size_bytes, detail, who, ())
        self._ring.append(row)
        if self.record is not None:
            self.record(row)
        return row

    def taken(self, entries: list[Entry], hit: Row) -> list[Entry]:
        """The same entries; `hit`: the HIT that has just been noted of all of them."""
        if self.record is None:
            return entries
        run = TakenRun(entries)
        run.hit = hit
        run.departures = self._departures
        return run

    def arrived(self, what: Op, log: str, reader: int, entries: Sequence[Entry], size_bytes: int) -> None:
        """Consecutive entries, at least one; `what`: MISS or COALESCED. Of use to a recorder alone."""
        if self.record is not None:
            now_ns, head = self.now_ns(), entries[0]
            at = (reader, head.ledger_id, head.entry_id, len(entries), size_bytes)
            self.record((now_ns, Op.ARRIVED, log, *at, what, (), ()))

    def requeued(self, runs: Iterable[Run], cause: int) -> None:
        """REQUEUE."""
        now_ns = self.now_ns()
        for ledger_id, first, count, size_bytes in runs:
            log = self._log_of(ledger_id)
            self._note((now_ns, Op.REQUEUE, log, 0, ledger_id, first, count, size_bytes, cause, (), ()))

    def evicted(self, runs: Iterable[LeftRun], reason: int) -> None:
        """EVICT."""
        now_ns = self.now_ns()
        self._departures += 1
        for ledger_id, first, count, size_bytes, expected in runs:
            log = self._log_of(ledger_id)
            detail = reason + STILL_EXPECTED * expected
            self._note((now_ns, Op.EVICT, log, 0, ledger_id, first, count, size_bytes, detail, (), ()))

    def _note(self, row: Row) -> None:
        self._ring.append(row)
        if self.record is not None:
            self.record(row)

    def handed_over(self, entries: list[Entry]) -> None:
        """DELIVER: any entries, at least one. Of use to a recorder alone."""
        if type(entries) is TakenRun and entries.departures == self._departures and self.record is not None:
            at_ns, _, log, _, ledger_id, first, count, size_bytes, _, _, _ = entries.hit
            if count == len(entries):
                self.record((at_ns, Op.DELIVER, log, 0, ledger_id, first, count, size_bytes, 0, (), ()))
                return
        self.counted(Op.DELIVER, entries)

    def counted(self, op: Op, entries: Sequence[Entry], reader: int = 0) -> None:
        """DELIVER, REPLAY, KEPT_BACK, GIVEN_UP: any entries. The first and the last are of use to a recorder
        alone."""
        now_ns = self.now_ns()
        for ledger_id, first, count, size_bytes, gone in _runs_by_absence(entries):
            log = self._log_of(ledger_id)
            row: Row = (now_ns, op, log, reader, ledger_id, first, count, size_bytes, gone, (), ())
            if op is not Op.DELIVER and op is not Op.GIVEN_UP:
                self._ring.append(row)
            if self.record is not None:
                self.record(row)

    def place(
        self,
        op: Op,
        log: str,
        reader: int,
        ledger_id: int,
        entry_id: int,
        detail: int = 0,
        at_ns: int | None = None,
    ) -> None:
        """CURSOR_…, ACK, INVALIDATE, CLOSE: of use to a recorder alone."""
        if self.record is not None:
            now_ns = self.now_ns() if at_ns is None else at_ns
            self.record((now_ns, op, log, reader, ledger_id, entry_id, 0, 0, detail, (), ()))

    def passed(self, op: Op, now_ns: int, visits_max: int) -> None:
        """TICK, SIZE_CHECK: noted before the pass runs. Of use to a recorder alone."""
        if self.record is not None:
            self.record((now_ns, op, "", 0, 0, 0, visits_max, 0, 0, (), ()))

    def looked_at_pinned(self, size_bytes: int, *, matters: bool) -> None:
        """PINNED, if something depends on it: what receive buffers are kept alive cannot be told from anything else in
        a record."""
        self._looks += 1
        if (matters or self._looks == LOOKS_UNTOLD_MAX) and self.record is not None:
            self.record((self.now_ns(), Op.PINNED, "", 0, 0, 0, self._looks, size_bytes, 0, (), ()))
            self._looks = 0

    # What makes a record readable by itself

    def opened(self, log: str, continue_ns: int, detail: int, at_ns: int) -> None:
        """OPEN. Times in a record are whole microseconds, so a span is rounded up to the next without a loss."""
        if self.record is not None:
            continue_us = -(-continue_ns // 1000)
            self.record((at_ns, Op.OPEN, log, 0, 0, 0, 0, continue_us, detail, (), ()))

    def reader_made(self, log: str, number: int, name: str) -> None:
        if self.record is not None:
            self.record((self.now_ns(), Op.READER, log, number, 0, 0, 0, 0, 0, (name,), ()))

    def configured(self, settings: str) -> None:
        if self.record is not None:
            self.record((self.now_ns(), Op.SETTINGS, "", 0, 0, 0, 0, 0, 0, (settings,), ()))


def _event(row: Row) -> Event:
    return Event(row[0], Op(row[1]), *row[2:])


def _runs_by_absence(entries: Iterable[Entry]) -> Iterator[tuple[int, int, int, int, int]]:
    """Such runs, cut also where it changes whether the object is the one that the cache holds: 0, else 1."""
    ledger_id = first = following = -1
    size_bytes = 0
    cached = True
    for entry in entries:
        if entry.entry_id != following or entry.cached is not cached or entry.ledger_id != ledger_id:
            if following >= 0:
                yield ledger_id, first, following - first, size_bytes, 0 if cached else 1
            ledger_id = entry.ledger_id
            first = following = entry.entry_id
            size_bytes = 0
            cached = entry.cached
        following += 1
        size_bytes += entry.size
    if following >= 0:
        yield ledger_id, first, following - first, size_bytes, 0 if cached else 1
