"""Census: ages and expected reads of the cached entries, from a sample of bounded size.

The sample takes every n-th entry of each ledger, so a walk costs the same for a thousand and for ten million entries, and
the counts of all entries follow by multiplication.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

from entry_cache.entry_cache import EntryCache
from entry_cache.observe.expectations import Expectations
from entry_cache.range_cache import RangeCache
from foundation.model.entry import Entry

AGE_BOUNDS_S: Final = (0.1, 0.5, 1, 2, 5, 10, 30, 60, 300)
"""Upper bounds of the buckets of ages in seconds; one bucket more takes the rest."""
READS_MAX: Final = 8
"""Expected reads that are counted apart; more of them count as so many."""
SAMPLE_MAX: Final = 8_192
"""Entries that are looked at, about."""
LOOKS_PER_SLICE: Final = 2_000
"""Entries between two turns of the loop: 2 to 4 ms."""
_SPARSE: Final = 4
"""A ledger whose ids span more than so many times its entries is sampled by a copy of its entries."""


class Census:
    """The counts of one walk."""

    def __init__(self, entries: int) -> None:
        """`entries` are cached now, in all caches."""
        self.step = max(1, -(-entries // SAMPLE_MAX))
        """Each looked-at entry stands for so many."""
        self.ages = [0] * (len(AGE_BOUNDS_S) + 1)
        """Looked-at entries by the time since they were last queued."""
        self.age_bytes = [0] * (len(AGE_BOUNDS_S) + 1)
        """Their bytes."""
        self.reads = [0] * (READS_MAX + 1)
        """Looked-at entries by their expected reads; the last one has READS_MAX and more."""
        self.not_counted = 0
        """Looked-at entries whose reads the policy does not count."""
        self.looked_at = 0
        """Entries looked at."""

    def walk(self, caches: Iterable[EntryCache], expectations: Expectations, now_ns: int) -> Iterator[None]:
        """Looks at the sample. Yields between slices."""
        pause = LOOKS_PER_SLICE
        for cache in caches:
            for ledger in list(cache.ledgers.values()):
                for entry in every(ledger, self.step, self.looked_at):
                    self._count(cache, entry, expectations, now_ns)
                    if self.looked_at >= pause:
                        pause = self.looked_at + LOOKS_PER_SLICE
                        yield

    def _count(self, cache: EntryCache, entry: Entry, expectations: Expectations, now_ns: int) -> None:
        self.looked_at += 1
        bucket = bisect_right(AGE_BOUNDS_S, (now_ns - entry.queued_at_ns) / 1e9)
        self.ages[bucket] += 1
        self.age_bytes[bucket] += entry.size
        reads = expectations.reads_left(cache, entry, now_ns)
        if reads is None:
            self.not_counted += 1
        else:
            self.reads[min(reads, READS_MAX)] += 1


def every(ledger: RangeCache, step: int, phase: int) -> Iterator[Entry]:
    """Yields every `step`-th entry of a ledger; entries may leave meanwhile. `phase` shifts the first one."""
    spread = ledger.highest_id - ledger.lowest_id + 1
    if spread > _SPARSE * len(ledger.entries):
        yield from list(ledger.entries.values())[phase % step :: step]
        return
    get = ledger.entries.get
    for entry_id in range(ledger.lowest_id + phase % step, ledger.highest_id + 1, step):
        if (entry := get(entry_id)) is not None:
            yield entry
