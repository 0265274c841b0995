"""Outcomes: what became of entries that were asked of storage. A record says so when they arrive; a replay has to
know when they are asked for, since that is when another cache might have had them."""

from __future__ import annotations

import numpy as np

from broker.entry_cache.observe.cache_events import Op
from pipeline.replays.accesses import (
    CAME_TO_NOTHING,
    COALESCED,
    FORCED,
    MISSED,
    Ints32,
    Ints64,
    runs_expanded,
)
from pipeline.replays.columns import Columns

QUESTIONS = (Op.MISS.value, Op.COALESCED.value)
ENDS = (Op.ARRIVED.value, Op.FAILED.value)


def asked_runs(
    columns: Columns, first: Ints32, cursors: Ints64, rows: Ints64, entries: int
) -> tuple[Ints64, Ints32, Ints32, Ints32]:
    """(row, first entry, count, `detail` of ASK) of the runs that were asked for, cut where the outcome changes.

    `rows`: indices of the questions and of their ends, in order. An end belongs to the newest question of the same
    reader for the same entry; a question without one was given up.
    """
    at, ids = runs_expanded(first[rows], columns.entries[rows])
    row = rows[at]
    op = columns.op[row]
    question = np.isin(op, QUESTIONS)
    key = cursors[row] * entries + ids
    order = np.argsort(key, kind="stable")
    ends = np.flatnonzero((key[order][1:] == key[order][:-1]) & question[order][:-1] & ~question[order][1:])
    outcome = np.zeros(len(row), np.int32)
    end = order[ends + 1]
    came = np.where(columns.detail[row[end]] == Op.MISS, MISSED, COALESCED)
    outcome[order[ends]] = np.where(op[end] == Op.ARRIVED, came, CAME_TO_NOTHING)
    row, ids, outcome = row[question], ids[question], outcome[question]
    outcome += np.where(columns.detail[row] > 0, FORCED, 0).astype(np.int32)
    begins = np.ones(len(row), np.bool_)
    begins[1:] = (row[1:] != row[:-1]) | (ids[1:] != ids[:-1] + 1) | (outcome[1:] != outcome[:-1])
    starts = np.flatnonzero(begins)
    count = np.diff(np.append(starts, len(row))).astype(np.int32)
    return row[starts], ids[starts].astype(np.int32), count, outcome[starts]
