"""The view of the bookies that a broker writes to, and their line above the topics. Pure functions.

`broker/console/bookies.py` writes the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import Final

from foundation.value import Json
from magnetar.clients.answer_object import AnswerObject
from magnetar.clients.client import visible
from magnetar.top.numbers import count, fitted, milliseconds, percent, size

_PATH_MIN: Final = 20


def bookies_head(found: Sequence[Json]) -> str:
    """Returns the line above the topics: the figures of the only bookie, or how many are well."""
    bookies = list(map(AnswerObject, found))
    if len(bookies) != 1:
        states = list(map(_state, bookies))
        counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        return f"bookies  {len(found)}: {counts}" if found else "bookies  none is known"
    (one,) = bookies
    parts = [_state(one)]
    if disks := list(one.each("disks")):
        parts.append(f"free {size(sum(disk.amount('freeBytes') for disk in disks))}")
    if journal := one.inner("journal"):
        parts.append(f"journal {_times(journal)}")
    if cache := one.inner("readCache"):
        parts.append(f"read cache {_read_cache_ratio(cache)}")
    return f"bookie   {'  '.join(parts)}"


def bookies_lines(found: AnswerObject, width: int) -> list[str]:
    """Returns the lines of the view: a paragraph for each bookie."""
    lines = [line for one in found.each("bookies") for line in (*_paragraph(one, width), "")]
    if more := found.amount("more"):
        lines.append(f"and {more} more")
    return lines or ["The broker knows no bookie."]


def _paragraph(one: AnswerObject, width: int) -> list[str]:
    # An embedded bookie has no port, so its name in ledger metadata is no address.
    name, kind = visible(one.text("id")), one.text("kind")
    lines = [f"{name if kind == 'tcp' else f'no port, {name} in ledger metadata'}   {kind}   {_state(one)}"]
    for disk in one.each("disks"):
        place = "all disks" if disk.value["path"] is None else visible(disk.text("path"))
        full = "" if disk.value["writable"] else "   READ-ONLY"
        line = f"  used {size(disk.number('usedBytes'))}   free {size(disk.number('freeBytes'))}{full}   "
        lines.append(line + fitted(place, max(width - len(line), _PATH_MIN)))
    if journal := one.inner("journal"):
        lines.append(f"  journal sync   {_times(journal)}")
    if cache := one.inner("readCache"):
        early = count(cache.number("evictedBeforeUse"))
        lines.append(f"  read cache     hits {_read_cache_ratio(cache)}   evicted before use {early}")
    if requests := one.inner("requests"):
        write, read = map(_times, map(requests.inner, ("write", "read")))
        lines.append(f"  from here      write {write}   read {read}")
    for note in one.list("notes"):
        lines += wrap(visible(str(note)), max(width, 40), initial_indent="  ", subsequent_indent="  ")
    return lines


def _state(one: AnswerObject) -> str:
    if not one.value["connected"]:
        return "NOT CONNECTED"
    return "READ-ONLY" if one.value["state"] == "readonly" else one.text("state")


def _times(found: AnswerObject | None) -> str:
    if found is None or (median := found.number("p50Ms")) is None:
        return "-"
    return f"{milliseconds(median)}, p99 {milliseconds(found.number('p99Ms'))}"


def _read_cache_ratio(cache: AnswerObject) -> str:
    hits, misses = cache.amount("hits"), cache.amount("misses")
    return percent(hits / (hits + misses) if hits + misses else None)
