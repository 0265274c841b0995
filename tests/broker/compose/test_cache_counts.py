"""CacheCounts: the growth of each topic's counters from one message to the next."""

from __future__ import annotations

from broker.compose.cache_counts import CacheCounts
from entry_cache.cache_stats import ReadStats
from foundation.model.topic_name import parse_topic_name
from tests.fakes.stage import Stage


async def test_cache_counts_begin_again_at_zero_when_a_topic_was_opened_again() -> None:
    stage = Stage()
    topic = await stage.open()
    counts = CacheCounts(
        stage.registry,
        parse_topic_name("persistent://public/default/counts"),
        "b:8080",
        60,
        spawn=lambda work, name: None,
        wall_ms=lambda: 0,
    )
    # Its own: until the first read a cache has the counts that all share.
    reads = topic.ledger.cache.reads = ReadStats()
    reads.hit_entries, reads.miss_entries = 5, 9
    [row] = [each async for each in counts._changes()]
    assert (row["hits"], row["misses"]) == (5, 9)
    reads.hit_entries, reads.miss_entries = 6, 1
    [row] = [each async for each in counts._changes()]
    assert (row["hits"], row["misses"]) == (6, 1), "more hits than before, and fewer misses"
