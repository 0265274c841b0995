"""`/admin/v2/magnetar/cache`: the levels of the entry cache, the topics that fill it, and the reasons about one entry.

Pulsar has no such routes. They read nothing from storage, but open a topic that is not open, as every request about a topic
does. Long lists are walked in slices, and the loop serves others in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from heapq import nlargest
from typing import Final

from aiohttp import web

from broker.admin.http.answers import BadParameter, answer, time_text, topic_of
from broker.admin.service_view import BROKER
from broker.admin.topics.topic_access import existing_persistent
from broker.config.storage_keys import ENTRY_CACHE
from broker.managed_ledger.managed_ledger import ManagedLedger
from entry_cache.cache_stats import ReadStats
from entry_cache.entry_cache_manager import EntryCacheManager
from entry_cache.listener import Obstacle
from entry_cache.observe.cache_events import CAUSES_OF_REQUEUES, REASONS, Event, Op
from entry_cache.observe.explain import Kept, Present, explain, reason_of, was_expected
from entry_cache.observe.usage import SORTS, CacheUsage, usage_of
from foundation.model.errors import NoSuchEntry, NoSuchLedger, TopicNotFound
from foundation.model.position import Position
from foundation.model.topic_name import TopicName
from foundation.settings.keys import format_value
from foundation.units import NS_PER_SECOND
from foundation.value import Json

CACHES_PER_SLICE: Final = 256
"""Caches that are looked at between two turns of the loop."""
LIMIT: Final = 10
"""Topics that `top` answers by default."""
LIMIT_MAX: Final = 10_000
"""The most topics that `top` answers."""


async def levels(request: web.Request) -> web.Response:
    """Answers the levels and counts of the cache, the policy, and the settings by their names."""
    broker = request.app[BROKER]
    cache, caches = broker.cache, broker.cache.manager
    stats = caches.stats
    still_expected = cache.eviction_stats.evicted_expected_entries
    kept = Kept.by(cache.decisions.ring)
    return answer(
        {
            "policy": caches.settings.policy,
            "profile": broker.settings.profile,
            **_sizes(caches),
            "queueLength": cache.queue_length,
            "tombstones": cache.tombstones,
            "pinnedBytes": cache.pinned_bytes,
            "chargedBytes": cache.charged_bytes,
            "memoryBytes": cache.memory_bytes,
            "topics": len(caches.caches),
            **_reads(caches.reads()),
            "insertedEntries": cache.inserted_entries,
            "evictedEntries": {reason.value: stats.evicted_entries[reason] for reason in REASONS},
            "evictedWithExpectedReads": {reason.value: still_expected[reason] for reason in REASONS},
            "requeuedEntries": dict(caches.policy.requeues),
            "decisions": _kept(kept, broker.environment.now_ns()) | {"events": cache.decisions.ring.kept},
            "settings": {
                key.name: format_value(broker.settings.value(key.name))
                for key in ENTRY_CACHE.keys
                if key.used
            },
        }
    )


async def top(request: web.Request) -> web.Response:
    """Answers the first topics by `sort`, at most `limit`."""
    by = request.query.get("sort", "bytes")
    if by not in SORTS:
        raise BadParameter(f"sort={by}: allowed are {', '.join(SORTS)}")
    limit = _number(request.query.get("limit", str(LIMIT)), "limit")
    if not 0 < limit <= LIMIT_MAX:
        raise BadParameter(f"limit={limit}: allowed is 1 to {LIMIT_MAX}")
    composed = request.app[BROKER].cache
    caches = composed.manager
    usages = []
    for number, cache in enumerate(caches.caches, 1):
        usages.append(usage_of(cache, composed.eviction_stats))
        if number % CACHES_PER_SLICE == 0:
            await asyncio.sleep(0)
    first = nlargest(limit, usages, key=SORTS[by])
    topics: list[Json] = [_usage(one) for one in first]
    return answer({"sort": by, **_sizes(caches), "topicsOpen": len(usages), "topics": topics})


async def why(request: web.Request) -> web.Response:
    """Answers the kept events about one entry, and the conclusion in a sentence."""
    broker, name = request.app[BROKER], topic_of(request)
    position = Position(
        _number(request.match_info["ledgerId"], "ledger id"),
        _number(request.match_info["entryId"], "entry id"),
    )
    count = await broker.registry.partitions.count(name)
    if count:
        raise TopicNotFound(
            f"{name} is partitioned: name one of {name}-partition-0 to -partition-{count - 1}"
        )
    log = (await existing_persistent(broker, name)).ledger
    events: list[Event] = []
    for some in broker.cache.decisions.ring.about(*position):
        events += some
        await asyncio.sleep(0)
    if not events:
        _check_exists(name, log, position)
    now_ns = broker.environment.now_ns()
    kept = Kept.by(broker.cache.decisions.ring)
    told = explain(log.cache, broker.cache.eviction_stats.expectations, position, events, kept, now_ns)
    now_ms = broker.environment.wall_ms()
    return answer(
        {
            "topic": str(name),
            "ledgerId": position.ledger_id,
            "entryId": position.entry_id,
            "verdict": told.verdict.value,
            "conclusion": told.conclusion,
            "present": None if told.present is None else _present(told.present),
            "events": [_event(event, now_ns, now_ms) for event in told.events],
            "kept": _kept(kept, now_ns),
        }
    )


def _number(text: str, what: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise BadParameter(f"{what} {text[:50]!r} is not a whole number from 0")
    return int(text)


def _check_exists(name: TopicName, log: ManagedLedger, position: Position) -> None:
    """Raises NoSuchLedger or NoSuchEntry, which name what the topic has; for positions without kept events."""
    ledger_id, entry_id = position
    if ledger_id not in log.ledgers:
        ids = [info.ledger_id for info in log.ledgers.infos()]
        raise NoSuchLedger(f"{name} has no ledger {ledger_id}; its ledgers are from {ids[0]} to {ids[-1]}")
    last = log.ledgers.last_entry(ledger_id)
    if entry_id > last:
        has = f"its last one is {ledger_id}:{last}" if last >= 0 else "it is empty"
        raise NoSuchEntry(f"ledger {ledger_id} of {name} has no entry {entry_id}; {has}")


# JSON


def _sizes(caches: EntryCacheManager) -> dict[str, Json]:
    return {
        "usedBytes": caches.used_bytes,
        "maxBytes": caches.settings.size_bytes_max,
        "entries": caches.entries,
    }


def _reads(reads: ReadStats) -> dict[str, Json]:
    return {"hits": reads.hit_entries, "misses": reads.miss_entries, "coalesced": reads.coalesced_entries}


def _usage(usage: CacheUsage) -> Json:
    return {
        "topic": str(TopicName.of_ledger_name(usage.log)),
        "bytes": usage.size_bytes,
        "entries": usage.entries,
        "hits": usage.hits,
        "misses": usage.misses,
        "coalesced": usage.coalesced,
        "hitRatio": usage.hit_ratio,
        "evictions": dict(usage.evictions),
    }


def _kept(kept: Kept, now_ns: int) -> dict[str, Json]:
    return {
        "eventsMax": kept.events_max,
        "seconds": (now_ns - kept.since_ns) / NS_PER_SECOND,
        "older": "dropped" if kept.forgets else "none",
    }


def _present(present: Present) -> Json:
    return {
        "bytes": present.size_bytes,
        "seconds": present.age_ns / NS_PER_SECOND,
        "secondsSinceRequeue": None if present.unvisited_ns is None else present.unvisited_ns / NS_PER_SECOND,
        "expectedReads": present.expected_reads,
        "requeues": present.requeues,
        "accessed": present.accessed,
        "cursorsToCome": list(present.to_come),
        "cursorsToReturn": list(present.to_return),
    }


_OBSTACLES: Final = {obstacle: obstacle.name.lower() for obstacle in Obstacle} | {
    Obstacle.NO_READER: "nobody_to_come"  # The published name of this value.
}

_DETAILS: Final[Mapping[Op, Callable[[Event], dict[str, Json]]]] = {
    Op.INSERT: lambda event: {
        "expectedReads": None if event.detail < 0 else event.detail,
        "cursors": list(event.who),
    },
    Op.HIT: lambda event: {"cursor": event.who[0]},
    Op.MISS: lambda event: {"cursor": event.who[0]},
    Op.COALESCED: lambda event: {"cursor": event.who[0]},
    Op.FAILED: lambda event: {"cursor": event.who[0]},
    Op.REQUEUE: lambda event: {"cause": CAUSES_OF_REQUEUES[event.detail]},
    Op.EVICT: lambda event: {"reason": reason_of(event).value, "expected": was_expected(event)},
    Op.NOT_CACHED: lambda event: {"reason": _OBSTACLES[Obstacle(event.detail)]},
}
"""By operation, the fields of an event's answer beside the common ones."""


def _no_details(_: Event) -> dict[str, Json]:
    return {}


def _event(event: Event, now_ns: int, now_ms: int) -> Json:
    seconds = (now_ns - event.at_ns) / NS_PER_SECOND
    return {
        "at": time_text(now_ms - seconds * 1000),
        "secondsAgo": seconds,
        "event": event.op.name.lower(),
        "firstEntryId": event.first,
        "lastEntryId": event.first + event.entries - 1,
        **_DETAILS.get(event.op, _no_details)(event),
    }


CACHE_ROUTES = (
    web.get("/admin/v2/magnetar/cache", levels),
    web.get("/admin/v2/magnetar/cache/top", top),
    web.get(
        "/admin/v2/magnetar/cache/why/{domain:persistent|non-persistent}"
        "/{tenant}/{namespace}/{topic}/{ledgerId}/{entryId}",
        why,
    ),
)
