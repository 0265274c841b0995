"""How much of what is cached has expected reads left: a level that nobody keeps, counted by a walk in slices.

Keeping it would cost every hand-over of every entry. The walk sees each ledger as it was when it came to it, so that
between two slices entries may come and go; what leaves meanwhile is still counted.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Final, NamedTuple

from broker.entry_cache.entry_cache import EntryCache
from broker.model.entry import Entry

LOOKS_PER_SLICE: Final = 20_000
"""Entries, present or not, that take 2 to 4 ms to look at."""

LOOKS_PER_LEDGER: Final = 50
"""A ledger with next to nothing costs as much as so many entries."""


class ExpectedLevel(NamedTuple):
    entries: int
    size_bytes: int


def count_expected(caches: Iterable[EntryCache], now_ns: int) -> Generator[None, None, ExpectedLevel]:
    """Yields between two slices and returns the level."""
    entries = size_bytes = looked_at = 0
    for cache in caches:
        for ledger in cache.range_caches():
            for part in ledger.slices(LOOKS_PER_SLICE):
                if part:
                    expected = _expected_sizes(part, cache.expected_from(part[0].ledger_id, now_ns))
                    entries += len(expected)
                    size_bytes += sum(expected)
                looked_at += max(len(part), LOOKS_PER_LEDGER) if ledger.is_small else LOOKS_PER_SLICE
                if looked_at >= LOOKS_PER_SLICE:
                    looked_at = 0
                    yield
    return ExpectedLevel(entries, size_bytes)


def _expected_sizes(part: Sequence[Entry], from_id: int) -> list[int]:
    return [entry.size for entry in part if entry.expected_reads > 0 or entry.entry_id >= from_id]
