"""PassStats: the cost of the passes for one reason, and the ages of the entries that they removed.

Counted by run of consecutive entries, because entries are removed by the thousand: the first and the last entry stand for
those between them, unless they fall into different buckets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

from broker.model.entry import Entry

NS_PER_SECOND: Final = 1_000_000_000
"""Nanoseconds in a second."""
AGE_BOUNDS_NS: Final = tuple(int(s * NS_PER_SECOND) for s in (0.1, 0.5, 1, 2, 5, 10, 60, 600))
"""The buckets of ages."""


class TimeHistogram:
    """Counts times in buckets, `counts[i]` being those above `bounds_ns[i - 1]` up to `bounds_ns[i]`.

    The last count is of the times above all bounds.
    """

    __slots__ = ("bounds_ns", "counts", "sum_ns")

    def __init__(self, bounds_ns: Sequence[int]) -> None:
        """`bounds_ns` must ascend."""
        self.bounds_ns = bounds_ns
        """The upper bounds of the buckets, each included."""
        self.counts = [0] * (len(bounds_ns) + 1)
        """Times by bucket."""
        self.sum_ns = 0
        """The sum of all times."""

    def add(self, time_ns: int) -> None:
        """Counts one time."""
        self.counts[bisect_left(self.bounds_ns, time_ns)] += 1
        self.sum_ns += time_ns

    def add_run(self, first_ns: int, last_ns: int, count: int) -> bool:
        """Counts the times of a run by those of its first and last entry.

        Returns False and counts nothing if these fall into different buckets.
        """
        bucket = bisect_left(self.bounds_ns, first_ns)
        # All ages of a run lie between those of its ends, so equal buckets at the ends mean one bucket for all.
        if first_ns != last_ns and bucket != bisect_left(self.bounds_ns, last_ns):
            return False
        self.counts[bucket] += count
        # The mean of the ends for each entry: exact for entries inserted at even intervals.
        self.sum_ns += (first_ns + last_ns) * count // 2
        return True


class PassStats:
    """Counts of the passes for one reason, since the start."""

    __slots__ = ("age", "idle", "passes", "visits")

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
