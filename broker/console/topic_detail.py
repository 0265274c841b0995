"""The page of one topic: its ledgers with their cached ranges, and the policies in force with their origin."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from broker.managed_ledger.ledger_list import LedgerInfo
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.service.policies.effective_policies import EffectivePolicies
from broker.service.policies.table import POLICIES
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic import Topic
from entry_cache.range_cache import RangeCache
from foundation.value import Json

LEDGERS_MAX: Final = 500
"""Ledgers that are listed, the newest ones."""
RANGES_MAX: Final = 200
"""Cached ranges that are listed over all ledgers, the newest ones."""
IDS_PER_SLICE: Final = 20_000
"""Ids of entries that are looked at between two turns of the loop: 2 ms."""
SLICES_MAX: Final = 100
"""Slices of a ledger with gaps that are looked at, from the newest id on."""

CachedRange = tuple[int, int]
"""First and last id of consecutive cached entries."""


async def topic_detail(topic: Topic, policies: EffectivePolicies) -> dict[str, Json]:
    """Returns the answer without its moving parts."""
    found: dict[str, Json] = {
        "topic": str(topic.name),
        "ledgers": [],
        "ledgersMore": 0,
        "lastBefore": None,
        "trimmedBefore": None,
    }
    if isinstance(topic, PersistentTopic):
        found |= await _ledgers(topic.ledger)
    found["policies"] = [*_policies(topic, policies)]
    return found


async def _ledgers(log: ManagedLedger) -> dict[str, Json]:
    infos = [*log.ledgers.infos()]
    listed = infos[-LEDGERS_MAX:]
    cached = await cached_ranges(log.cache.ledgers, [info.ledger_id for info in reversed(listed)])
    first = log.ledgers.first()
    shown: list[Json] = []
    for info in listed:
        ranges = cached.get(info.ledger_id, [])
        whole = log.cache.ledgers.get(info.ledger_id)
        in_ranges = sum(last - first + 1 for first, last in ranges)
        shown.append(
            {
                "ledgerId": info.ledger_id,
                "firstEntry": 0,
                "lastEntry": info.entries - 1,
                "entries": info.entries,
                "bytes": info.size_bytes,
                "state": "open" if info.closed_at_ms is None else "closed",
                "closedAtMs": info.closed_at_ms,
                "cached": [[*one] for one in ranges],
                "cachedEntries": 0 if whole is None else len(whole.entries),
                "cachedBytes": 0 if whole is None else whole.size_bytes,
                # Cached entries in no range of this answer.
                "cachedMore": 0 if whole is None else max(0, len(whole.entries) - in_ranges),
            }
        )
    return {
        "ledgers": shown,
        "ledgersMore": len(infos) - len(listed),
        "lastBefore": _last_of(infos[: -len(listed)]),
        "trimmedBefore": {"ledgerId": first.ledger_id, "entryId": max(first.entry_id, 0)},
    }


def _last_of(infos: Sequence[LedgerInfo]) -> Json:
    """Returns the position of the last entry in these ledgers; None if they have none."""
    last = next((info for info in reversed(infos) if info.entries), None)
    return None if last is None else {"ledgerId": last.ledger_id, "entryId": last.entries - 1}


async def cached_ranges(
    caches: Mapping[int, RangeCache], ledger_ids: list[int]
) -> dict[int, list[CachedRange]]:
    """Returns the cached ranges by ledger, at most RANGES_MAX of them: the newest, if `ledger_ids` begins with these."""
    found: dict[int, list[CachedRange]] = {}
    left = RANGES_MAX
    for ledger_id in ledger_ids:
        cache = caches.get(ledger_id)
        if cache is None or not cache.entries:
            continue
        if cache.highest_id - cache.lowest_id + 1 == len(cache.entries):
            # The usual case, and the one of a ledger with a million entries: sorting them would hold the loop.
            found[ledger_id] = [(cache.lowest_id, cache.highest_id)]
            left -= 1
            if not left:
                break
            continue
        ranges = await newest_ranges(cache, left)
        found[ledger_id] = ranges
        left -= len(ranges)
        if not left:
            break
    return found


async def newest_ranges(cache: RangeCache, most: int) -> list[CachedRange]:
    """Returns the newest `most` cached ranges of a ledger with gaps, ascending."""
    if len(cache.entries) <= IDS_PER_SLICE:
        return [*ranges_of(sorted(cache.entries))][-most:]
    # By slices of ids: sorting the ids of a million entries would hold the loop for 10 to 200 ms.
    found: list[CachedRange] = []
    end = cache.highest_id + 1
    for _ in range(SLICES_MAX):
        if end <= cache.lowest_id:
            break
        first = max(cache.lowest_id, end - IDS_PER_SLICE)
        for low, high in reversed([*ranges_of(cache.ids_between(first, end))]):
            if found and found[-1][0] == high + 1:
                found[-1] = (low, found[-1][1])
            elif len(found) == most:
                return found[::-1]
            else:
                found.append((low, high))
        end = first
        await asyncio.sleep(0)
    return found[::-1]


def ranges_of(ids: list[int]) -> Iterator[CachedRange]:
    """Yields the ranges of consecutive ids in an ascending list."""
    start = 0
    while start < len(ids):
        end = start
        # Doubling steps first: a cache holds few long ranges, and each is found in some steps.
        step = 1
        while step:
            further = end + step
            if further < len(ids) and ids[further] - ids[start] == further - start:
                end, step = further, step * 2
            else:
                step //= 2
        yield ids[start], ids[end]
        start = end + 1


def _policies(topic: Topic, policies: EffectivePolicies) -> Iterator[Json]:
    for policy in POLICIES:
        found = policies.with_origin(topic.name, policy)
        if found is None:
            continue
        value, level = found
        yield {
            "name": policy.topic_name or policy.name,
            "title": policy.title,
            "value": policy.form.write(value),
            "origin": level,
            "key": policy.key,
            "onTopic": policy.topic is not None,
        }
