"""Runs: entries told as ranges of consecutive ids, which is how they come, are read and leave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from broker.model.entry import Entry

Run = tuple[int, int, int, int]
"""(ledger id, first entry id, entries, bytes)"""


class LeftRun(NamedTuple):
    """Entries that have left the cache together."""

    ledger_id: int
    first: int
    entries: int
    size_bytes: int
    expected: bool
    """Whether reads of them were still expected: of all of them, or of none."""


def runs_of(entries: Iterable[Entry]) -> Iterator[Run]:
    """Entries as runs of consecutive ids of one ledger, in the order given."""
    ledger_id = first = following = -1
    size_bytes = 0
    for entry in entries:
        if entry.entry_id != following or entry.ledger_id != ledger_id:
            if following >= 0:
                yield ledger_id, first, following - first, size_bytes
            ledger_id = entry.ledger_id
            first = following = entry.entry_id
            size_bytes = 0
        following += 1
        size_bytes += entry.size
    if following >= 0:
        yield ledger_id, first, following - first, size_bytes


def left_runs_of(entries: Iterable[Entry], expected_from: Callable[[int], int]) -> Iterator[LeftRun]:
    """Such runs, cut also where it changes whether reads were expected: by the count that stands at the entry, or because
    a reader was to come from an entry id on, which `expected_from` says for a ledger."""
    ledger_id = first = following = -1
    from_id = size_bytes = 0
    expected = False
    for entry in entries:
        entry_id = entry.entry_id
        if entry.ledger_id != ledger_id:
            if following >= 0:
                yield LeftRun(ledger_id, first, following - first, size_bytes, expected)
            from_id = expected_from(entry.ledger_id)
            following = -1
        now_expected = entry.expected_reads > 0 or entry_id >= from_id
        if entry_id != following or now_expected is not expected:
            if following >= 0:
                yield LeftRun(ledger_id, first, following - first, size_bytes, expected)
            ledger_id = entry.ledger_id
            first = following = entry_id
            size_bytes = 0
            expected = now_expected
        following += 1
        size_bytes += entry.size
    if following >= 0:
        yield LeftRun(ledger_id, first, following - first, size_bytes, expected)
