"""Runs: entries told as ranges of consecutive ids, which is how they are added, read and removed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat

from foundation.model.entry import Entry

Run = tuple[int, int, int, int]
"""(ledger id, first entry id, number of entries, bytes)"""


def split_runs(entries: Iterable[Entry], flags: Iterable[bool]) -> Iterator[tuple[int, int, int, int, bool]]:
    """Yields entries as runs, in the order given; all entries of one run have the same flag.

    `flags` has the flag of each entry. A run is (ledger id, first entry id, number of entries, bytes, flag); it ends if
    the next entry is not the next id of the same ledger, or has another flag.
    """
    ledger_id = first = following = -1
    size_bytes = 0
    run_flag = False
    for entry, flag in zip(entries, flags, strict=False):
        if entry.entry_id != following or flag is not run_flag or entry.ledger_id != ledger_id:
            if following >= 0:
                yield ledger_id, first, following - first, size_bytes, run_flag
            ledger_id = entry.ledger_id
            first = following = entry.entry_id
            size_bytes = 0
            run_flag = flag
        following += 1
        size_bytes += entry.size
    if following >= 0:
        yield ledger_id, first, following - first, size_bytes, run_flag


def runs_of(entries: Iterable[Entry]) -> Iterator[Run]:
    """Yields entries as runs without flags, in the order given."""
    for run in split_runs(entries, repeat(False)):
        yield run[:4]
