"""The list of topics: search, order and one page of rows, in slices that never hold the loop for long.

Numbers are read for the order alone, and whole rows for the page alone. The order is made by sorting slices and merging
them up to the page: sorting all of 100,000 names at once would hold the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import chain, islice
from typing import Final, TypeVar

from broker.console.traffic import LEVELS, RATES, Traffic, dormant_levels
from broker.service.topics.topic import Topic
from foundation.value import Json

TOPICS_PER_SLICE: Final = 1_000
"""Topics between two turns of the loop: some ms."""
LIMIT_MAX: Final = 1_000
"""The most rows of one answer."""


SORTS: Final = ("name", *RATES, *LEVELS)
"""The orders that a request may name."""


Item = TypeVar("Item", str, tuple[float, str])
"""A name, or a number and a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsQuery:
    """The part of the list that a request asks for."""

    search: str = ""
    """Text that stands anywhere in the name, in any case."""
    sort: str = "name"
    """One of `SORTS`."""
    descending: bool = False
    """The largest first."""
    offset: int = 0
    """Rows that are left out."""
    limit: int = 50
    """Rows of the answer, at most."""


async def topics_page(
    topics: Mapping[str, Topic], traffic: Traffic, query: TopicsQuery, listed: Callable[[str], bool]
) -> dict[str, Json]:
    """Returns the answer for open and dormant topics; `listed` tells of a `domain://tenant/namespace` if it may be shown."""
    dormant = traffic.dormant
    # Topics may wake and fall asleep between the slices: one that was open at the begin comes once.
    opened = set(topics)
    names = await _chosen(
        chain(opened, (name for name, _ in dormant if name not in opened)),
        lambda name: listed(name.rpartition("/")[0]),
    )
    search = query.search.lower()
    found = await _chosen(names, lambda name: search in name.lower()) if search else names
    key = _key_of(query.sort, topics, traffic)
    page = await _ordered(found, key, query)
    rows: list[Json] = []
    for name in page:
        topic, record = topics.get(name), dormant.get(name)
        if topic is not None:
            rows.append(_row(name, topic, traffic))
        elif record is not None:
            rows.append({"topic": name, "dormant": True, **dict.fromkeys(RATES, 0), **dormant_levels(record)})
    return {
        "total": len(names),
        "found": len(found),
        "offset": query.offset,
        "sort": query.sort,
        "descending": query.descending,
        "windowSeconds": traffic.interval_s,
        "filling": dormant.filling,
        "topics": rows,
    }


async def _chosen(names: Iterable[str], fits: Callable[[str], bool]) -> list[str]:
    found: list[str] = []
    left = iter(names)
    while part := [*islice(left, TOPICS_PER_SLICE)]:
        found += [name for name in part if fits(name)]
        await asyncio.sleep(0)
    return found


def _slices(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[start : start + TOPICS_PER_SLICE] for start in range(0, len(names), TOPICS_PER_SLICE))


def _key_of(
    sort: str, topics: Mapping[str, Topic], traffic: Traffic
) -> Callable[[str], tuple[float, str]] | None:
    """Returns the function of a name that orders it; None orders by the name itself."""
    if sort == "name":
        return None
    rate = RATES.index(sort) if sort in RATES else None
    level = LEVELS.get(sort)

    def by_number(name: str) -> tuple[float, str]:
        topic = topics.get(name)
        number: float | None = None
        if topic is not None and rate is not None:
            number = traffic.rates(topic)[rate]
        elif topic is not None and level is not None:
            number = level(topic)
        elif topic is None and (record := traffic.dormant.get(name)) is not None:
            number = dormant_levels(record).get(sort, 0)
        # A topic without the number stands below all others.
        return (-1.0 if number is None else number, name)

    return by_number


async def _ordered(
    names: Sequence[str], key: Callable[[str], tuple[float, str]] | None, query: TopicsQuery
) -> list[str]:
    """Returns the names of the page."""
    # The last rows are the first ones of the opposite order, so no page needs a merge of more than half of all.
    first, last = query.offset, min(query.offset + query.limit, len(names))
    backwards = first > len(names) - last
    if backwards:
        first, last = len(names) - last, len(names) - first
    if first >= last:
        return []
    descending = query.descending != backwards
    if key is None:
        page = await _page([*names], first, last, descending=descending)
    else:
        keyed: list[tuple[float, str]] = []
        for part in _slices(names):
            keyed += [key(name) for name in part]
            await asyncio.sleep(0)
        page = [name for _, name in await _page(keyed, first, last, descending=descending)]
    return page[::-1] if backwards else page


async def _page(items: list[Item], first: int, last: int, *, descending: bool) -> list[Item]:
    runs: list[list[Item]] = []
    for start in range(0, len(items), TOPICS_PER_SLICE):
        runs.append(sorted(items[start : start + TOPICS_PER_SLICE], reverse=descending))
        await asyncio.sleep(0)
    merged = merge(*runs, reverse=descending)
    for skipped in range(0, first, TOPICS_PER_SLICE):
        for _ in islice(merged, min(TOPICS_PER_SLICE, first - skipped)):
            pass
        await asyncio.sleep(0)
    return list(islice(merged, last - first))


def _row(name: str, topic: Topic, traffic: Traffic) -> Json:
    # More is counted than shown.
    rates = dict(zip(RATES, traffic.rates(topic), strict=False))
    return {"topic": name, **rates, **{shown: level(topic) for shown, level in LEVELS.items()}}
