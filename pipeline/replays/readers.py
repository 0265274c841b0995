"""Computes the expected reads of each appended or read entry.

It follows the broker's `ActiveCursors`, over arrays, from one batch of events to the next.

Positions of cursors are recorded and independent of the cache's contents, so this is done once for all settings. Rows
of a topic whose cache was closed are ignored until it is opened again, as the broker ignores them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from broker.recorder.record_reader import BrokerLifetime
from entry_cache.observe.cache_events import BY_MARK_DELETE, COUNTS_READS, HIT_MOVES, Op
from pipeline.machine_code import compiled
from pipeline.replays.accesses import NOT_COUNTED, NOT_OFFERED
from pipeline.replays.columns import RecordColumns, read_batches

_OPEN, _CLOSE = int(Op.OPEN), int(Op.CLOSE)
_ADDED, _MOVED, _LEFT, _ACK = int(Op.CURSOR_ADDED), int(Op.CURSOR_MOVED), int(Op.CURSOR_LEFT), int(Op.ACK)
_HIT, _APPEND = int(Op.HIT), int(Op.APPEND)
_MOVES, _COUNTS, _BY_MARK = int(HIT_MOVES), int(COUNTS_READS), int(BY_MARK_DELETE)
_UNCOUNTED, _UNOFFERED = int(NOT_COUNTED), int(NOT_OFFERED)


class ReaderNumbers:
    """Dense numbers of readers: topic by topic, and within a topic by the reader's id."""

    def __init__(self, most: NDArray[np.int32]) -> None:
        """`most`: by topic, the highest id of a reader."""
        self.begins: NDArray[np.int64] = np.zeros(len(most) + 1, np.int64)
        """The number of each topic's first reader, then the number of all readers."""
        np.cumsum(most + 1, out=self.begins[1:])

    @property
    def topics(self) -> int:
        """The number of topics, topic 0 included."""
        return len(self.begins) - 1

    @property
    def readers(self) -> int:
        """The number of readers; each topic has one of id 0, which stands for no reader."""
        return int(self.begins[-1])

    def of(self, topic: NDArray[np.int32], sub: NDArray[np.int32]) -> NDArray[np.int64]:
        """Returns the number of each row's reader."""
        return self.begins[topic] + sub

    def ids(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns topic and id of each reader, by its number."""
        topic = np.repeat(np.arange(self.topics), np.diff(self.begins))
        return topic, np.arange(self.readers) - self.begins[topic]


def number_readers(lifetime: BrokerLifetime, ops: Collection[Op]) -> ReaderNumbers:
    """Numbers the readers of all events of these kinds. RecordError for a damaged file."""
    batches = read_batches(lifetime, ops, names=("op", "topic", "sub"))
    # The file has the narrow types; those of the dictionary are the wide ones.
    return reader_numbers(
        (rows["topic"].astype(np.int32, copy=False), rows["sub"].astype(np.int32, copy=False))
        for _, rows in batches
    )


def reader_numbers(batches: Iterable[tuple[NDArray[np.int32], NDArray[np.int32]]]) -> ReaderNumbers:
    """Numbers the readers of all events, given their columns `topic` and `sub`."""
    most = np.zeros(1, np.int32)
    for topic, sub in batches:
        if len(topic) and (top := int(topic.max())) >= len(most):
            most = np.concatenate([most, np.zeros(top + 1 - len(most), np.int32)])
        # Equal types: numpy takes ten times as long for another type than the values'.
        np.maximum.at(most, topic, sub)
    return ReaderNumbers(most)


class CursorState(NamedTuple):
    """The topics and their cursors after the events so far. Functions of this module change it."""

    begins: NDArray[np.int64]
    """As in `ReaderNumbers`."""
    looks_only: NDArray[np.bool_]
    """By reader, True if its reads do not fill the cache."""
    closed: NDArray[np.bool_]
    """By topic, True after its cache was closed."""
    how_many: NDArray[np.int32]
    """By topic, the number of its active cursors."""
    flags: NDArray[np.int64]
    """By topic, `detail` of its OPEN event."""
    continue_ns: NDArray[np.int64]
    """By topic, how long new entries are still cached after the last cursor has left."""
    changed_ns: NDArray[np.int64]
    """By topic, when it was opened or a cursor left."""
    active: NDArray[np.bool_]
    """By reader, True for an active cursor."""
    at_ledger: NDArray[np.int64]
    """By reader, the ledger of its position."""
    at_entry: NDArray[np.int64]
    """By reader, the entry of its position."""


def cursor_state(numbers: ReaderNumbers, looks_only: Iterable[int] = ()) -> CursorState:
    """Returns the state before the first event. `looks_only`: numbers of readers that do not fill the cache."""
    topics, readers = numbers.topics, numbers.readers
    only = np.zeros(readers, np.bool_)
    only[list(looks_only)] = True
    return CursorState(
        begins=numbers.begins,
        looks_only=only,
        closed=np.zeros(topics, np.bool_),
        how_many=np.zeros(topics, np.int32),
        flags=np.full(topics, _COUNTS, np.int64),
        continue_ns=np.zeros(topics, np.int64),
        changed_ns=np.zeros(topics, np.int64),
        active=np.zeros(readers, np.bool_),
        at_ledger=np.zeros(readers, np.int64),
        at_entry=np.zeros(readers, np.int64),
    )


@compiled
def rows_of_open_topics(
    op: NDArray[np.int8], topic: NDArray[np.int32], state: CursorState
) -> NDArray[np.bool_]:
    """Returns False for each event after its topic's cache was closed. The broker ignores such events."""
    closed = state.closed
    stays = np.ones(len(op), np.bool_)
    for i in range(len(op)):
        t = topic[i]
        if op[i] == _OPEN:
            closed[t] = False
        # Topic 0 stands for events about the whole cache, which no closing ends.
        elif closed[t] and t:
            stays[i] = False
        elif op[i] == _CLOSE:
            closed[t] = True
    return stays


@compiled
def expected_reads(columns: RecordColumns, state: CursorState) -> NDArray[np.int32]:
    """Follows the cursors of each topic, and returns by row the expected reads of an APPEND or a HIT.

    For a HIT they are those that its entries would have if they came from storage.
    """
    op, at_ns, topic, sub, detail = columns.op, columns.at_ns, columns.topic, columns.sub, columns.detail
    ledger, entry, count, size = columns.ledger, columns.entry, columns.entries, columns.bytes
    begins, active, at_ledger, at_entry = state.begins, state.active, state.at_ledger, state.at_entry
    how_many, flags = state.how_many, state.flags
    continue_ns, changed_ns = state.continue_ns, state.changed_ns
    result = np.zeros(len(op), np.int32)
    for i in range(len(op)):
        kind, t = op[i], topic[i]
        c = begins[t] + sub[i]
        if kind == _APPEND:
            if how_many[t] or at_ns[i] - changed_ns[t] < continue_ns[t]:
                result[i] = how_many[t] if flags[t] & _COUNTS else _UNCOUNTED
            else:
                result[i] = _UNOFFERED
        elif kind == _HIT:
            result[i] = _if_missed(
                flags[t], active, at_ledger, at_entry, begins[t], begins[t + 1], c, ledger[i], entry[i]
            )
            # An admin call looks at entries and does not fill the cache, whatever the cursors are.
            if state.looks_only[c]:
                result[i] = _UNOFFERED
            # A hit moves the cursor without an event of its own, which would double the record.
            if detail[i] == _MOVES and active[c] and not flags[t] & _BY_MARK:
                at_ledger[c], at_entry[c] = ledger[i], entry[i] + count[i]
        elif kind == _OPEN:
            flags[t], continue_ns[t], changed_ns[t] = detail[i], size[i] * 1000, at_ns[i]
            # A topic that is opened again begins without cursors; they report anew.
            active[begins[t] : begins[t + 1]] = False
            how_many[t] = 0
        elif kind == _LEFT and active[c]:
            how_many[t] -= 1
            active[c] = False
            changed_ns[t] = at_ns[i]
        elif kind == _ADDED:
            how_many[t] += not active[c]
            active[c] = True
            at_ledger[c], at_entry[c] = ledger[i], entry[i]
        elif (kind == _MOVED and not flags[t] & _BY_MARK) or (kind == _ACK and flags[t] & _BY_MARK):
            at_ledger[c], at_entry[c] = ledger[i], entry[i]
    return result


@compiled
def _if_missed(
    flags: int,
    active: NDArray[np.bool_],
    at_ledger: NDArray[np.int64],
    at_entry: NDArray[np.int64],
    begin: int,
    end: int,
    mine: int,
    ledger: int,
    entry: int,
) -> int:
    """Returns the expected reads of an entry that comes from storage.

    The broker counts the cursors at or before the reader's position when a storage read has ended. An entry that the
    reader has passed is a redelivery, with one read.
    """
    if not flags & _COUNTS or not active[mine]:
        return _UNOFFERED
    if at_ledger[mine] > ledger or (at_ledger[mine] == ledger and at_entry[mine] > entry):
        return 1
    rank = 0
    for c in range(begin, end):
        if active[c] and (
            at_ledger[c] < at_ledger[mine]
            or (at_ledger[c] == at_ledger[mine] and at_entry[c] <= at_entry[mine])
        ):
            rank += 1
    return rank
