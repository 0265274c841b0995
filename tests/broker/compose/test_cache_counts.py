"""CacheCounts: the growth of each topic's counters from one message to the next."""

from __future__ import annotations

import asyncio

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from broker.compose.cache_counts import CacheCounts
from broker.compose.cluster_membership import publisher_elsewhere
from broker.service.topics.persistent_topic import PersistentTopic
from entry_cache.cache_stats import ReadStats
from foundation.model.topic_name import parse_topic_name
from tests.fakes.stage import Stage
from tests.support.memory_broker import memory_broker


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


async def test_counts_of_a_broker_without_the_topic_are_published_at_its_owner() -> None:
    store = MemoryMetadataStore()
    second = store.another()
    name = parse_topic_name("persistent://public/default/counts")
    setting = f"entryCacheCountsTopic={name}"
    async with (
        memory_broker(setting, metadata=store) as owner,
        memory_broker(setting, metadata=second) as other,
    ):
        await owner.registry.ownership.owner_of(name, authoritative=True)
        for broker in (other, owner, other):
            counts = CacheCounts(
                broker.registry,
                name,
                "b:8080",
                60,
                spawn=lambda work, name: None,
                wall_ms=lambda: 0,
                publish_elsewhere=publisher_elsewhere(broker.registry),
            )
            await counts._publish([{"topic": "t", "hits": 1, "misses": 0, "coalesced": 0}])
        topic = await owner.registry.get(name, create=False)
        assert isinstance(topic, PersistentTopic)
        while (last := topic.ledger.last_confirmed) is None or last.entry_id < 2:  # noqa: ASYNC110  # No event.
            await asyncio.sleep(0.01)
