"""Computes the expected reads of each appended or read entry.

It follows the broker's `ActiveCursors`, over arrays.

Positions of cursors are recorded and independent of the cache's contents, so this is done once for all settings. Rows
of a topic whose cache was closed are ignored until it is opened again, as the broker ignores them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from broker.entry_cache.observe.cache_events import BY_MARK_DELETE, COUNTS_READS, HIT_MOVES, Op
from pipeline.machine_code import compiled
from pipeline.replays.accesses import NOT_COUNTED, NOT_OFFERED
from pipeline.replays.columns import Columns

_OPEN, _CLOSE = int(Op.OPEN), int(Op.CLOSE)
_ADDED, _MOVED, _LEFT, _ACK = int(Op.CURSOR_ADDED), int(Op.CURSOR_MOVED), int(Op.CURSOR_LEFT), int(Op.ACK)
_HIT, _APPEND = int(Op.HIT), int(Op.APPEND)
_MOVES, _COUNTS, _BY_MARK = int(HIT_MOVES), int(COUNTS_READS), int(BY_MARK_DELETE)
_UNCOUNTED, _UNOFFERED = int(NOT_COUNTED), int(NOT_OFFERED)


@compiled
def rows_of_open_topics(op: NDArray[np.int8], topic: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return False for each event after its topic's cache was closed.

    The broker ignores such events.
    """
    closed = np.zeros(topic.max() + 1 if len(topic) else 1, np.bool_)
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


def cursor_numbers(columns: Columns) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the dense number of each row's reader, and of each topic's first one.

    The second array ends with the number of all readers.
    """
    topics = int(columns.topic.max()) + 1 if len(columns.topic) else 1
    most = np.zeros(topics, np.int32)  # numpy takes ten times as long for another type than the values'.
    np.maximum.at(most, columns.topic, columns.sub)
    begins = np.zeros(topics + 1, np.int64)
    np.cumsum(most + 1, out=begins[1:])
    return begins[columns.topic] + columns.sub, begins


def expected_reads(
    columns: Columns, cursors: NDArray[np.int64], begins: NDArray[np.int64], looks_only: NDArray[np.int64]
) -> NDArray[np.int32]:
    """Return by row the expected reads of an APPEND or a HIT.

    For a HIT they are those that its entries would have if they came from storage.

    `looks_only`: numbers of readers that do not fill the cache.
    """
    only = np.zeros(int(begins[-1]), np.bool_)
    only[looks_only] = True
    return _expected_reads(columns, cursors, begins, only)


@compiled
def _expected_reads(
    columns: Columns, cursors: NDArray[np.int64], begins: NDArray[np.int64], only: NDArray[np.bool_]
) -> NDArray[np.int32]:
    """Follow the cursors of each topic through the events; `only`: by reader, True if it does not fill the cache."""
    op, at_ns, topic, detail = columns.op, columns.at_ns, columns.topic, columns.detail
    ledger, entry, count, size = columns.ledger, columns.entry, columns.entries, columns.bytes
    result = np.zeros(len(op), np.int32)
    active = np.zeros(begins[-1], np.bool_)
    at_ledger = np.zeros(begins[-1], np.int64)
    at_entry = np.zeros(begins[-1], np.int64)
    topics = len(begins) - 1
    how_many = np.zeros(topics, np.int32)
    flags = np.full(topics, _COUNTS, np.int64)
    continue_ns = np.zeros(topics, np.int64)
    changed_ns = np.zeros(topics, np.int64)
    for i in range(len(op)):
        kind, t, c = op[i], topic[i], cursors[i]
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
            if only[c]:
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
    """Return the expected reads of an entry that comes from storage.

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
