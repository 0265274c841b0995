"""Gives the entries of a broker lifetime dense numbers: ledger by ledger, and within a ledger by entry id."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from broker.recorder.errors import RecordError
from pipeline.machine_code import compiled
from pipeline.replays.accesses import Ints32, Ints64, Numbering, runs_expanded
from pipeline.replays.columns import RecordColumns

_TABLE_MAX: Final = 1 << 20
"""The largest table over ledger ids, made for each batch.

Ids are consecutive in a normal cluster; with a wider span they are sorted.
"""
_SPARSE: Final = 4
"""Places per entry of the runs above which the gaps between the runs get no numbers."""
_PLACES_MAX: Final = 2**31 - 2
"""Entries that a number of 32 bits can name."""


class Runs(NamedTuple):
    """Runs of entries as parallel arrays."""

    ledger: Ints64
    """Ledger ids."""
    entry: Ints64
    """Ids of the first entries."""
    entries: Ints32
    """Lengths."""


class EntryNumbers(NamedTuple):
    """Dense numbers of the entries of some runs."""

    numbering: Numbering
    """Translates them back into positions."""
    entries: int
    """The number of all entries."""

    def of(self, runs: Runs) -> tuple[Ints32, Ints32]:
        """Returns the number of each run's first entry, and the number of its ledger."""
        ids, bases, lowest, places = self.numbering
        ledger = _numbers_of(ids, runs.ledger)
        first = bases[ledger] + runs.entry - lowest[ledger]
        number = first if places is None else np.searchsorted(places, first)
        return number.astype(np.int32), ledger


def number_entries(batches: Callable[[], Iterable[Runs]], *, sampled: bool = False) -> EntryNumbers:
    """Numbers the entries of all runs. RecordError for too many entries.

    `batches` returns the runs, in any order and in parts; it may be called twice. `sampled`: the runs have a sample of the
    entries, and the others between them get no numbers.
    """
    spans: dict[int, tuple[int, int]] = {}
    entries = 0
    for runs in batches():
        entries += int(runs.entries.sum(dtype=np.int64))
        _add_spans(spans, runs)
    ids = np.array(sorted(spans), np.int64)
    lowest, ends = np.array([spans[one] for one in ids.tolist()], np.int64).reshape(-1, 2).T
    bases = np.concatenate([np.zeros(1, np.int64), np.cumsum(ends - lowest)])
    places = int(bases[-1])
    if places > _PLACES_MAX:
        raise RecordError(
            f"the broker lifetime has {places:,} entries, a replay takes {_PLACES_MAX:,}: give a part of its files"
        )
    every = EntryNumbers(Numbering(ids, bases, lowest, None), places)
    if not sampled and places <= _SPARSE * entries:
        return every
    # Sorted, and no table of all places: these may be a hundred times as many as the entries of a sample.
    parts = [np.unique(runs_expanded(every.of(runs)[0], runs.entries)[1]) for runs in batches()]
    kept = np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.int64)
    return EntryNumbers(Numbering(ids, bases, lowest, kept), len(kept))


def _add_spans(spans: dict[int, tuple[int, int]], runs: Runs) -> None:
    """Widens the span of each ledger, from its lowest entry id to the end of its highest run."""
    if not len(runs.ledger):
        return
    ids = _different(runs.ledger)
    ledger = _numbers_of(ids, runs.ledger)
    lowest = np.full(len(ids), np.iinfo(np.int64).max)
    ends = np.zeros(len(ids), np.int64)
    np.minimum.at(lowest, ledger, runs.entry)
    np.maximum.at(ends, ledger, runs.entry + runs.entries)
    for one, low, end in zip(ids.tolist(), lowest.tolist(), ends.tolist(), strict=True):
        before = spans.get(one)
        spans[one] = (low, end) if before is None else (min(low, before[0]), max(end, before[1]))


def _different(ledgers: Ints64) -> Ints64:
    """Returns the ledger ids in order, each once."""
    low, high = int(ledgers.min()), int(ledgers.max())
    if high - low >= _TABLE_MAX:
        return np.unique(ledgers)
    # A table over the span needs no sorting of all rows.
    used = np.zeros(high - low + 1, np.bool_)
    used[ledgers - low] = True
    return np.flatnonzero(used) + low


def _numbers_of(ids: Ints64, ledgers: Ints64) -> Ints32:
    """Returns the index of each ledger among the sorted ids, which have it."""
    if not len(ledgers) or int(ids[-1]) - int(ids[0]) >= _TABLE_MAX:
        return np.searchsorted(ids, ledgers).astype(np.int32)
    table = np.zeros(int(ids[-1]) - int(ids[0]) + 1, np.int32)
    table[ids - ids[0]] = np.arange(len(ids), dtype=np.int32)
    numbers: Ints32 = table[ledgers - ids[0]]
    return numbers


def entries_before(numbering: Numbering, ledger: int, entry_id: int) -> int:
    """Returns the number of a ledger's first entry at or after an entry id."""
    base, end = int(numbering.bases[ledger]), int(numbering.bases[ledger + 1])
    place = min(max(base + entry_id - int(numbering.lowest[ledger]), base), end)
    return place if numbering.places is None else int(np.searchsorted(numbering.places, place))


def sizes_of(columns: RecordColumns, first: Ints32, entries: int, certain: NDArray[np.bool_]) -> Ints32:
    """Returns the bytes of each entry.

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
