"""Makes the Accesses of a broker lifetime, once for all its replays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from broker.recorder.record_reader import BrokerLifetime
from entry_cache.observe.cache_events import Op
from pipeline.replays.accesses import (
    APPEND,
    CONFIGURE,
    DELIVER,
    FETCH,
    INVALIDATE,
    NOT_OFFERED,
    READ,
    REDELIVERY,
    SIZE_CHECK,
    STORAGE_READ,
    TICK,
    Accesses,
    AccessRows,
    Ints32,
)
from pipeline.replays.columns import RecordColumns, columns_of, joined
from pipeline.replays.inputs import InputBatch, bytes_rate, read_inputs
from pipeline.replays.invalidations import invalidated
from pipeline.replays.numbering import Runs, number_entries, sizes_of
from pipeline.replays.outcomes import ENDS, REQUESTS, requested_runs
from pipeline.replays.readers import reader_numbers

_TICK_NS: Final = 10_000_000
"""The default of `managedLedgerCacheEvictionIntervalMs`, for an access record with fewer than two passes."""

_KEPT: Final = {
    Op.APPEND: APPEND,
    Op.FETCHED: FETCH,
    Op.HIT: READ,
    Op.DELIVER: DELIVER,
    Op.REDELIVERY: REDELIVERY,
    Op.TICK: TICK,
    Op.SIZE_CHECK: SIZE_CHECK,
    Op.SETTINGS: CONFIGURE,
}
_ABOUT_ENTRIES: Final = (Op.APPEND, Op.FETCHED, Op.HIT, Op.DELIVER, Op.REDELIVERY, *REQUESTS, *ENDS)
_FILLING: Final = (Op.APPEND, Op.FETCHED, Op.HIT)


def accesses_of(lifetime: BrokerLifetime, rate: float = 1.0) -> Accesses:
    """Reads a broker lifetime, or the entries that a recorder with that rate would have recorded.

    RecordError for damaged files and for more entries than a replay can number; ValueError for a rate outside of 0 to 1.
    """
    # Machine code has no cursors, so it needs no moves besides those over entries of the sample.
    return make_accesses(lifetime, list(read_inputs(lifetime, rate, moves_rate=rate)), rate)


def make_accesses(lifetime: BrokerLifetime, batches: Sequence[InputBatch], rate: float = 1.0) -> Accesses:
    """Returns the accesses of a lifetime's inputs, or of a sample of them with that rate.

    RecordError for more entries than a replay can number.
    """
    columns = joined([columns_of(lifetime, batch.number, batch.rows) for batch in batches])
    expected = np.concatenate([batch.rows["expected"] for batch in batches]).astype(np.int32)
    share = min(rate, lifetime.files[0].facts.sample)
    about = np.flatnonzero(np.isin(columns.op, _ABOUT_ENTRIES))
    runs = columns.take(about)
    positions = Runs(runs.ledger, runs.entry, runs.entries)
    numbers = number_entries(lambda: [positions], sampled=share < 1)
    first_of_runs, ledger_of_runs = numbers.of(positions)
    # The recorder divides appended and fetched runs by size, so their entries have equal sizes. Reads are not divided.
    certain = np.isin(runs.op, (Op.APPEND, Op.FETCHED))
    sizes = sizes_of(runs, first_of_runs, numbers.entries, certain)
    first = np.zeros(len(columns.op), np.int32)
    ledger = np.zeros(len(columns.op), np.int32)
    first[about], ledger[about] = first_of_runs, ledger_of_runs
    rows, order = _kept_rows(columns, first, ledger, expected)
    cursors = reader_numbers([(columns.topic, columns.sub)]).of(columns.topic, columns.sub)
    more = [_requested(columns, first, ledger, cursors, numbers.entries)]
    filling = np.flatnonzero(np.isin(columns.op, _FILLING))
    gone = invalidated(columns, filling, ledger[filling], numbers.numbering)
    if gone:
        more.append(_of_ranges(columns, np.array(gone, np.int64)))
    rows = _merged(rows, order, more)
    return Accesses(
        broker=lifetime.broker,
        start=lifetime.start,
        rows=rows,
        sizes=sizes,
        numbering=numbers.numbering,
        settings=tuple(file.facts.settings for file in lifetime.files),
        tick_ns=_tick_ns(columns),
        rate=share,
        bytes_rate=bytes_rate(lifetime, batches, rate),
    )


def _kept_rows(
    columns: RecordColumns, first: Ints32, ledger: Ints32, expected: Ints32
) -> tuple[AccessRows, NDArray[np.intp]]:
    kinds = np.full(256, -1, np.int8)
    for op, own in _KEPT.items():
        kinds[op.value] = own
    kind = kinds[columns.op]
    kept = np.flatnonzero(kind >= 0)
    detail = np.where(np.isin(columns.op, (Op.APPEND, Op.HIT)), expected, columns.detail)
    # A negative count of a fetched entry says that the read did not fill the cache.
    detail = np.where((columns.op == Op.FETCHED) & (detail < 0), NOT_OFFERED, detail).astype(np.int32)
    every = AccessRows(kind, columns.at_ns, first, columns.entries, detail, ledger)
    return every.take(kept), kept


_Part = tuple[AccessRows, NDArray[np.intp]]


def _requested(
    columns: RecordColumns, first: Ints32, ledger: Ints32, cursors: NDArray[np.int64], entries: int
) -> _Part:
    about = np.flatnonzero(np.isin(columns.op, (*REQUESTS, *ENDS)))
    row, run_first, count, outcome = requested_runs(columns, first, cursors, about, entries)
    kind = np.full(len(row), STORAGE_READ, np.int8)
    return AccessRows(kind, columns.at_ns[row], run_first, count, outcome, ledger[row]), row


def _of_ranges(columns: RecordColumns, ranges: NDArray[np.int64]) -> _Part:
    row, first, count, reason, ledger = ranges.T
    kind = np.full(len(row), INVALIDATE, np.int8)
    narrow = [values.astype(np.int32) for values in (first, count, reason, ledger)]
    return AccessRows(kind, columns.at_ns[row], *narrow), row


def _merged(rows: AccessRows, order: NDArray[np.intp], more: list[_Part]) -> AccessRows:
    """Merges the parts by the order of the events that they come from."""
    more = [part for part in more if len(part[1])]
    if not more:
        return AccessRows(*map(np.ascontiguousarray, rows))
    places = np.concatenate([order, *[part[1] for part in more]])
    joined = [np.concatenate(columns) for columns in zip(rows, *[part[0] for part in more], strict=True)]
    return AccessRows(*joined).take(np.argsort(places, kind="stable"))


def _tick_ns(columns: RecordColumns) -> int:
    gaps = np.diff(columns.at_ns[columns.op == Op.TICK])
    gaps = gaps[gaps > 0]
    # The median, because the broker makes no passes while its cache is empty.
    return int(np.median(gaps)) if len(gaps) else _TICK_NS
