"""Says when a topic's hit ratio drops below what it was. Pure: no I/O, no clock.

What it was is a moving average over the minutes before, about the last ten; a minute with few reads says nothing and
is not counted. A drop is told once: the average follows, and until the ratio is back nothing more is said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

WEIGHT = 0.2
"""Of the newest minute in the average."""
MINUTES_MIN = 3
"""Before that a topic has no past to compare with."""


class Minute(NamedTuple):
    start_ms: int
    topic: str
    hits: int
    reads: int

    @property
    def ratio(self) -> float:
        return self.hits / self.reads


class Drop(NamedTuple):
    start_ms: int
    topic: str
    before: float
    now: float


@dataclass(slots=True)
class _Past:
    average: float
    minutes: int = 1
    dropped: bool = False


class DropWatch:
    def __init__(self, drop: float, reads_min: int) -> None:
        """`drop`: 0.1 = ten points below the average. `reads_min`: of a minute that counts."""
        self._drop = drop
        self._reads_min = max(reads_min, 1)
        self._past: dict[str, _Past] = {}

    def judge(self, minute: Minute) -> Drop | None:
        """For each topic in the order of its minutes."""
        if minute.reads < self._reads_min:
            return None
        past = self._past.get(minute.topic)
        if past is None:
            self._past[minute.topic] = _Past(minute.ratio)
            return None
        before = past.average
        low = minute.ratio < before - self._drop
        told, past.dropped = past.dropped, low
        past.average += WEIGHT * (minute.ratio - before)
        past.minutes += 1
        if not low or told or past.minutes <= MINUTES_MIN:
            return None
        return Drop(minute.start_ms, minute.topic, before, minute.ratio)
