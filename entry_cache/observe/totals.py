"""Totals: the counts of a cache under fixed names, so that a record and its replay can be compared."""

from __future__ import annotations

from entry_cache.compose import ComposedCache


def totals_of(cache: ComposedCache) -> dict[str, int]:
    """Returns the counts since the cache was made; `entries` and `used_bytes` are levels."""
    manager = cache.manager
    reads, stats = manager.reads(), manager.stats
    still_expected = cache.eviction_stats.evicted_expected_entries
    return {
        "hits": reads.hit_entries,
        "hit_bytes": reads.hit_bytes,
        "misses": reads.miss_entries,
        "miss_bytes": reads.miss_bytes,
        "coalesced": reads.coalesced_entries,
        "coalesced_bytes": reads.coalesced_bytes,
        "inserted": cache.inserted_entries,
        # Not counted at inserts, the hot path: all inserted bytes are still cached or were removed.
        "inserted_bytes": manager.used_bytes + sum(stats.evicted_bytes.values()),
        "refused": stats.refused_entries,
        **{evicted(reason.value): count for reason, count in stats.evicted_entries.items()},
        **{evicted_expected(reason.value): count for reason, count in still_expected.items()},
        **{requeued(cause): count for cause, count in manager.policy.requeues.items()},
        "entries": manager.entries,
        "used_bytes": manager.used_bytes,
    }


def evicted(reason: str) -> str:
    """Returns the name of the count of entries removed for a reason."""
    return f"evicted: {reason}"


def evicted_expected(reason: str) -> str:
    """Returns the name of the count of those of them that reads were expected of."""
    return f"still expected: {reason}"


def requeued(cause: str) -> str:
    """Returns the name of the count of requeues for a cause."""
    return f"requeued: {cause}"
