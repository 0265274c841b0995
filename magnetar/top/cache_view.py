"""The view of the entry cache: entries that came and went with the reasons, another size, its readers. Pure functions.

The typed dictionaries name the shown fields of the console's answer; `broker/console/cache_page.py` writes it.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Final, TypedDict

from magnetar.clients.client import visible
from magnetar.commands.cache_text import CAUSES, REASONS
from magnetar.top.numbers import count, fitted, percent, rate, size

COLUMN: Final = 76
"""Characters of a line; a screen with room for two such columns has both side by side."""
ROWS: Final = 8
"""Topics and subscriptions that are shown."""
_GAP: Final = "    "
_CELLS: Final = (7, 6, 9)
"""Widths of the numbers after a reason, which is at most 53 characters long."""


class Reads(TypedDict):
    """Entries that cursors have read since the start."""

    hits: int
    """From the cache."""
    misses: int
    """From storage."""
    coalesced: int
    """From a storage read that another reader had begun."""


class Inserted(TypedDict):
    """Entries that entered; rates are None before the second answer."""

    publishedEntries: int
    """Since the start, published."""
    publishedPerSecond: float | None
    """The same per second."""
    fromStorageEntries: int
    """Since the start, read from storage."""
    fromStoragePerSecond: float | None
    """The same per second."""


class Evicted(TypedDict):
    """Entries that left for one reason."""

    entries: int
    """Since the start."""
    perSecond: float | None
    """The same per second; None before the second answer."""
    expectedEntries: int
    """Those of them that readers were still to read: each of these reads is a miss."""


class CachedTopic(TypedDict):
    """A topic with cached entries."""

    topic: str
    """Full name."""
    bytes: int
    """Bytes of its cached entries."""
    hitRatio: float | None
    """Of its cursors since it was opened."""


class WorkingSet(TypedDict):
    """A connected subscription with entries to read."""

    topic: str
    """Full name."""
    subscription: str
    """Its name."""
    distanceBytes: int
    """Bytes between its read position and the newest entry."""
    hitRatio: float | None
    """Of its reads since the topic was opened."""


class CurvePoint(TypedDict):
    """One size of the miss ratio curve."""

    bytes: int
    """The size."""
    missRatio: float
    """Misses by all reads."""
    standardError: float
    """Of the ratio, by the chance of the sample."""


class CurveNow(TypedDict):
    """The present size."""

    bytes: int
    """`managedLedgerCacheSizeMB` in bytes."""
    measured: float | None
    """Miss ratio of the real cache in the same time."""


class Stopped(TypedDict):
    """The end of a sampling that failed."""

    reason: str
    """The error."""


class MissRatioCurve(TypedDict):
    """The curve, sampled while somebody asks for it."""

    stopped: Stopped | None
    """None while it is sampled."""
    reads: int
    """Sampled reads."""
    enough: bool
    """False while these say little."""
    now: CurveNow
    """The present size."""
    points: list[CurvePoint]
    """By size; none before the first reads."""


class CacheAnswer(TypedDict):
    """`GET /admin/v2/magnetar/console/cache`, as far as it is shown."""

    policy: str
    """Name of the eviction policy."""
    bytes: int
    """Bytes of all cached entries."""
    maxBytes: int
    """The limit."""
    entries: int
    """Cached entries."""
    topics: list[CachedTopic]
    """Those with the most bytes."""
    inserted: Inserted
    """Entries that entered, by cause."""
    evicted: dict[str, Evicted]
    """Entries that left, by reason."""
    requeued: dict[str, int]
    """Entries that passes moved to the tail of the queue, by cause."""
    reads: Reads
    """Reads of cursors."""
    workingSets: list[WorkingSet]
    """Subscriptions, those with most bytes to read first."""
    missRatioCurve: MissRatioCurve
    """The effect of another size."""


def cache_lines(found: CacheAnswer, width: int) -> list[str]:
    """Returns the lines of the view: two columns where the width has room for them."""
    flows = [*_state(found), "", *_left(found), "", *_entered(found), "", *_requeued(found)]
    needs = [*_sizes(found["missRatioCurve"]), "", *_subscriptions(found), "", *_topics(found)]
    if width < 2 * COLUMN + len(_GAP):
        return [*flows, "", *needs]
    pairs = zip_longest(flows, needs, fillvalue="")
    return [f"{left:<{COLUMN}}{_GAP}{right}".rstrip() for left, right in pairs]


def _state(found: CacheAnswer) -> list[str]:
    reads = found["reads"]
    every = reads["hits"] + reads["misses"] + reads["coalesced"]
    return [
        f"policy {found['policy']}   {size(found['bytes'])} of {size(found['maxBytes'])}"
        f" in {count(found['entries'])} entries",
        f"reads since the start   hits {count(reads['hits'])} ({percent(reads['hits'] / every if every else None)})"
        f"   misses {count(reads['misses'])}   coalesced {count(reads['coalesced'])}",
    ]


def _left(found: CacheAnswer) -> list[str]:
    lines = [_row("left because", "entries", "now", "expected")]
    lines += [
        _row(
            REASONS.get(reason, reason),
            count(one["entries"]),
            rate(one["perSecond"]),
            count(one["expectedEntries"]),
        )
        for reason, one in found["evicted"].items()
    ]
    return lines


def _entered(found: CacheAnswer) -> list[str]:
    came = found["inserted"]
    return [
        _row("entered because", "entries", "now"),
        _row("it was published", count(came["publishedEntries"]), rate(came["publishedPerSecond"])),
        _row(
            "it was read from storage",
            count(came["fromStorageEntries"]),
            rate(came["fromStoragePerSecond"]),
        ),
    ]


def _requeued(found: CacheAnswer) -> list[str]:
    rows = [_row(CAUSES.get(cause, cause), count(entries)) for cause, entries in found["requeued"].items()]
    return [_row("requeued because", "entries"), *(rows or [" nothing was requeued"])]


def _row(text: str, *cells: str) -> str:
    # A head begins at the left, and its rows one place further.
    indent = "" if text.endswith("because") else " "
    return f"{indent + text:<{COLUMN - sum(_CELLS)}}" + "".join(map(str.rjust, cells, _CELLS))


def _sizes(curve: MissRatioCurve) -> list[str]:
    """Returns the misses that other sizes would have."""
    if curve["stopped"] is not None:
        return [f"another size: the sampling stopped: {visible(curve['stopped']['reason'])}"]
    if len(curve["points"]) < 2:
        return ["another size: reads are sampled since this view was opened"]
    few = "" if curve["enough"] else ", too few yet"
    lines = [f"another size ({count(curve['reads'])} sampled reads{few})"]
    for point in curve["points"]:
        error = f"± {100 * point['standardError']:.1f}"
        present = "   now" if point["bytes"] == curve["now"]["bytes"] else ""
        lines.append(f" {size(point['bytes']):>8}   misses {percent(point['missRatio']):>7} {error}{present}")
    if curve["now"]["measured"] is not None:
        lines.append(f" measured  misses {percent(curve['now']['measured'])}")
    return lines


def _subscriptions(found: CacheAnswer) -> list[str]:
    rows = [
        _named(f"{one['subscription']} of {_short(one['topic'])}", one["distanceBytes"], one["hitRatio"])
        for one in found["workingSets"][:ROWS]
    ]
    lines = [f"{'subscriptions behind the newest entry':<{COLUMN - 20}}{'bytes':>10}{'hits':>10}"]
    return [*lines, *(rows or [" none: connected subscriptions have read everything"])]


def _topics(found: CacheAnswer) -> list[str]:
    rows = [_named(_short(one["topic"]), one["bytes"], one["hitRatio"]) for one in found["topics"][:ROWS]]
    lines = [f"{'topics by cached bytes':<{COLUMN - 20}}{'bytes':>10}{'hits':>10}"]
    return [*lines, *(rows or [" none: the cache is empty"])]


def _named(name: str, size_bytes: int, ratio: float | None) -> str:
    return f" {fitted(visible(name), COLUMN - 22):<{COLUMN - 21}}{size(size_bytes):>10}{percent(ratio):>10}"


def _short(topic: str) -> str:
    return topic.removeprefix("persistent://")
