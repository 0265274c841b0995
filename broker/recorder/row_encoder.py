"""RowEncoder: turns the cache's events into the columns of the files.

Names become ids, runs of entries of different sizes become runs of one size, and a sampled record keeps the entries of the
sample alone. It works on whole batches, because a Python loop over rows would cost more than everything else here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

import numpy as np

from broker.recorder.names import NamesWriter
from broker.recorder.sampling import Ints, in_sample
from broker.recorder.schema import COUNT_MAX
from entry_cache.observe.cache_events import CacheEvent, Op

Columns = dict[str, Ints]
"""By the names of the format's columns, all of one length; files have narrower types."""

SizeRuns = list[tuple[int, int]]
"""Runs of entries of one size: (number of entries, bytes of each)."""

RUN_OPS: Final = (
    Op.APPEND,
    Op.INSERT,
    Op.HIT,
    Op.MISS,
    Op.COALESCED,
    Op.FAILED,
    Op.DELIVER,
    Op.REDELIVERY,
    Op.POSTPONED,
    Op.DROPPED,
    Op.REQUEUE,
    Op.EVICT,
    Op.OFFER,
    Op.FETCHED,
    Op.ARRIVED,
)
"""Operations on entries, whose rows a sample cuts; rows of cursors, passes and invalidations always stay."""


class RowEncoder:
    """Encodes the rows of one broker lifetime."""

    def __init__(self, names: NamesWriter, clock_offset_us: int, sample: float) -> None:
        """`clock_offset_us` turns the monotonic times of events into UTC; `sample` is the share of the entries."""
        self._names = names
        self._clock_offset_us = clock_offset_us
        self._sample = sample

    def encode(self, rows: Sequence[CacheEvent]) -> Columns:
        """Returns the columns of at least one row."""
        at_ns, op, log, reader, ledger, first, count, size, detail, who, sizes = zip(*rows, strict=True)
        # Membership in bytes is one search in C; in the tuple it would compare object by object.
        ops = bytes(op)
        columns: Columns = {
            "ts": _ints(at_ns) // 1000 + self._clock_offset_us,
            "op": np.frombuffer(ops, np.int8).astype(np.int64),
            "topic": _ints(list(map(self._names.topics.__getitem__, log))),
            "sub": self._subs(ops, log, reader, who),
            "ledger": _ints(ledger),
            "entry": _ints(first),
            # NO_LIMIT, the visits of a pass without a limit, does not fit into the column's 32 bits.
            "count": np.minimum(_ints(count), COUNT_MAX),
            "bytes": _ints(size),
            "detail": _ints(detail),
            "more": np.zeros(len(ops), np.int64),
        }
        mixed = dict(_mixed_sizes(columns["op"], sizes))
        if mixed:
            columns = _in_runs_of_one_size(columns, mixed)
        # A READER row has told the file of names what it had to tell; readers of the file need no row.
        if Op.READER in ops:
            stays = columns["op"] != Op.READER
            columns = {name: column[stays] for name, column in columns.items()}
        return columns if self._sample >= 1 else in_sample_alone(columns, self._sample)

    def _subs(
        self, ops: bytes, logs: Sequence[str], readers: Sequence[int], who: Sequence[Sequence[str]]
    ) -> Ints:
        names = self._names
        # The usual batch. In others the numbers of readers change meaning from row to row, so the loop below
        # goes in order.
        if Op.READER not in ops and Op.CLOSE not in ops:
            return _ints(readers if names.numbers_are_ids else list(map(names.sub, logs, readers)))
        subs = []
        for op, log, number, row_names in zip(ops, logs, readers, who, strict=True):
            if op == Op.READER:
                names.reader_made(log, number, row_names[0])
            elif op == Op.CLOSE:
                names.closed(log)
            subs.append(names.sub(log, number))
        return _ints(subs)


def _ints(values: Sequence[int]) -> Ints:
    return np.fromiter(values, np.int64, len(values))


def _mixed_sizes(ops: Ints, sizes: Sequence[Sequence[int]]) -> Iterator[tuple[int, SizeRuns]]:
    """Yields the index of each row whose entries differ in size, and their runs of one size."""
    for at in np.flatnonzero((ops == Op.APPEND) | (ops == Op.FETCHED)).tolist():
        own = sizes[at]
        if own.count(own[0]) != len(own):
            yield at, [(len(list(same)), size) for size, same in groupby(own)]


def _in_runs_of_one_size(columns: Columns, mixed: dict[int, SizeRuns]) -> Columns:
    """Makes a row of each run; all but the last of an event are marked `more`."""
    repeats = np.ones(len(columns["op"]), np.int64)
    repeats[list(mixed)] = [len(runs) for runs in mixed.values()]
    starts = np.cumsum(repeats) - repeats
    result = {name: np.repeat(column, repeats) for name, column in columns.items()}
    for at, runs in mixed.items():
        rows = slice(int(starts[at]), int(starts[at]) + len(runs))
        counts, sizes = np.array(runs, np.int64).T
        result["entry"][rows] += np.cumsum(counts) - counts
        result["count"][rows] = counts
        result["bytes"][rows] = counts * sizes
        result["more"][rows] = 1
        # The last row ends the call; a replay repeats all rows up to it as one.
        result["more"][rows.stop - 1] = 0
    return result


def in_sample_alone(columns: Columns, sample: float) -> Columns:
    """Cuts runs to their entries in the sample; these share the bytes of the run evenly."""
    about_runs = np.isin(columns["op"], RUN_OPS)
    rows = np.flatnonzero(about_runs)
    counts = columns["count"][rows]
    row_of = np.repeat(rows, counts)
    within = np.arange(len(row_of)) - np.repeat(np.cumsum(counts) - counts, counts)
    entries = columns["entry"][row_of] + within
    stays = in_sample(columns["ledger"][row_of], entries, sample)
    row_of, entries = row_of[stays], entries[stays]
    begins = np.ones(len(entries), np.bool_)
    begins[1:] = (row_of[1:] != row_of[:-1]) | (entries[1:] != entries[:-1] + 1)
    firsts = np.flatnonzero(begins)
    lengths = np.diff(np.append(firsts, len(entries)))
    # Rows of cursors, passes and settings stay whole: they are few, and decisions about each entry depend on
    # them.
    others = np.flatnonzero(~about_runs)
    taken = np.concatenate([others, row_of[firsts]])
    result = {name: column[taken] for name, column in columns.items()}
    runs = slice(len(others), None)
    result["bytes"][runs] = result["bytes"][runs] * lengths // np.maximum(result["count"][runs], 1)
    result["entry"][runs] = entries[firsts]
    result["count"][runs] = lengths
    # A sample is not replayed exactly, so the parts of a call need not be known.
    result["more"][:] = 0
    # Stable: runs cut from one row have one number and must stay in ascending order.
    order = np.argsort(taken, kind="stable")
    return {name: column[order] for name, column in result.items()}
