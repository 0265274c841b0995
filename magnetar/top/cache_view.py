"""The view of the entry cache: entries that came and went with the reasons, another size, its readers. Pure functions.

`broker/console/cache_page.py` writes the answer.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Final

from magnetar.clients.answer_object import AnswerObject
from magnetar.clients.cache_words import CAUSES, REASONS
from magnetar.clients.client import visible
from magnetar.top.numbers import count, fitted, percent, rate, size

COLUMN: Final = 76
"""Characters of a line; a screen with room for two such columns has both side by side."""
ROWS: Final = 8
"""Topics and subscriptions that are shown."""
_GAP: Final = "    "
_CELLS: Final = (7, 6, 9)
"""Widths of the numbers after a reason, which is at most 53 characters long."""


def cache_lines(found: AnswerObject, width: int) -> list[str]:
    """Returns the lines of the view: two columns where the width has room for them."""
    flows = [*_state(found), "", *_left(found), "", *_entered(found), "", *_requeued(found)]
    needs = [
        *_sizes(AnswerObject(found.value["missRatioCurve"])),
        "",
        *_subscriptions(found),
        "",
        *_topics(found),
    ]
    if width < 2 * COLUMN + len(_GAP):
        return [*flows, "", *needs]
    pairs = zip_longest(flows, needs, fillvalue="")
    return [f"{left:<{COLUMN}}{_GAP}{right}".rstrip() for left, right in pairs]


def _state(found: AnswerObject) -> list[str]:
    reads = AnswerObject(found.value["reads"])
    hits, misses, coalesced = map(reads.amount, ("hits", "misses", "coalesced"))
    every = hits + misses + coalesced
    return [
        f"policy {found.text('policy')}   {size(found.number('bytes'))} of {size(found.number('maxBytes'))}"
        f" in {count(found.number('entries'))} entries",
        f"reads since the start   hits {count(hits)} ({percent(hits / every if every else None)})"
        f"   misses {count(misses)}   coalesced {count(coalesced)}",
    ]


def _left(found: AnswerObject) -> list[str]:
    rows = [
        _row(
            REASONS.get(reason, reason),
            count(one.number("entries")),
            rate(one.number("perSecond")),
            count(one.number("expectedEntries")),
        )
        for reason, one in found.named("evicted")
    ]
    return [_row("left because", "entries", "now", "expected"), *rows]


def _entered(found: AnswerObject) -> list[str]:
    came = AnswerObject(found.value["inserted"])
    rows = [
        _row(text, count(came.number(f"{name}Entries")), rate(came.number(f"{name}PerSecond")))
        for text, name in (("it was published", "published"), ("it was read from storage", "fromStorage"))
    ]
    return [_row("entered because", "entries", "now"), *rows]


def _requeued(found: AnswerObject) -> list[str]:
    causes = AnswerObject(found.value["requeued"])
    rows = [_row(CAUSES.get(cause, cause), count(causes.number(cause))) for cause in causes.value]
    return [_row("requeued because", "entries"), *(rows or [" nothing was requeued"])]


def _row(text: str, *cells: str) -> str:
    # A head begins at the left, and its rows one place further.
    indent = "" if text.endswith("because") else " "
    return f"{indent + text:<{COLUMN - sum(_CELLS)}}" + "".join(map(str.rjust, cells, _CELLS))


def _sizes(curve: AnswerObject) -> list[str]:
    """Returns the misses that other sizes would have."""
    if stopped := curve.inner("stopped"):
        return [f"another size: the sampling stopped: {visible(stopped.text('reason'))}"]
    points, now = list(curve.each("points")), AnswerObject(curve.value["now"])
    if len(points) < 2:
        return ["another size: reads are sampled since this view was opened"]
    few = "" if curve.value["enough"] else ", too few yet"
    lines = [f"another size ({count(curve.number('reads'))} sampled reads{few})"]
    for point in points:
        error = f"± {100 * point.amount('standardError'):.1f}"
        present = "   now" if point.value["bytes"] == now.value["bytes"] else ""
        misses = percent(point.number("missRatio"))
        lines.append(f" {size(point.number('bytes')):>8}   misses {misses:>7} {error}{present}")
    if (measured := now.number("measured")) is not None:
        lines.append(f" measured  misses {percent(measured)}")
    return lines


def _subscriptions(found: AnswerObject) -> list[str]:
    rows = [
        _named(f"{one.text('subscription')} of {_short(one)}", one.number("distanceBytes"), one)
        for one in found.each("workingSets")
    ]
    none = " none: connected subscriptions have read everything"
    return _ranked("subscriptions behind the newest entry", rows, none)


def _topics(found: AnswerObject) -> list[str]:
    rows = [_named(_short(one), one.number("bytes"), one) for one in found.each("topics")]
    return _ranked("topics by cached bytes", rows, " none: the cache is empty")


def _ranked(title: str, rows: list[str], none: str) -> list[str]:
    return [f"{title:<{COLUMN - 20}}{'bytes':>10}{'hits':>10}", *(rows[:ROWS] or [none])]


def _named(name: str, size_bytes: float | None, one: AnswerObject) -> str:
    hits = percent(one.number("hitRatio"))
    return f" {fitted(visible(name), COLUMN - 22):<{COLUMN - 21}}{size(size_bytes):>10}{hits:>10}"


def _short(one: AnswerObject) -> str:
    return one.text("topic").removeprefix("persistent://")
