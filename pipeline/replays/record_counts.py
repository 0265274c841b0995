"""Counts everything that the hit report tells of one broker lifetime, in one pass over its files.

A batch of events at a time is counted by machine code, so Spark receives a few sums of each lifetime instead of its rows.
The memory depends on the entries (30 bytes each), readers, topics and minutes of the lifetime.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from broker.recorder.record_reader import BrokerLifetime
from entry_cache.observe.cache_events import Op
from pipeline.machine_code import compiled
from pipeline.replays.columns import RecordColumns, columns_of, read_batches
from pipeline.replays.numbering import Runs, number_entries
from pipeline.replays.readers import cursor_state, number_readers, rows_of_open_topics
from pipeline.replays.reuse import MOVES, USES, Reuse, ReuseOfEntries

STEPS: Final = 300
"""Steps of a timeline."""
HITS, MISSES, COALESCED, BYTES = range(4)
"""Columns of the counts of reads."""
_MINUTE_US: Final = 60_000_000
_OPS: Final = (*USES, *MOVES, Op.OPEN, Op.CLOSE)
_NAMES: Final = ("ts", "op", "topic", "sub", "ledger", "entry", "count", "bytes", "detail")
_HIT, _ARRIVED, _MISS = int(Op.HIT), int(Op.ARRIVED), int(Op.MISS)
_INSERT, _EVICT = int(Op.INSERT), int(Op.EVICT)

Counts = NDArray[np.int64]
"""Hits, misses and coalesced reads in entries, and the bytes of all: a column each."""


@dataclass(frozen=True, slots=True, eq=False)
class RecordCounts:
    """The counts of one broker lifetime."""

    readers: NDArray[np.int64]
    """Topic and id of each reader that read: a row each."""
    by_reader: Counts
    """Their reads."""
    by_minute: Counts
    """The reads of each minute, from that of the span's begin on."""
    topics: NDArray[np.int64]
    """Topics of which entries entered or left the cache."""
    mean_bytes: NDArray[np.float64]
    """Their bytes in the cache, the mean over the span."""
    changes: NDArray[np.int64]
    """The bytes that the cache gained or lost by step of the span; it may end within two more steps."""
    reuse: Reuse
    """The reuse of its entries."""


def step_us(span_us: tuple[int, int]) -> int:
    """Returns the length of a step of a timeline over the span."""
    return max((span_us[1] - span_us[0]) // STEPS, 1)


def count_record(lifetime: BrokerLifetime, span_us: tuple[int, int]) -> RecordCounts:
    """Reads a broker lifetime and counts it. RecordError for damaged files.

    `span_us`: first and last time of the whole record, in microseconds since 1970.
    """
    readers = number_readers(lifetime, _OPS)
    numbers = number_entries(lambda: _runs(lifetime))
    reuse = ReuseOfEntries(readers.topics, numbers.entries, readers.readers)
    state = cursor_state(readers)
    by_reader = np.zeros((readers.readers, 4), np.int64)
    by_minute = np.zeros((span_us[1] // _MINUTE_US - span_us[0] // _MINUTE_US + 1, 4), np.int64)
    present = np.zeros(readers.topics, np.bool_)
    held = np.zeros(readers.topics, np.float64)
    changes = np.zeros(STEPS + 2, np.int64)
    for number, batch in read_batches(lifetime, _OPS, names=_NAMES):
        columns = columns_of(lifetime, number, batch)
        _count_reads(columns, readers.of(columns.topic, columns.sub), by_reader)
        _count_reads(columns, batch["ts"] // _MINUTE_US - span_us[0] // _MINUTE_US, by_minute)
        _count_contents(columns, batch["ts"], span_us, step_us(span_us), held, present, changes)
        # Events after a topic was closed count as reads and not as uses: the cache has ignored them.
        columns = columns.take(rows_of_open_topics(columns.op, columns.topic, state))
        columns = columns.take(~np.isin(columns.op, (Op.OPEN, Op.CLOSE)))
        first = np.zeros(len(columns.op), np.int32)
        # A cursor may stand in a ledger without a used entry, which has no number.
        of_entries = ~np.isin(columns.op, MOVES)
        first[of_entries], _ = numbers.of(
            Runs(columns.ledger[of_entries], columns.entry[of_entries], columns.entries[of_entries])
        )
        reuse.add(columns, first, readers.of(columns.topic, columns.sub))
    read = np.flatnonzero(by_reader.any(axis=1))
    topics = np.flatnonzero(present)
    return RecordCounts(
        readers=np.stack(readers.ids(), axis=1)[read],
        by_reader=by_reader[read],
        by_minute=by_minute,
        topics=topics,
        mean_bytes=held[topics] / max(span_us[1] - span_us[0], 1),
        changes=changes,
        reuse=reuse.found,
    )


def _runs(lifetime: BrokerLifetime) -> Iterator[Runs]:
    for _, batch in read_batches(lifetime, USES, names=("op", "ledger", "entry", "count")):
        yield Runs(batch["ledger"], batch["entry"], batch["count"].astype(np.int32, copy=False))


@compiled
def _count_reads(columns: RecordColumns, group: NDArray[np.int64], counts: Counts) -> None:
    """Adds each read to the counts of its group."""
    op, detail = columns.op, columns.detail
    for i in range(len(op)):
        # ARRIVED and not MISS: a miss is the request, which may bring fewer entries than it asked for, or none.
        if op[i] == _HIT:
            kind = HITS
        elif op[i] == _ARRIVED:
            kind = MISSES if detail[i] == _MISS else COALESCED
        else:
            continue
        counts[group[i], kind] += columns.entries[i]
        counts[group[i], BYTES] += columns.bytes[i]


@compiled
def _count_contents(
    columns: RecordColumns,
    ts: NDArray[np.int64],
    span_us: tuple[int, int],
    step: int,
    held: NDArray[np.float64],
    present: NDArray[np.bool_],
    changes: NDArray[np.int64],
) -> None:
    """Adds each insert and each eviction to the contents of its topic and to the changes of its step."""
    op, topic, size_bytes = columns.op, columns.topic, columns.bytes
    for i in range(len(op)):
        if op[i] == _INSERT or op[i] == _EVICT:
            change = size_bytes[i] if op[i] == _INSERT else -size_bytes[i]
            # An insert holds its bytes until the end of the span, and its eviction takes back the time after it.
            held[topic[i]] += float(change) * (span_us[1] - ts[i])
            present[topic[i]] = True
            changes[min((ts[i] - span_us[0]) // step, STEPS + 1)] += change
