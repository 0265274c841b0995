"""Measures the reuse of entries: time and distance between two uses, and the cause of each miss.

The distance is the bytes that were appended or arrived from storage between two uses of an entry: the size
that a first-in-first-out cache without a time limit would have needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from entry_cache.cache_stats import Reason
from entry_cache.observe.cache_events import HIT_MOVES, REASONS, STILL_EXPECTED, Op
from pipeline.machine_code import compiled
from pipeline.replays.columns import RecordColumns

BUCKETS: Final = 48
"""Number of buckets; bucket n has values below 2 ** n microseconds or bytes."""

MISS_CAUSES: Final = (
    "never cached",
    "evicted by time",
    "evicted by size",
    "evicted otherwise",
    "redelivery",
    "restarted cursor",
)
"""Causes of misses.

The last two are of entries that the reader had read before. Restarted: its cursor was set back to the entry or before it, by
a seek or because its last consumer left. Redelivery: the consumer, or the one before it, did not acknowledge the entry.
"""
_NEVER, _TIME, _SIZE, _OTHERWISE, _REDELIVERY, _RESTARTED = range(6)
_CACHED = 6
USES: Final = (Op.APPEND, Op.FETCHED, Op.HIT, Op.MISS, Op.COALESCED, Op.ARRIVED, Op.INSERT, Op.EVICT)
"""Events on entries that the reuse depends on."""
MOVES: Final = (Op.CURSOR_ADDED, Op.CURSOR_MOVED)
"""Events on cursors that it depends on."""
_APPEND, _FETCHED, _HIT = int(Op.APPEND), int(Op.FETCHED), int(Op.HIT)
_MISS, _COALESCED, _ARRIVED = int(Op.MISS), int(Op.COALESCED), int(Op.ARRIVED)
_INSERT, _EVICT = int(Op.INSERT), int(Op.EVICT)
_ADDED, _MOVED = int(Op.CURSOR_ADDED), int(Op.CURSOR_MOVED)
_BY_TTL, _BY_SIZE = REASONS.index(Reason.TTL), REASONS.index(Reason.SIZE)


@dataclass(frozen=True, slots=True, eq=False)
class Reuse:
    """The reuse of entries in one broker lifetime."""

    reads: NDArray[np.int64]
    """Entries read, by bucket of time and bucket of distance."""
    causes: NDArray[np.int64]
    """Entries read from storage, by topic and index in MISS_CAUSES."""
    cause_bytes: NDArray[np.int64]
    """Their bytes."""


class ReuseOfEntries:
    """Measures the reuse of entries in one broker lifetime, a batch of its events after the other."""

    def __init__(self, topics: int, entries: int, readers: int) -> None:
        """Begins before the first event. It takes 30 bytes for each entry."""
        self._counts = _Counts(
            reads=np.zeros((BUCKETS, BUCKETS), np.int64),
            causes=np.zeros((topics, len(MISS_CAUSES)), np.int64),
            cause_bytes=np.zeros((topics, len(MISS_CAUSES)), np.int64),
            came=np.zeros(1, np.int64),
        )
        self._entries = _Entries(
            size=np.zeros(entries, np.int32),
            state=np.zeros(entries, np.uint8),
            asked=np.zeros(entries, np.uint8),
            seen=np.zeros(entries, np.uint64),
            used_ns=np.full(entries, -1, np.int64),
            used_at=np.zeros(entries, np.int64),
        )
        self._cursors = _Cursors(
            known=np.zeros(readers, np.bool_),
            at=np.zeros((readers, 2), np.int64),
            until=np.full((readers, 2), -1, np.int64),
        )

    def add(self, columns: RecordColumns, first: NDArray[np.int32], reader: NDArray[np.int64]) -> None:
        """Adds the next events on entries and cursors.

        `first`: dense number of each run's first entry. `reader`: number of each row's reader.
        """
        _measure(columns, first, reader, self._entries, self._cursors, self._counts)

    @property
    def found(self) -> Reuse:
        """The reuse so far."""
        return Reuse(self._counts.reads, self._counts.causes, self._counts.cause_bytes)


class _Counts(NamedTuple):
    """The counts of `Reuse`, and the bytes that came in so far."""

    reads: NDArray[np.int64]
    causes: NDArray[np.int64]
    cause_bytes: NDArray[np.int64]
    came: NDArray[np.int64]
    """One number."""


class _Entries(NamedTuple):
    """The facts about each entry, by dense number."""

    size: NDArray[np.int32]
    """Bytes; 0 = not known yet."""
    state: NDArray[np.uint8]
    """A cause of misses, or _CACHED."""
    asked: NDArray[np.uint8]
    """The state when it was last requested from storage."""
    seen: NDArray[np.uint64]
    """The readers that have read it, a bit each."""
    used_ns: NDArray[np.int64]
    """When it was last appended or read; -1 = never."""
    used_at: NDArray[np.int64]
    """The bytes that had come in by then."""


class _Cursors(NamedTuple):
    """The facts about each cursor, by the number of its reader."""

    known: NDArray[np.bool_]
    """True from its first event on. A record may lack the events of a cursor, see `accesses`."""
    at: NDArray[np.int64]
    """Ledger and entry that it reads next."""
    until: NDArray[np.int64]
    """Ledger and entry where it stood when it was set back; -1 once it is there again."""


@compiled
def _follow(cursors: _Cursors, columns: RecordColumns, row: int, reader: int) -> None:
    """Moves the cursor of a row's reader, if the row moves it."""
    known, at, until = cursors
    kind, ledger, entry = columns.op[row], columns.ledger[row], columns.entry[row]
    # A hit moves its cursor without a row of its own.
    if kind == _HIT and columns.detail[row] == HIT_MOVES and known[reader]:
        entry += columns.entries[row]
    elif kind != _ADDED and kind != _MOVED:
        return
    if known[reader] and (ledger < at[reader, 0] or (ledger == at[reader, 0] and entry < at[reader, 1])):
        # A seek, or the last consumer that left, ends the cursor's activity, and it is added again. While it stays active it
        # moves back for a redelivery alone: to consumers of the types Exclusive and Failover.
        # Set back twice: all entries up to the farthest place are read again.
        if kind == _ADDED and until[reader, 0] < 0:
            until[reader] = at[reader]
    elif ledger > until[reader, 0] or (ledger == until[reader, 0] and entry >= until[reader, 1]):
        until[reader] = -1
    known[reader] = True
    at[reader, 0], at[reader, 1] = ledger, entry


@compiled
def _again(cursors: _Cursors, reader: int, ledger: int, entry: int) -> int:
    """Returns why the reader reads an entry that it has read before."""
    end = cursors.until[reader]
    set_back = ledger < end[0] or (ledger == end[0] and entry < end[1])
    return _RESTARTED if set_back or not cursors.known[reader] else _REDELIVERY


@compiled
def _bucket(value: int) -> int:
    bucket = 0
    while value > 0 and bucket < BUCKETS - 1:
        value >>= 1
        bucket += 1
    return bucket


@compiled
def _measure(
    columns: RecordColumns,
    first: NDArray[np.int32],
    reader: NDArray[np.int64],
    entries: _Entries,
    cursors: _Cursors,
    counts: _Counts,
) -> None:
    """Adds each read to the counts."""
    op, at_ns, topic, sub = columns.op, columns.at_ns, columns.topic, columns.sub
    count, detail, size_bytes = columns.entries, columns.detail, columns.bytes
    size, state, asked, seen = entries.size, entries.state, entries.asked, entries.seen
    used_ns, used_at = entries.used_ns, entries.used_at
    came = counts.came[0]
    for i in range(len(op)):
        kind = op[i]
        # One bit per reader of the topic. Readers 64 apart share one, which can only turn a cause into one of the last two.
        bit = np.uint64(1) << np.uint64(sub[i] & 63)
        mean = size_bytes[i] // count[i] if count[i] else 0
        for x in range(first[i], first[i] + count[i]):
            # The recorder divides appended and fetched runs by size; of others only the mean of the run is known.
            if kind in (_APPEND, _FETCHED) or not size[x]:
                size[x] = mean
            if kind == _INSERT:
                state[x] = _CACHED
            elif kind == _EVICT:
                reason = detail[i] % STILL_EXPECTED
                state[x] = _TIME if reason == _BY_TTL else _SIZE if reason == _BY_SIZE else _OTHERWISE
            elif kind in (_MISS, _COALESCED):
                asked[x] = state[x]
            elif kind in (_HIT, _ARRIVED):
                if used_ns[x] >= 0:
                    counts.reads[_bucket((at_ns[i] - used_ns[x]) // 1000), _bucket(came - used_at[x])] += 1
                if kind == _ARRIVED and detail[i] == _MISS:
                    again = _again(cursors, reader[i], columns.ledger[i], columns.entry[i] + x - first[i])
                    cause = again if seen[x] & bit else asked[x] if asked[x] != _CACHED else _OTHERWISE
                    counts.causes[topic[i], cause] += 1
                    counts.cause_bytes[topic[i], cause] += size[x]
                seen[x] |= bit
                used_ns[x], used_at[x] = at_ns[i], came
            elif kind in (_APPEND, _FETCHED):
                came += size[x]
                if kind == _APPEND:
                    used_ns[x], used_at[x] = at_ns[i], came
        _follow(cursors, columns, i, reader[i])
    counts.came[0] = came
