"""Measures the reuse of entries.

The time and the distance between two uses, and the cause of each miss.

The distance is the bytes that were appended or arrived from storage between two uses of an entry: the size
that a first-in-first-out cache without a time limit would have needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from broker.entry_cache.cache_stats import Reason
from broker.entry_cache.observe.cache_events import REASONS, STILL_EXPECTED, Op
from broker.recorder.record_reader import BrokerLifetime
from pipeline.machine_code import compiled
from pipeline.replays.columns import Columns, read_columns
from pipeline.replays.numbering import number_entries, sizes_of
from pipeline.replays.readers import rows_of_open_topics

BUCKETS: Final = 48
"""Number of buckets; bucket n has values below 2 ** n microseconds or bytes."""

MISS_CAUSES: Final = (
    "never cached",
    "evicted by time",
    "evicted by size",
    "evicted otherwise",
    "restarted cursor",
)
"""Causes of misses. Restarted: the reader had read the entry before."""
_NEVER, _TIME, _SIZE, _OTHERWISE, _RESTARTED = range(5)
_CACHED = 5
_OPS: Final = (Op.APPEND, Op.FETCHED, Op.HIT, Op.MISS, Op.COALESCED, Op.ARRIVED, Op.INSERT, Op.EVICT)
_APPEND, _FETCHED, _HIT = int(Op.APPEND), int(Op.FETCHED), int(Op.HIT)
_MISS, _COALESCED, _ARRIVED = int(Op.MISS), int(Op.COALESCED), int(Op.ARRIVED)
_INSERT, _EVICT = int(Op.INSERT), int(Op.EVICT)
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


def reuse_of(lifetime: BrokerLifetime) -> Reuse:
    """Read a broker lifetime and measure its reuse. RecordError for damaged files."""
    columns = read_columns(lifetime, (*_OPS, Op.OPEN, Op.CLOSE))
    columns = columns.take(rows_of_open_topics(columns.op, columns.topic))
    columns = columns.take(~np.isin(columns.op, (Op.OPEN, Op.CLOSE)))
    _, first, _, entries = number_entries(columns)
    sizes = sizes_of(columns, first, entries, np.isin(columns.op, (Op.APPEND, Op.FETCHED)))
    reads = np.zeros((BUCKETS, BUCKETS), np.int64)
    topics = int(columns.topic.max()) + 1 if len(columns.topic) else 1
    causes = np.zeros((topics, len(MISS_CAUSES)), np.int64)
    cause_bytes = np.zeros_like(causes)
    _measure(columns, first, sizes, reads, causes, cause_bytes)
    return Reuse(reads, causes, cause_bytes)


@compiled
def _bucket(value: int) -> int:
    bucket = 0
    while value > 0 and bucket < BUCKETS - 1:
        value >>= 1
        bucket += 1
    return bucket


@compiled
def _measure(
    columns: Columns,
    first: NDArray[np.int32],
    sizes: NDArray[np.int32],
    reads: NDArray[np.int64],
    causes: NDArray[np.int64],
    cause_bytes: NDArray[np.int64],
) -> None:
    """Add each read to the counts of `Reuse`; `first`: dense number of each run's first entry."""
    op, at_ns, topic, sub = columns.op, columns.at_ns, columns.topic, columns.sub
    count, detail = columns.entries, columns.detail
    state = np.zeros(len(sizes), np.uint8)
    asked = np.zeros(len(sizes), np.uint8)
    seen = np.zeros(len(sizes), np.uint64)
    used_ns = np.full(len(sizes), -1, np.int64)
    used_at = np.zeros(len(sizes), np.int64)
    came = 0
    for i in range(len(op)):
        kind = op[i]
        # One bit per reader of the topic. Readers 64 apart share one, which can only turn a cause into "restarted".
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
