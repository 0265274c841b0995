"""The page of the cache: bytes by topic, entries that come and go, ages, expected reads, and the subscriptions' needs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from heapq import nlargest
from operator import itemgetter
from typing import Final

from broker.console.curve import CurveSampling
from broker.service.subscriptions.subscription import Subscription
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic import Topic
from entry_cache.cache_stats import ReadStats
from entry_cache.compose import ComposedCache
from entry_cache.entry_cache import EntryCache
from entry_cache.observe.cache_events import REASONS
from entry_cache.observe.census import AGE_BOUNDS_S, READS_MAX, Census
from entry_cache.observe.usage import usage_of
from foundation.model.topic_name import TopicName
from foundation.value import Json

TOP: Final = 20
"""Topics that are listed by default."""
TOP_MAX: Final = 1_000
"""The most topics that are listed."""
SUBSCRIPTIONS_MAX: Final = 100
"""Subscriptions that are listed, those that need most bytes."""
PER_SLICE: Final = 500
"""Topics or caches between two turns of the loop: some ms."""
RATE_NS: Final = 1_000_000_000
"""Least time between two counts that rates are made from."""
RATE_MAX_NS: Final = 180_000_000_000
"""Longest such time: a page that opens after hours shows no mean of these hours as its rate."""

Filled = tuple[int, int, EntryCache]
"""The bytes of a cache with entries, a number that no other one has, and the cache."""


class CachePage:
    """The answers about one cache; keeps the counts of an earlier answer, for rates."""

    def __init__(self, cache: ComposedCache, topics: Mapping[str, Topic], now_ns: Callable[[], int]) -> None:
        """`now_ns` is the clock of the cache."""
        self._cache = cache
        self._topics = topics
        self._now_ns = now_ns
        self._curve = CurveSampling(cache, cache.decisions.now_ns)
        self._older: tuple[int, list[int]] | None = None
        self._newer: tuple[int, list[int]] | None = None

    async def shown(self, top: int) -> dict[str, Json]:
        """Returns the answer. The miss ratio curve begins with the first one."""
        manager = self._cache.manager
        filled, reads = await self._caches()
        return {
            "policy": manager.settings.policy,
            "bytes": manager.used_bytes,
            "maxBytes": manager.settings.size_bytes_max,
            "chargedBytes": self._cache.charged_bytes,
            "memoryBytes": self._cache.memory_bytes,
            "entries": manager.entries,
            **self._by_topic(filled, top),
            **self._flows(),
            "requeued": dict(manager.policy.requeues),
            "reads": reads,
            **await self._census(filled),
            "workingSets": await self._working_sets(),
            "missRatioCurve": self._curve.shown(),
        }

    def expire(self) -> None:
        """Ends the sampling for the curve when nothing has asked for it for a while."""
        self._curve.expire()

    async def _caches(self) -> tuple[list[Filled], Json]:
        """Returns the caches that have entries, and the reads of cursors since the start through all caches."""
        filled: list[Filled] = []
        reads = ReadStats()
        # With those of closed topics, or the counts since the start would fall when a topic is closed.
        reads.add(self._cache.manager.closed_cursor_reads)
        for number, cache in enumerate(self._cache.manager.caches, 1):
            # Most of 100,000 topics are idle, so one look finds those that the rest of the page is about.
            if cache.reads.entries:
                reads.add(cache.cursor_reads)
            if cache.ledgers:
                filled.append((cache.size_bytes, number, cache))
            if number % PER_SLICE == 0:
                await asyncio.sleep(0)
        return filled, {
            "hits": reads.hit_entries,
            "misses": reads.miss_entries,
            "coalesced": reads.coalesced_entries,
        }

    def _by_topic(self, filled: list[Filled], top: int) -> dict[str, Json]:
        sized = [one for one in filled if one[0]]
        first = nlargest(top, sized)
        shown: list[Json] = []
        for _, _, cache in first:
            usage = usage_of(cache, self._cache.eviction_stats)
            shown.append(
                {
                    "topic": str(TopicName.of_ledger_name(usage.log)),
                    "bytes": usage.size_bytes,
                    "entries": usage.entries,
                    "hitRatio": cache.cursor_reads.hit_ratio,
                    "evicted": dict(usage.evictions),
                }
            )
        rest = sum([size for size, _, _ in sized]) - sum([size for size, _, _ in first])
        return {"topics": shown, "restBytes": rest, "restTopics": len(sized) - len(first)}

    def _flows(self) -> dict[str, Json]:
        """Returns what entered and left since the start, with rates since an earlier answer."""
        stats, still_expected = self._cache.manager.stats, self._cache.eviction_stats.evicted_expected_entries
        now_ns = self._now_ns()
        from_storage = stats.from_storage_entries
        published = self._cache.inserted_entries - from_storage
        counts = [published, from_storage, *(stats.evicted_entries[reason] for reason in REASONS)]
        if self._newer is None or now_ns - self._newer[0] >= RATE_NS:
            self._older, self._newer = self._newer, (now_ns, counts)
            if self._older is not None and now_ns - self._older[0] > RATE_MAX_NS:
                self._older = None
        rates: list[float | None] = [None] * len(counts)
        window_s: float | None = None
        if self._older is not None:
            since_ns, before = self._older
            window_s = (now_ns - since_ns) / 1e9
            rates = [(now - then) / window_s for now, then in zip(counts, before, strict=True)]
        return {
            "windowSeconds": window_s,
            "inserted": {
                "publishedEntries": published,
                "publishedPerSecond": rates[0],
                "fromStorageEntries": from_storage,
                "fromStoragePerSecond": rates[1],
            },
            "evicted": {
                reason.value: {
                    "entries": stats.evicted_entries[reason],
                    "bytes": stats.evicted_bytes[reason],
                    "perSecond": rate,
                    "expectedEntries": still_expected[reason],
                }
                for reason, rate in zip(REASONS, rates[2:], strict=True)
            },
        }

    async def _census(self, filled: list[Filled]) -> dict[str, Json]:
        manager = self._cache.manager
        census = Census(manager.entries)
        caches = (cache for _, _, cache in filled)
        walk = census.walk(caches, self._cache.eviction_stats.expectations, self._now_ns())
        for _ in walk:
            await asyncio.sleep(0)
        step = census.step
        reads: dict[str, Json] = {str(count): n * step for count, n in enumerate(census.reads[:READS_MAX])}
        return {
            "queue": {
                "bucketSeconds": [*AGE_BOUNDS_S],
                "entries": [count * step for count in census.ages],
                "bytes": [size * step for size in census.age_bytes],
                "walked": census.looked_at,
                "length": self._cache.queue_length,
                "sampled": step > 1,
            },
            "expectedReads": {
                **reads,
                f"{READS_MAX}+": census.reads[READS_MAX] * step,
                "notCounted": census.not_counted * step,
            },
        }

    async def _working_sets(self) -> Json:
        """Returns the subscriptions with the most bytes between their read position and the end of the topic."""
        found: list[tuple[int, int, Subscription]] = []
        for number, topic in enumerate(list(self._topics.values()), 1):
            if isinstance(topic, PersistentTopic) and not topic.closed:
                for subscription in topic.subscriptions.values():
                    entries = _entries_to_read(subscription)
                    if entries and subscription.consumers:
                        found.append((_bytes(topic, entries), entries, subscription))
            if number % PER_SLICE == 0:
                await asyncio.sleep(0)
        largest = nlargest(SUBSCRIPTIONS_MAX, found, key=itemgetter(0))
        return [*_working_set_rows(largest)]


def _working_set_rows(found: list[tuple[int, int, Subscription]]) -> Iterator[Json]:
    for size_bytes, entries, subscription in found:
        yield {
            "topic": str(subscription.topic.name),
            "subscription": subscription.name,
            "distanceEntries": entries,
            "distanceBytes": size_bytes,
            "hitRatio": subscription.cursor.reader.reads.hit_ratio,
            "active": subscription.cursor.active,
        }


def _entries_to_read(subscription: Subscription) -> int:
    cursor = subscription.cursor
    log = cursor.context
    ledger_id, entry_id = cursor.read_position
    return log.ledgers.entries_between((ledger_id, entry_id - 1), log.last_confirmed)


def _bytes(topic: PersistentTopic, entries: int) -> int:
    # By the mean size of an entry: exact bytes would need a look at each ledger in between.
    ledgers = topic.ledger.ledgers
    return ledgers.size_bytes * entries // max(1, ledgers.entries)
