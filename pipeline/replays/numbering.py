"""Gives the entries of a broker lifetime dense numbers.

Ledger by ledger, and within a ledger by entry id.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from broker.recorder.errors import RecordError
from pipeline.machine_code import compiled
from pipeline.replays.accesses import Ints32, Ints64, Numbering, runs_expanded
from pipeline.replays.columns import Columns

_TABLE_MAX: Final = 1 << 24
"""The largest table over ledger ids.

Ids are consecutive in a normal cluster; with a wider span they are sorted.
"""
_SPARSE: Final = 4
"""Places per entry above which the accesses are a sample, whose gaps get no numbers."""
_PLACES_MAX: Final = 2**31 - 2
"""Entries that a number of 32 bits can name."""


def _ledger_numbers(ledgers: Ints64) -> tuple[Ints64, Ints32]:
    """Return the ledger ids in order, and for each row the index of its ledger."""
    if not len(ledgers):
        return ledgers, ledgers.astype(np.int32)
    low = int(ledgers.min())
    span = int(ledgers.max()) - low + 1
    if span > _TABLE_MAX:
        ids, numbers = np.unique(ledgers, return_inverse=True)
        return ids, numbers.astype(np.int32)
    # A table over the span needs no sorting of all rows.
    table = np.zeros(span, np.int32)
    table[ledgers - low] = 1
    ids = np.flatnonzero(table) + low
    table[ids - low] = np.arange(len(ids), dtype=np.int32)
    return ids, table[ledgers - low]


def number_entries(runs: Columns) -> tuple[Numbering, Ints32, Ints32, int]:
    """Number the entries of rows about entries. RecordError for too many entries.

    Returns the numbering, the first entry and the ledger of each row, and the number of all entries.
    """
    ids, ledger = _ledger_numbers(runs.ledger)
    lowest = np.full(len(ids), np.iinfo(np.int64).max)
    highest = np.full(len(ids), -1)
    np.minimum.at(lowest, ledger, runs.entry)
    np.maximum.at(highest, ledger, runs.entry + runs.entries - 1)
    bases = np.concatenate([np.zeros(1, np.int64), np.cumsum(highest - lowest + 1)])
    places = int(bases[-1])
    if places > _PLACES_MAX:
        raise RecordError(
            f"the broker lifetime has {places:,} entries, a replay takes {_PLACES_MAX:,}: give a part of its files"
        )
    first = bases[ledger] + runs.entry - lowest[ledger]
    if places <= _SPARSE * int(runs.entries.sum(dtype=np.int64)):
        return Numbering(ids, bases, lowest, None), first.astype(np.int32), ledger, places
    used = np.zeros(places, np.bool_)
    used[runs_expanded(first.astype(np.int32), runs.entries)[1]] = True
    numbers = np.cumsum(used, dtype=np.int32) - np.int32(1)
    kept = np.flatnonzero(used)
    return Numbering(ids, bases, lowest, kept), numbers[first], ledger, len(kept)


def entries_before(numbering: Numbering, ledger: int, entry_id: int) -> int:
    """Return the number of a ledger's first entry at or after an entry id."""
    base, end = int(numbering.bases[ledger]), int(numbering.bases[ledger + 1])
    place = min(max(base + entry_id - int(numbering.lowest[ledger]), base), end)
    return place if numbering.places is None else int(np.searchsorted(numbering.places, place))


def sizes_of(columns: Columns, first: Ints32, entries: int, certain: NDArray[np.bool_]) -> Ints32:
    """Return the bytes of each entry.

    `certain`: rows whose entries have one size. An entry without such a row gets the mean of a run that was read.
    """
    sizes = np.zeros(entries, np.int32)
    # The certain rows come last and overwrite the means.
    for chosen in (~certain, certain):
        _fill(sizes, first, columns.entries, columns.bytes, chosen)
    return sizes


@compiled
def _fill(sizes: Ints32, first: Ints32, count: Ints32, size_bytes: Ints64, chosen: NDArray[np.bool_]) -> None:
    for i in range(len(first)):
        if chosen[i] and size_bytes[i] > 0 and count[i] > 0:
            sizes[first[i] : first[i] + count[i]] = size_bytes[i] // count[i]
