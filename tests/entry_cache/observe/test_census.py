"""Ages and expected reads of cached entries, counted from a bounded sample."""

from __future__ import annotations

import pytest

from broker.compose.cache_settings import EntryCacheSettings
from entry_cache.compose import ComposedCache
from entry_cache.observe.census import AGE_BOUNDS_S, READS_MAX, SAMPLE_MAX, Census, every
from foundation.model.entry import Entry

SECOND_NS = 10**9


def filled(*runs: tuple[int, int, int, int]) -> ComposedCache:
    """Runs of (first id, entries, expected reads, inserted at second)."""
    settings = EntryCacheSettings(size_bytes_max=1 << 40, policy="pip430", profile="4.2", ttl_ns=SECOND_NS)
    cache = ComposedCache(settings)
    log = cache.manager.open("log")
    for first, count, expected, second in runs:
        entries = [Entry(1, first + number, b"", b"xy", 1) for number in range(count)]
        log.insert_run(entries, expected, second * SECOND_NS)
    return cache


def counted(cache: ComposedCache, now_s: int) -> tuple[Census, int]:
    census = Census(cache.manager.entries)
    pauses = sum(
        1 for _ in census.walk(cache.manager.caches, cache.eviction_stats.expectations, now_s * SECOND_NS)
    )
    return census, pauses


def test_small_cache_is_counted_exactly() -> None:
    census, pauses = counted(filled((0, 10, 2, 0), (10, 5, 20, 9)), 10)
    ages = dict(zip([*AGE_BOUNDS_S, None], census.ages, strict=True))
    assert (ages[30], ages[2], sum(census.ages)) == (10, 5, 15)
    assert (census.reads[2], census.reads[READS_MAX], census.step, pauses) == (10, 5, 1, 0)
    assert sum(census.age_bytes) == 30


@pytest.mark.parametrize("gap", [1, 1000])
def test_large_cache_is_sampled_evenly(gap: int) -> None:
    cache = filled((0, 30_000, 1, 0), (30_000 * gap, 30_000, 3, 5))
    census, pauses = counted(cache, 6)
    assert census.looked_at <= SAMPLE_MAX + 2
    assert pauses > 1
    total = census.looked_at * census.step
    assert total == pytest.approx(60_000, rel=0.01)
    assert census.reads[1] * census.step == pytest.approx(30_000, rel=0.01)
    assert census.reads[3] * census.step == pytest.approx(30_000, rel=0.01)


def test_entries_may_leave_during_the_walk() -> None:
    cache = filled((0, 100, 1, 0))
    (log,) = cache.manager.caches
    walk = every(log.ledgers[1], 1, 0)
    next(walk)
    log.clear()
    assert list(walk) == []
