"""The view of the bookies that a broker writes to, and their line above the topics. Pure functions.

The typed dictionaries name the shown fields of the console's answer; `broker/console/bookies.py` writes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import Final, TypedDict

from magnetar.clients.client import visible
from magnetar.top.numbers import count, fitted, milliseconds, percent, size

_PATH_MIN: Final = 20


class Disk(TypedDict):
    """A ledger directory, or all disks of a bookie together."""

    path: str | None
    """The directory; None for all disks together."""
    usedBytes: int
    """Bytes in use on its file system."""
    freeBytes: int
    """Free bytes."""
    writable: bool
    """False while it takes no new entries."""


class Times(TypedDict):
    """Quantiles of a time."""

    p50Ms: float | None
    """Median in ms."""
    p99Ms: float | None
    """99th percentile in ms."""


class Requests(TypedDict):
    """Times of this broker's requests to a bookie over TCP; None without one in the last minute."""

    write: Times | None
    """Of adds."""
    read: Times | None
    """Of reads."""


class ReadCacheCounts(TypedDict):
    """The read cache of a bookie; None for a count that it does not tell."""

    hits: int | None
    """Entries served from it."""
    misses: int | None
    """Entries that were loaded."""
    evictedBeforeUse: int | None
    """Entries that were read ahead and evicted before a reader came."""


class BookieAnswer(TypedDict):
    """One bookie; None stands for what is not known."""

    id: str
    """Its address or id."""
    kind: str
    """`embedded`, `tcp` or `memory`."""
    connected: bool
    """False for one that the broker has no connection to."""
    state: str
    """`writable`, `readonly` or `unknown`."""
    disks: list[Disk] | None
    """Its disks."""
    requests: Requests | None
    """Times of requests over TCP."""
    journal: Times | None
    """Time of the journal's syncs."""
    readCache: ReadCacheCounts | None
    """Its read cache."""
    notes: list[str]
    """Reasons for missing figures."""


class BookiesAnswer(TypedDict):
    """`GET /admin/v2/magnetar/console/bookies`."""

    bookies: list[BookieAnswer]
    """Those for new entries first."""
    more: int
    """Bookies that are not listed."""


def bookies_head(found: Sequence[BookieAnswer]) -> str:
    """Returns the line above the topics: the figures of the only bookie, or how many are well."""
    if len(found) != 1:
        states = [_state(one) for one in found]
        counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        return f"bookies  {len(found)}: {counts}" if found else "bookies  none is known"
    (one,) = found
    parts = [_state(one)]
    if one["disks"]:
        parts.append(f"free {size(sum(disk['freeBytes'] for disk in one['disks']))}")
    if one["journal"] is not None:
        parts.append(f"journal {_times(one['journal'])}")
    if one["readCache"] is not None:
        parts.append(f"read cache {_read_cache_ratio(one['readCache'])}")
    return f"bookie   {'  '.join(parts)}"


def bookies_lines(found: BookiesAnswer, width: int) -> list[str]:
    """Returns the lines of the view: a paragraph for each bookie."""
    lines: list[str] = []
    for one in found["bookies"]:
        lines += [*_paragraph(one, width), ""]
    if found["more"]:
        lines.append(f"and {found['more']} more")
    return lines or ["The broker knows no bookie."]


def _paragraph(one: BookieAnswer, width: int) -> list[str]:
    # An embedded bookie has no port, so its name in ledger metadata is no address.
    name = visible(one["id"]) if one["kind"] == "tcp" else f"no port, {visible(one['id'])} in ledger metadata"
    lines = [f"{name}   {one['kind']}   {_state(one)}"]
    for disk in one["disks"] or ():
        place = "all disks" if disk["path"] is None else visible(disk["path"])
        full = "" if disk["writable"] else "   READ-ONLY"
        line = f"  used {size(disk['usedBytes'])}   free {size(disk['freeBytes'])}{full}   "
        lines.append(line + fitted(place, max(width - len(line), _PATH_MIN)))
    if one["journal"] is not None:
        lines.append(f"  journal sync   {_times(one['journal'])}")
    cache = one["readCache"]
    if cache is not None:
        early = cache["evictedBeforeUse"]
        lines.append(
            f"  read cache     hits {_read_cache_ratio(cache)}"
            f"   evicted before use {'-' if early is None else count(early)}"
        )
    requests = one["requests"]
    if requests is not None:
        lines.append(f"  from here      write {_times(requests['write'])}   read {_times(requests['read'])}")
    for note in one["notes"]:
        lines += wrap(visible(note), max(width, 40), initial_indent="  ", subsequent_indent="  ")
    return lines


def _state(one: BookieAnswer) -> str:
    if not one["connected"]:
        return "NOT CONNECTED"
    return "READ-ONLY" if one["state"] == "readonly" else one["state"]


def _times(found: Times | None) -> str:
    if found is None or found["p50Ms"] is None:
        return "-"
    return f"{milliseconds(found['p50Ms'])}, p99 {milliseconds(found['p99Ms'])}"


def _read_cache_ratio(cache: ReadCacheCounts) -> str:
    hits, misses = cache["hits"] or 0, cache["misses"] or 0
    return percent(hits / (hits + misses) if hits + misses else None)
