"""Detects drops of a topic's hit ratio below its moving average.

Pure: no I/O, no clock.

The average covers about the last ten minutes. A minute with few reads is ignored, because its ratio is chance. A drop
is reported once; the next one can follow only after the ratio was back, and the average follows the lower ratio meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

WEIGHT = 0.2
"""The weight of the newest minute in the average."""
MINUTES_MIN = 3
"""Minutes that a topic needs before a drop is reported."""


class Minute(NamedTuple):
    """The reads of one topic in one minute."""

    start_ms: int
    """Milliseconds since 1970."""
    topic: str
    """Its whole name."""
    hits: int
    """Entries from the cache."""
    reads: int
    """Hits, misses and coalesced reads, in entries."""

    @property
    def ratio(self) -> float:
        """Hits among reads; the caller makes sure that there are reads."""
        return self.hits / self.reads


class LiveDrop(NamedTuple):
    """A drop that is reported."""

    start_ms: int
    """Of the minute, in milliseconds since 1970."""
    topic: str
    """Its whole name."""
    before: float
    """The average hit ratio before the minute."""
    now: float
    """The hit ratio of the minute."""


@dataclass(slots=True)
class _Past:
    average: float
    minutes: int = 1
    dropped: bool = False


class DropWatch:
    """Keeps the moving average of each topic."""

    def __init__(self, drop: float, reads_min: int) -> None:
        """`drop`: 0.1 = ten points below the average. `reads_min`: fewest reads of a minute that is judged."""
        self._drop = drop
        self._reads_min = max(reads_min, 1)
        self._past: dict[str, _Past] = {}

    def judge(self, minute: Minute) -> LiveDrop | None:
        """Returns a drop that begins with this minute, or None. To be called in the order of each topic's minutes."""
        if minute.reads < self._reads_min:
            return None
        past = self._past.get(minute.topic)
        # The first minute is the average; a topic's start can be no drop.
        if past is None:
            self._past[minute.topic] = _Past(minute.ratio)
            return None
        before = past.average
        low = minute.ratio < before - self._drop
        reported, past.dropped = past.dropped, low
        # The average follows the new level, so that a lasting change is reported once.
        past.average += WEIGHT * (minute.ratio - before)
        past.minutes += 1
        if not low or reported or past.minutes <= MINUTES_MIN:
            return None
        return LiveDrop(minute.start_ms, minute.topic, before, minute.ratio)
