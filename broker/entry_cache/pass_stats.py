"""PassStats: what the passes for one reason have cost, and how old it was what they removed.

Counted per run of consecutive entries that left together, never per entry: the first and the last entry of a run
speak for those between them, unless they fall into different buckets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

from broker.entry_cache.runs import LeftRun
from broker.model.entry import Entry

NS_PER_SECOND: Final = 1_000_000_000
AGE_BOUNDS_NS: Final = tuple(int(s * NS_PER_SECOND) for s in (0.1, 0.5, 1, 2, 5, 10, 60, 600))


class TimeHistogram:
    """`counts[i]` = times above `bounds_ns[i - 1]`, up to and with `bounds_ns[i]`; one count more for the rest."""

    __slots__ = ("bounds_ns", "counts", "sum_ns")

    def __init__(self, bounds_ns: Sequence[int]) -> None:
        self.bounds_ns = bounds_ns
        self.counts = [0] * (len(bounds_ns) + 1)
        self.sum_ns = 0

    def add(self, time_ns: int) -> None:
        self.counts[bisect_left(self.bounds_ns, time_ns)] += 1
        self.sum_ns += time_ns

    def add_run(self, first_ns: int, last_ns: int, count: int) -> bool:
        """The times of a run by those of its ends; False, and nothing is counted, if these differ by a bucket."""
        bucket = bisect_left(self.bounds_ns, first_ns)
        if first_ns != last_ns and bucket != bisect_left(self.bounds_ns, last_ns):
            return False
        self.counts[bucket] += count
        self.sum_ns += (first_ns + last_ns) * count // 2
        return True


class PassStats:
    __slots__ = ("age", "idle", "passes", "visits")

    def __init__(self) -> None:
        self.passes = 0
        """Those that have ended."""
        self.visits = 0
        """Slots looked at, as far as the policy counts them."""
        self.age = TimeHistogram(AGE_BOUNDS_NS)
        """From the insertion to the removal."""
        self.idle = TimeHistogram(AGE_BOUNDS_NS)
        """From the insertion, or the last time that the entry was put back, to the removal. Where reads extend, no
        read lies between; a policy that puts back without a new time shows the age once more."""

    def removed(self, entries: Sequence[Entry], runs: Iterable[LeftRun], now_ns: int) -> None:
        """`runs`: those of `entries`, in their order."""
        start = 0
        for run in runs:
            count = run.entries
            first, last = entries[start], entries[start + count - 1]
            if not self.age.add_run(now_ns - first.inserted_at_ns, now_ns - last.inserted_at_ns, count):
                for entry in entries[start : start + count]:
                    self.age.add(now_ns - entry.inserted_at_ns)
            if not self.idle.add_run(now_ns - first.queued_at_ns, now_ns - last.queued_at_ns, count):
                for entry in entries[start : start + count]:
                    self.idle.add(now_ns - entry.queued_at_ns)
            start += count
