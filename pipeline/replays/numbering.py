"""Dense numbers for the entries of a run: ledger by ledger, and within a ledger by entry id."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from broker.recorder.errors import RecordError
from pipeline.machine_code import compiled
from pipeline.replays.accesses import Ints32, Ints64, Numbering, runs_expanded
from pipeline.replays.columns import Columns

TABLE_MAX: Final = 1 << 24
"""Ledger ids are given out one by one, so a table over them is short; otherwise they are sorted."""
SPARSE: Final = 4
"""More places than so many per entry in the rows: a sample, whose gaps get no numbers."""
PLACES_MAX: Final = 2**31 - 2


def ledger_numbers(ledgers: Ints64) -> tuple[Ints64, Ints32]:
    """(ids in order, dense number of each row's)"""
    if not len(ledgers):
        return ledgers, ledgers.astype(np.int32)
    low = int(ledgers.min())
    span = int(ledgers.max()) - low + 1
    if span > TABLE_MAX:
        ids, numbers = np.unique(ledgers, return_inverse=True)
        return ids, numbers.astype(np.int32)
    table = np.zeros(span, np.int32)
    table[ledgers - low] = 1
    ids = np.flatnonzero(table) + low
    table[ids - low] = np.arange(len(ids), dtype=np.int32)
    return ids, table[ledgers - low]


def number_entries(runs: Columns) -> tuple[Numbering, Ints32, Ints32, int]:
    """For rows about entries: (numbering, first entry of each row, ledger of each row, entries in all)."""
    ids, ledger = ledger_numbers(runs.ledger)
    lowest = np.full(len(ids), np.iinfo(np.int64).max)
    highest = np.full(len(ids), -1)
    np.minimum.at(lowest, ledger, runs.entry)
    np.maximum.at(highest, ledger, runs.entry + runs.entries - 1)
    bases = np.concatenate([np.zeros(1, np.int64), np.cumsum(highest - lowest + 1)])
    places = int(bases[-1])
    if places > PLACES_MAX:
        raise RecordError(
            f"the run has {places:,} entries, a replay takes {PLACES_MAX:,}: give a part of its files"
        )
    first = bases[ledger] + runs.entry - lowest[ledger]
    if places <= SPARSE * int(runs.entries.sum(dtype=np.int64)):
        return Numbering(ids, bases, lowest, None), first.astype(np.int32), ledger, places
    used = np.zeros(places, np.bool_)
    used[runs_expanded(first.astype(np.int32), runs.entries)[1]] = True
    numbers = np.cumsum(used, dtype=np.int32) - np.int32(1)
    kept = np.flatnonzero(used)
    return Numbering(ids, bases, lowest, kept), numbers[first], ledger, len(kept)


def entries_before(numbering: Numbering, ledger: int, entry_id: int) -> int:
    """The number of the first entry of that ledger that does not stand before the position."""
    base, end = int(numbering.bases[ledger]), int(numbering.bases[ledger + 1])
    place = min(max(base + entry_id - int(numbering.lowest[ledger]), base), end)
    return place if numbering.places is None else int(np.searchsorted(numbering.places, place))


def sizes_of(columns: Columns, first: Ints32, entries: int, certain: NDArray[np.bool_]) -> Ints32:
    """Bytes of each entry: from the rows of entries of one size where there are any (`certain`), else the mean of a
    run that was read."""
    sizes = np.zeros(entries, np.int32)
    for chosen in (~certain, certain):
        _fill(sizes, first, columns.entries, columns.bytes, chosen)
    return sizes


@compiled
def _fill(sizes: Ints32, first: Ints32, count: Ints32, size_bytes: Ints64, chosen: NDArray[np.bool_]) -> None:
    for i in range(len(first)):
        if chosen[i] and size_bytes[i] > 0 and count[i] > 0:
            sizes[first[i] : first[i] + count[i]] = size_bytes[i] // count[i]
