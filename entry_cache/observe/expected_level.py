"""ExpectedLevel: cached entries with expected reads, a gauge computed by walking over the caches in slices.

Keeping it up to date would cost something at every delivery. The walk sees each ledger at the time when it comes to it:
entries may come and go between two slices, and an entry that is removed meanwhile is still counted.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from entry_cache.entry_cache import EntryCache
from entry_cache.observe.expectations import Expectations
from entry_cache.range_cache import RangeCache
from foundation.model.entry import Entry

LOOKS_PER_SLICE: Final = 20_000
"""Entries, present or not, that take 2 to 4 ms to look at."""

LOOKS_PER_LEDGER: Final = 50
"""Visiting a ledger with few entries costs as much as looking at this many."""

COPIED_MAX: Final = 200_000
"""Entries that are copied into a list in 3 to 5 ms."""


class ExpectedLevel(NamedTuple):
    """Cached entries with expected reads."""

    entries: int
    """Their number."""
    size_bytes: int
    """Their bytes."""


def count_expected(
    caches: Iterable[EntryCache], expectations: Expectations, now_ns: int
) -> Generator[None, None, ExpectedLevel]:
    """Yields between two slices, and returns the level."""
    entries = size_bytes = looked_at = 0
    for cache in caches:
        # A copy, because ledgers are closed while the walk waits between two slices.
        for ledger in list(cache.ledgers.values()):
            is_small = len(ledger.entries) <= COPIED_MAX
            for part in slices_of(ledger, LOOKS_PER_SLICE):
                if part:
                    expected = _expected_sizes(
                        part, expectations.expected_from(cache, part[0].ledger_id, now_ns)
                    )
                    entries += len(expected)
                    size_bytes += sum(expected)
                # Of a walk over ids the absent ones cost as much as the present ones, so a whole slice is
                # charged.
                looked_at += max(len(part), LOOKS_PER_LEDGER) if is_small else LOOKS_PER_SLICE
                if looked_at >= LOOKS_PER_SLICE:
                    looked_at = 0
                    yield
    return ExpectedLevel(entries, size_bytes)


def _expected_sizes(part: Sequence[Entry], from_id: int) -> list[int]:
    return [entry.size for entry in part if (entry.expected_reads or 0) > 0 or entry.entry_id >= from_id]


def slices_of(ledger: RangeCache, count: int) -> Iterator[list[Entry]]:
    """Yields the entries of a ledger, `count` ids or entries at a time; entries may come and go in between."""
    if len(ledger.entries) <= COPIED_MAX:
        held = list(ledger.entries.values())
        yield from (held[start : start + count] for start in range(0, len(held), count))
        return
    # Copying would hold the loop for too long, so walk over the ids instead, absent ones included.
    get = ledger.entries.get
    start = ledger.lowest_id
    while start <= ledger.highest_id:
        part = [entry for entry_id in range(start, start + count) if (entry := get(entry_id)) is not None]
        # The walk has found that nothing is left at the front, so later walks and invalidations need not look
        # there.
        if not part and start == ledger.lowest_id:
            ledger.lowest_id = start + count
        start += count
        yield part
