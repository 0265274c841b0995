"""TimeHistogram: counts times in buckets, as Prometheus' histograms do."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class TimeHistogram:
    """Counts times in buckets, `counts[i]` being those above `bounds_ns[i - 1]` up to `bounds_ns[i]`.

    The last count is of the times above all bounds.
    """

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
