"""How entries were used again: after what time, after how many other bytes, and why what was missed was missed.

The distance between two uses of an entry is what came into the log or from storage in between, in bytes: the size
that a first-in-first-out cache without a time limit would have needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from broker.entry_cache.cache_stats import Reason
from broker.entry_cache.observe.cache_events import REASONS, STILL_EXPECTED, Op
from broker.recorder.record_reader import RunOfBroker
from pipeline.machine_code import compiled
from pipeline.replays.columns import read_columns
from pipeline.replays.numbering import number_entries, sizes_of
from pipeline.replays.readers import rows_of_open_topics

BUCKETS: Final = 48
"""Powers of two: microseconds, and bytes."""

CAUSES: Final = (
    "never cached",
    "evicted by time",
    "evicted by size",
    "evicted otherwise",
    "restarted cursor",
)
"""Restarted: the reader had read the entry before."""
_NEVER, _TIME, _SIZE, _OTHERWISE, _RESTARTED = range(5)
_CACHED = 5
_OPS: Final = (Op.APPEND, Op.FETCHED, Op.HIT, Op.MISS, Op.COALESCED, Op.ARRIVED, Op.INSERT, Op.EVICT)
_APPEND, _FETCHED, _HIT = int(Op.APPEND), int(Op.FETCHED), int(Op.HIT)
_MISS, _COALESCED, _ARRIVED = int(Op.MISS), int(Op.COALESCED), int(Op.ARRIVED)
_INSERT, _EVICT = int(Op.INSERT), int(Op.EVICT)
_BY_TTL, _BY_SIZE = REASONS.index(Reason.TTL), REASONS.index(Reason.SIZE)


@dataclass(frozen=True, slots=True, eq=False)
class Reuse:
    reads: NDArray[np.int64]
    """By bucket of time and bucket of distance: how many entries were read."""
    causes: NDArray[np.int64]
    """By topic and number of the cause: entries read from storage."""
    cause_bytes: NDArray[np.int64]


def reuse_of(run: RunOfBroker) -> Reuse:
    columns = read_columns(run, (*_OPS, Op.OPEN, Op.CLOSE))
    columns = columns.take(rows_of_open_topics(columns.op, columns.topic))
    columns = columns.take(~np.isin(columns.op, (Op.OPEN, Op.CLOSE)))
    _, first, _, entries = number_entries(columns)
    sizes = sizes_of(columns, first, entries, np.isin(columns.op, (Op.APPEND, Op.FETCHED)))
    reads = np.zeros((BUCKETS, BUCKETS), np.int64)
    topics = int(columns.topic.max()) + 1 if len(columns.topic) else 1
    causes = np.zeros((topics, len(CAUSES)), np.int64)
    cause_bytes = np.zeros_like(causes)
    _look(
        columns.op,
        columns.at_ns,
        columns.topic,
        columns.sub,
        first,
        columns.entries,
        columns.detail,
        sizes,
        reads,
        causes,
        cause_bytes,
    )
    return Reuse(reads, causes, cause_bytes)


@compiled
def _bucket(value: int) -> int:
    bucket = 0
    while value > 0 and bucket < BUCKETS - 1:
        value >>= 1
        bucket += 1
    return bucket


@compiled
def _look(
    op: NDArray[np.int8],
    at_ns: NDArray[np.int64],
    topic: NDArray[np.int32],
    sub: NDArray[np.int32],
    first: NDArray[np.int32],
    count: NDArray[np.int32],
    detail: NDArray[np.int32],
    sizes: NDArray[np.int32],
    reads: NDArray[np.int64],
    causes: NDArray[np.int64],
    cause_bytes: NDArray[np.int64],
) -> None:
    state = np.zeros(len(sizes), np.uint8)
    asked = np.zeros(len(sizes), np.uint8)
    seen = np.zeros(len(sizes), np.uint64)
    used_ns = np.full(len(sizes), -1, np.int64)
    used_at = np.zeros(len(sizes), np.int64)
    came = 0
    for i in range(len(op)):
        kind = op[i]
        bit = np.uint64(1) << np.uint64(sub[i] & 63)
        for x in range(first[i], first[i] + count[i]):
            if kind == _INSERT:
                state[x] = _CACHED
            elif kind == _EVICT:
                reason = detail[i] % STILL_EXPECTED
                state[x] = _TIME if reason == _BY_TTL else _SIZE if reason == _BY_SIZE else _OTHERWISE
            elif kind in (_MISS, _COALESCED):
                asked[x] = state[x]
            elif kind in (_HIT, _ARRIVED):
                if used_ns[x] >= 0:
                    reads[_bucket((at_ns[i] - used_ns[x]) // 1000), _bucket(came - used_at[x])] += 1
                if kind == _ARRIVED and detail[i] == _MISS:
                    cause = _RESTARTED if seen[x] & bit else asked[x] if asked[x] != _CACHED else _OTHERWISE
                    causes[topic[i], cause] += 1
                    cause_bytes[topic[i], cause] += sizes[x]
                seen[x] |= bit
                used_ns[x], used_at[x] = at_ns[i], came
            elif kind in (_APPEND, _FETCHED):
                came += sizes[x]
                if kind == _APPEND:
                    used_ns[x], used_at[x] = at_ns[i], came
