"""PassStats: the cost of the passes for one reason, and the ages of the entries that they removed.

Counted by run of consecutive entries, because entries are removed by the thousand: the first and the last entry stand for
those between them, unless they fall into different buckets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from foundation.model.entry import Entry
from foundation.model.time_histogram import TimeHistogram
from foundation.units import NS_PER_SECOND

AGE_BOUNDS_NS: Final = tuple(int(s * NS_PER_SECOND) for s in (0.1, 0.5, 1, 2, 5, 10, 60, 600))
"""The buckets of ages."""


class PassStats:
    """Counts of the passes for one reason, since the start."""

    def __init__(self) -> None:
        """Begins at zero."""
        self.passes = 0
        """Passes that have ended."""
        self.visits = 0
        """Slots that passes looked at; a policy may charge other work as visits."""
        self.age = TimeHistogram(AGE_BOUNDS_NS)
        """Times from the insertion to the removal."""
        self.idle = TimeHistogram(AGE_BOUNDS_NS)
        """Times from the insertion, or from the last requeue, to the removal.

        Under `pip430` with `extend_recently_accessed` no read lies in this time. A policy that requeues without a new
        `queued_at_ns` (`magnetar`) shows the age once more.
        """

    def removed(self, entries: Sequence[Entry], run_lengths: Iterable[int], now_ns: int) -> None:
        """Counts removed entries; `run_lengths` says how they split into runs, in their order."""
        start = 0
        for count in run_lengths:
            first, last = entries[start], entries[start + count - 1]
            if not self.age.add_run(now_ns - first.inserted_at_ns, now_ns - last.inserted_at_ns, count):
                for entry in entries[start : start + count]:
                    self.age.add(now_ns - entry.inserted_at_ns)
            if not self.idle.add_run(now_ns - first.queued_at_ns, now_ns - last.queued_at_ns, count):
                for entry in entries[start : start + count]:
                    self.idle.add(now_ns - entry.queued_at_ns)
            start += count
