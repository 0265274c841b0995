"""Runs: entries told as ranges of consecutive ids, which is how they come, are read and leave."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from broker.model.entry import Entry

Run = tuple[int, int, int, int]
"""(ledger id, first entry id, entries, bytes)"""


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
