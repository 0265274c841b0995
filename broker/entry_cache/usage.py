"""Usage: what each topic's cache holds and how it serves, for whoever asks which topics fill the cache or miss it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from broker.entry_cache.cache_events import REASONS
from broker.entry_cache.entry_cache import EntryCache


@dataclass(frozen=True, slots=True)
class CacheUsage:
    """Of one managed ledger. Reads and evictions in entries, since it was opened."""

    log: str
    size_bytes: int
    entries: int
    hits: int
    misses: int
    coalesced: int
    evictions: Mapping[str, int]
    """By reason."""

    @property
    def hit_ratio(self) -> float | None:
        """Hits among all entries read; None before the first one."""
        read = self.hits + self.misses + self.coalesced
        return self.hits / read if read else None

    @property
    def evicted(self) -> int:
        return sum(self.evictions.values())


SORTS: Final[Mapping[str, Callable[[CacheUsage], int]]] = MappingProxyType(
    {
        "bytes": lambda usage: usage.size_bytes,
        "hits": lambda usage: usage.hits,
        "misses": lambda usage: usage.misses,
        "evictions": lambda usage: usage.evicted,
    }
)
"""What caches can be sorted by, the largest first."""


def usage_of(cache: EntryCache) -> CacheUsage:
    reads = cache.reads
    evicted = zip(REASONS, cache.evicted_entries, strict=True)
    return CacheUsage(
        log=cache.name,
        size_bytes=cache.size_bytes,
        entries=cache.entries,
        hits=reads.hit_entries,
        misses=reads.miss_entries,
        coalesced=reads.coalesced_entries,
        evictions={reason.value: count for reason, count in evicted},
    )
