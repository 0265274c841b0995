"""Decisions: what the cache was told and what it did, as a stream of events, most of them about runs of entries.

Two may listen: a ring of the newest events answers why an entry is or is not cached, and a recorder writes all of
them to files that can be replayed. Nothing is noted while neither does. An event costs one tuple; it holds numbers
and names, never entries, so that it keeps no memory alive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from broker.entry_cache.cache_stats import Reason
from broker.model.entry import Entry

LEDGERS_KNOWN_MAX: Final = 65_536


class Op(IntEnum):
    """What an event tells. The numbers stand in recorded files and never change."""

    APPEND = 1
    """Entries were confirmed in the log."""
    INSERT = 2
    """They entered the cache; `detail` = expected reads, -1 = not counted."""
    HIT = 3
    MISS = 4
    """They were asked of storage."""
    COALESCED = 5
    """They were asked for while another reader's storage read for them was under way."""
    FAILED = 6
    """A storage read ended with an error: its MISS and COALESCED events came to nothing."""
    DELIVER = 7
    """They were written to a consumer: one expected read of each is done."""
    REPLAY = 8
    """They wait to be read once more."""
    REQUEUE = 9
    """They could have gone and stay for another while; `detail` = a number of CAUSES."""
    EVICT = 10
    """They left the cache; `detail` = a number of REASONS."""
    CURSOR_ADDED = 11
    """A cursor became active; it stands at (`ledger_id`, `first`)."""
    CURSOR_MOVED = 12
    """An active cursor stands at another place for another reason than a hit, which moves it behind the run."""
    CURSOR_LEFT = 13
    ACK = 14
    """Everything up to (`ledger_id`, `first`) is acknowledged by the cursor."""
    TICK = 15
    """The periodic pass ran, or a slice of it of at most `count` visits."""
    SIZE_CHECK = 16
    """A check that an insert had asked for ran, likewise."""
    INVALIDATE = 17
    """The entries up to (`ledger_id`, `first`), it excluded, were invalidated; `detail` 1 = of that ledger alone, all."""
    CLOSE = 18
    """The log's cache was dropped."""
    OFFER = 19
    """Entries were offered that are present already; `detail` = expected reads."""
    KEPT_BACK = 20
    """They were read and not delivered, and wait to be read once more."""
    TAKEN_AGAIN = 21
    """The hit just before was that of a replay."""


REASONS: Final = tuple(Reason)
"""By number: the `detail` of EVICT."""

CAUSES: Final = ("expected_reads", "recently_accessed", "may_return")
"""By number: the `detail` of REQUEUE."""


class Event(NamedTuple):
    at_ns: int
    op: Op
    log: str
    """The managed ledger's name; empty where the event is about the whole cache."""
    reader: int
    """The number of the cursor within its log, 0 = nobody."""
    ledger_id: int
    first: int
    entries: int
    size_bytes: int
    """Of all entries together; 0 where that is not known yet."""
    detail: int
    who: Sequence[str]
    """INSERT: the names of the cursors that were to read it."""
    sizes: Sequence[int]
    """APPEND and INSERT, for a recorder: bytes of each entry."""


Row = tuple[int, int, str, int, int, int, int, int, int, Sequence[str], Sequence[int]]
"""An `Event` as it is noted: making a plain tuple costs a fraction."""

Run = tuple[int, int, int, int]
"""(ledger id, first entry id, entries, bytes)"""


class Decisions:
    __slots__ = ("_ledgers", "_now_ns", "_ring", "on", "record")

    def __init__(self, keep: int, now_ns: Callable[[], int]) -> None:
        """`keep`: events in the ring, 0 = none."""
        self._now_ns = now_ns
        self._ring: deque[Row] = deque(maxlen=keep)
        self._ledgers: dict[int, str] = {}
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
        self._ring = deque(self._ring, events)
        self.on = self.record is not None or events > 0

    def events(self) -> Iterator[Event]:
        """The ring, oldest first."""
        return (Event(row[0], Op(row[1]), *row[2:]) for row in list(self._ring))

    # Noting; callers ask `on` first

    def ledger_opened(self, ledger_id: int, log: str) -> None:
        """Ledger ids are unique in a broker, so events about entries name their log by it."""
        self._ledgers.pop(ledger_id, None)
        self._ledgers[ledger_id] = log
        if len(self._ledgers) > LEDGERS_KNOWN_MAX:
            del self._ledgers[next(iter(self._ledgers))]

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
        """APPEND, INSERT, OFFER: consecutive entries, at least one."""
        head = entries[0]
        row = (at_ns, op, log, 0, head.ledger_id, head.entry_id, len(entries), size_bytes, detail, who)
        if op is Op.INSERT:
            self._ring.append((*row, ()))
        if self.record is not None:
            self.record((*row, [entry.size for entry in entries]))

    def read(
        self, op: Op, log: str, reader: int, ledger_id: int, first: int, count: int, size_bytes: int
    ) -> None:
        """HIT, MISS, COALESCED, FAILED."""
        row: Row = (self._now_ns(), op, log, reader, ledger_id, first, count, size_bytes, 0, (), ())
        self._ring.append(row)
        if self.record is not None:
            self.record(row)

    def runs(self, op: Op, entries: Sequence[Entry], detail: int, at_ns: int | None = None) -> None:
        """DELIVER, REPLAY, KEPT_BACK, REQUEUE, EVICT: any entries."""
        now_ns = self._now_ns() if at_ns is None else at_ns
        names = self._ledgers
        for ledger_id, first, count, size_bytes in runs_of(entries):
            log = names.get(ledger_id, "")
            row: Row = (now_ns, op, log, 0, ledger_id, first, count, size_bytes, detail, (), ())
            if op is not Op.DELIVER:
                self._ring.append(row)
            if self.record is not None:
                self.record(row)

    def place(self, op: Op, log: str, reader: int, ledger_id: int, entry_id: int, detail: int = 0) -> None:
        """CURSOR_…, ACK, TAKEN_AGAIN, INVALIDATE, CLOSE: of use to a recorder alone."""
        if self.record is not None:
            self.record((self._now_ns(), op, log, reader, ledger_id, entry_id, 0, 0, detail, (), ()))

    def passed(self, op: Op, now_ns: int, visits_max: int) -> None:
        """TICK, SIZE_CHECK: noted before the pass runs. Of use to a recorder alone."""
        if self.record is not None:
            self.record((now_ns, op, "", 0, 0, 0, visits_max, 0, 0, (), ()))


def runs_of(entries: Iterable[Entry]) -> Iterator[Run]:
    """Entries as runs of consecutive ids of one ledger, in the order given."""
    ledger_id = first = following = -1
    size_bytes = 0
    for entry in entries:
        if entry.entry_id != following or entry.ledger_id != ledger_id:
            if following >= 0:
                yield ledger_id, first, following - first, size_bytes
            ledger_id = entry.ledger_id
            first = following = entry.entry_id
            size_bytes = 0
        following += 1
        size_bytes += entry.size
    if following >= 0:
        yield ledger_id, first, following - first, size_bytes
