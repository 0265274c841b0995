"""The view of the last hour: one line of bars for each number that the console keeps. All functions are pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, cast

from magnetar.clients.answer_object import AnswerObject
from magnetar.top.numbers import byte_rate, count, milliseconds, percent, publish_latency, rate, size

HOUR_MS: Final = 3_600_000
"""The time from the left end of a line to its right end."""
BARS: Final = "▁▂▃▄▅▆▇█"
"""From the lowest value to the highest one of a line."""
_LABEL: Final = 12
_VALUE: Final = 12
_WIDTH_MIN: Final = 10


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


class _Line(NamedTuple):
    label: str
    field: str
    shown: Callable[[float | None], str]
    join: Callable[[Sequence[float]], float] = _mean
    """Makes one bar of the samples that fall into it."""


# The mean would hide a time that only one sample of ten has.
LINES: Final = (
    _Line("in", "messagesIn", rate),
    _Line("out", "messagesOut", rate),
    _Line("in bytes", "bytesIn", byte_rate),
    _Line("out bytes", "bytesOut", byte_rate),
    _Line("publish p50", "publishP50Ms", publish_latency, max),
    _Line("publish p99", "publishP99Ms", publish_latency, max),
    _Line("cache hits", "hitRatio", percent),
    _Line("cache used", "cacheBytes", size),
    _Line("backlog", "backlog", count),
    _Line("journal p99", "journalP99Ms", milliseconds, max),
    _Line("loop lag", "loopLagMs", milliseconds, max),
    _Line("connections", "connections", count),
)
"""The numbers that are shown, by their names in the answer."""


def hour_lines(history: AnswerObject, width: int) -> list[str]:
    """Returns a head and a line for each number, of `width` characters; the history is the console's event."""
    bars = max(_WIDTH_MIN, width - _LABEL - 2 * _VALUE)
    fields, rows = history.list("fields"), cast("list[list[float | None]]", history.list("tens"))
    head = f"{'':{_LABEL}}{'1 hour ago':<{bars - 3}}now{'now':>{_VALUE}}{'highest':>{_VALUE}}"
    if not rows:
        return [head, "The broker has no sample yet: the first one comes after ten seconds."]
    end_ms = cast(float, rows[-1][0])
    lines = [head]
    for line in LINES:
        column = fields.index(line.field)
        points = [(cast(float, row[0]), row[column]) for row in rows]
        known = [(at, value) for at, value in points if value is not None]
        now = points[-1][1]
        highest = max((value for _, value in known), default=None)
        lines.append(
            f"{line.label:<{_LABEL}}{spark(known, end_ms, bars, line.join)}"
            f"{line.shown(now):>{_VALUE}}{line.shown(highest):>{_VALUE}}"
        )
    return lines


def spark(
    points: Sequence[tuple[float, float]],
    end_ms: float,
    width: int,
    join: Callable[[Sequence[float]], float],
) -> str:
    """Returns the hour before `end_ms` as `width` bars; a time without a sample is a space.

    `points`: milliseconds since 1970, and the value. The lowest bar stands for 0.
    """
    cells: list[list[float]] = [[] for _ in range(width)]
    for at_ms, value in points:
        place = width - 1 - int((end_ms - at_ms) * width // HOUR_MS)
        if 0 <= place < width:
            cells[place].append(value)
    values = [join(cell) if cell else None for cell in cells]
    highest = max((value for value in values if value is not None), default=0.0)
    return "".join(" " if value is None else _bar(value, highest) for value in values)


def _bar(value: float, highest: float) -> str:
    return BARS[round(max(value, 0.0) / highest * (len(BARS) - 1))] if highest > 0 else BARS[0]
