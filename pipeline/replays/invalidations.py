"""Turns each invalidation of a topic into one range of entries per ledger.

An access record has the position before which all entries of the topic were removed.
"""

from __future__ import annotations

import numpy as np

from entry_cache.cache_stats import Reason
from entry_cache.observe.cache_events import REASONS, Op
from pipeline.replays.accesses import Ints32, Ints64, Numbering
from pipeline.replays.columns import RecordColumns
from pipeline.replays.numbering import entries_before

_LEDGER, _INVALIDATE = REASONS.index(Reason.LEDGER), REASONS.index(Reason.INVALIDATE)
_Ranges = list[tuple[int, int, int, int, int]]
"""(index of the row, first entry, entries, number of the reason, ledger)"""


def invalidated(columns: RecordColumns, filling: Ints64, ledger: Ints32, numbering: Numbering) -> _Ranges:
    """Returns the ranges of entries that INVALIDATE and CLOSE rows remove.

    `filling`: indices of the rows that may insert entries; `ledger`: the dense number of each one's ledger.
    """
    wanted = np.flatnonzero((columns.op == Op.INVALIDATE) | (columns.op == Op.CLOSE))
    if not len(wanted) or not len(filling):
        return []
    # A row of a topic concerns its ledgers between the first and the last row that may insert their entries.
    newest = np.zeros(len(numbering.ledgers), np.int64)
    np.maximum.at(newest, ledger, filling)
    oldest = np.full(len(numbering.ledgers), np.iinfo(np.int64).max)
    np.minimum.at(oldest, ledger, filling)
    topic_of = np.zeros(len(numbering.ledgers), np.int64)
    topic_of[ledger] = columns.topic[filling]
    by_topic: dict[int, list[int]] = {}
    for number, topic in enumerate(topic_of.tolist()):
        by_topic.setdefault(topic, []).append(number)
    found: _Ranges = []
    for row in wanted.tolist():
        left = by_topic.get(int(columns.topic[row]), [])
        for number in list(left):
            if oldest[number] > row:
                continue
            end = _end(columns, row, number, numbering)
            base = entries_before(numbering, number, int(numbering.lowest[number]))
            if end > base:
                reason = _LEDGER if columns.op[row] == Op.INVALIDATE and columns.detail[row] else _INVALIDATE
                found.append((row, base, end - base, reason, number))
            # Nothing can be inserted any more: later rows of the topic need not look at this ledger.
            if newest[number] < row and end >= _all_of(numbering, number):
                left.remove(number)
    return found


def _end(columns: RecordColumns, row: int, number: int, numbering: Numbering) -> int:
    """Returns the number of the first entry of the ledger that the row keeps."""
    if columns.op[row] == Op.CLOSE:
        return _all_of(numbering, number)
    own, asked = int(numbering.ledgers[number]), int(columns.ledger[row])
    # `detail`: the whole ledger was deleted, and no other one.
    if columns.detail[row]:
        return _all_of(numbering, number) if own == asked else 0
    # Ledger ids grow with time, so a lower one is before the position.
    if own < asked:
        return _all_of(numbering, number)
    return entries_before(numbering, number, int(columns.entry[row])) if own == asked else 0


def _all_of(numbering: Numbering, number: int) -> int:
    return entries_before(numbering, number, np.iinfo(np.int32).max + int(numbering.lowest[number]))
