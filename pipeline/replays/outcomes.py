"""Finds the outcome of each storage read: missed, coalesced, or none.

An access record has the outcome at the arrival. A replay needs it at the request, the moment at which another
cache might have had the entry.
"""

from __future__ import annotations

import numpy as np

from entry_cache.observe.cache_events import Op
from pipeline.replays.accesses import (
    CAME_TO_NOTHING,
    COALESCED,
    FORCED,
    MISSED,
    Ints32,
    Ints64,
    runs_expanded,
)
from pipeline.replays.columns import RecordColumns

REQUESTS = (Op.MISS.value, Op.COALESCED.value)
"""Events that request entries from storage."""
ENDS = (Op.ARRIVED.value, Op.FAILED.value)
"""Events that end such a request."""


def requested_runs(
    columns: RecordColumns, first: Ints32, cursors: Ints64, rows: Ints64, entries: int
) -> tuple[Ints64, Ints32, Ints32, Ints32]:
    """Returns the runs that were requested from storage, divided where the outcome changes.

    Returns row, first entry, count and `detail` of STORAGE_READ of each run. `rows`: indices of the requests and of their
    ends, in order. An end belongs to the newest request of the same reader for the same entry; a request without an end
    was given up.
    """
    at, ids = runs_expanded(first[rows], columns.entries[rows])
    row = rows[at]
    op = columns.op[row]
    request = np.isin(op, REQUESTS)
    # One number per reader and entry: after a stable sort, a request stands right before its end.
    key = cursors[row] * entries + ids
    order = np.argsort(key, kind="stable")
    ends = np.flatnonzero((key[order][1:] == key[order][:-1]) & request[order][:-1] & ~request[order][1:])
    outcome = np.zeros(len(row), np.int32)
    end = order[ends + 1]
    came = np.where(columns.detail[row[end]] == Op.MISS, MISSED, COALESCED)
    outcome[order[ends]] = np.where(op[end] == Op.ARRIVED, came, CAME_TO_NOTHING)
    row, ids, outcome = row[request], ids[request], outcome[request]
    outcome += np.where(columns.detail[row] > 0, FORCED, 0).astype(np.int32)
    # Entries of one request with one outcome form a run again.
    begins = np.ones(len(row), np.bool_)
    begins[1:] = (row[1:] != row[:-1]) | (ids[1:] != ids[:-1] + 1) | (outcome[1:] != outcome[:-1])
    starts = np.flatnonzero(begins)
    count = np.diff(np.append(starts, len(row))).astype(np.int32)
    return row[starts], ids[starts].astype(np.int32), count, outcome[starts]
