"""Usage: the size, the reads and the removals of each topic's cache, for the admin API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from entry_cache.entry_cache import EntryCache
from entry_cache.observe.cache_events import REASONS
from entry_cache.observe.eviction_stats import EvictionStats


@dataclass(frozen=True, slots=True)
class CacheUsage:
    """The usage of one managed ledger's cache; reads and evictions in entries since it was opened."""

    log: str
    """The managed ledger's name."""
    size_bytes: int
    """Cached bytes."""
    entries: int
    """Cached entries."""
    hits: int
    """Entries read from the cache."""
    misses: int
    """Entries read from storage."""
    coalesced: int
    """Entries received from another reader's storage read."""
    evictions: Mapping[str, int]
    """Removed entries by reason."""

    @property
    def hit_ratio(self) -> float | None:
        """Hits divided by all entries read; None before the first one."""
        read = self.hits + self.misses + self.coalesced
        return self.hits / read if read else None

    @property
    def evicted(self) -> int:
        """Removed entries for all reasons."""
        return sum(self.evictions.values())


SORTS: Final[Mapping[str, Callable[[CacheUsage], int]]] = MappingProxyType(
    {
        "bytes": lambda usage: usage.size_bytes,
        "hits": lambda usage: usage.hits,
        "misses": lambda usage: usage.misses,
        "evictions": lambda usage: usage.evicted,
    }
)
"""The orders in which the admin API lists caches, the largest first."""


def usage_of(cache: EntryCache, eviction_stats: EvictionStats) -> CacheUsage:
    """Returns the usage of an open cache."""
    reads = cache.reads
    # `strict`: a reason without a count would shift all that follow.
    evicted = zip(REASONS, eviction_stats.of_log(cache.name), strict=True)
    return CacheUsage(
        log=cache.name,
        size_bytes=cache.size_bytes,
        entries=cache.entries,
        hits=reads.hit_entries,
        misses=reads.miss_entries,
        coalesced=reads.coalesced_entries,
        evictions={reason.value: count for reason, count in evicted},
    )
