"""Totals: what a cache has counted, under names that stay the same, so that two counts can stand side by side."""

from __future__ import annotations

from collections.abc import Mapping

from broker.entry_cache.entry_cache_manager import EntryCacheManager

Totals = Mapping[str, int]


def totals_of(manager: EntryCacheManager) -> dict[str, int]:
    """Since the manager was made; `entries` and `used_bytes` are levels."""
    reads, stats = manager.reads(), manager.stats
    return {
        "hits": reads.hit_entries,
        "hit_bytes": reads.hit_bytes,
        "misses": reads.miss_entries,
        "miss_bytes": reads.miss_bytes,
        "coalesced": reads.coalesced_entries,
        "coalesced_bytes": reads.coalesced_bytes,
        "inserted": manager.inserted_entries,
        "inserted_bytes": manager.inserted_bytes,
        "refused": stats.refused_entries,
        **{evicted(reason.value): count for reason, count in stats.evicted_entries.items()},
        **{evicted_expected(reason.value): count for reason, count in stats.evicted_expected_entries.items()},
        **{requeued(cause): count for cause, count in manager.policy.requeues.items()},
        "entries": manager.entries,
        "used_bytes": manager.used_bytes,
    }


def evicted(reason: str) -> str:
    return f"evicted: {reason}"


def evicted_expected(reason: str) -> str:
    return f"still expected: {reason}"


def requeued(cause: str) -> str:
    return f"requeued: {cause}"
