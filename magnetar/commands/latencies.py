"""Latencies: a histogram of latencies, and the lines in which HdrHistogram's tools read it.

Values are whole microseconds and keep three digits, whatever their size. The histogram is `hdrhistogram`'s; mean and
maximum are kept beside it, exact. The package computes the mean by a walk over all buckets, 46 ms long, in which the
client's threads cannot run and latencies grow.
"""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.clients.client import CommandError

DIGITS = 3
HIGHEST_US = 120_000 * 1_000_000
"""120,000 s, as in Pulsar's tool; larger values are counted as this one."""

LOG_HEADER = (
    "#[Histogram log format version 1.3]\n"
    '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"\n'
)
"""The first two lines of an HdrHistogram log."""


class Latencies:
    """Counts latencies; not safe for several threads at once."""

    def __init__(self) -> None:
        """Raises CommandError with the command that installs `hdrhistogram` when it is missing."""
        try:
            from hdrh.histogram import HdrHistogram
        except ImportError as missing:
            raise CommandError(
                f"this command needs the package hdrhistogram: pip install WHEEL[client] ({missing})"
            ) from missing
        self._histogram = HdrHistogram(1, HIGHEST_US, DIGITS)
        self._sum_us = 0
        self.max_us = 0
        """The highest value recorded, in µs and unrounded; 0 before the first."""

    @property
    def count(self) -> int:
        """Values recorded."""
        count: int = self._histogram.total_count
        return count

    def record(self, value_us: int) -> None:
        """Counts one value; a negative one, of two clocks that differ, counts as 0."""
        value = max(0, min(value_us, HIGHEST_US))
        self._histogram.record_value(value)
        self._sum_us += value
        self.max_us = max(self.max_us, value)

    def add(self, other: Latencies) -> None:
        """Counts all values of `other` too."""
        self._histogram.add(other._histogram)
        self._sum_us += other._sum_us
        self.max_us = max(self.max_us, other.max_us)

    def mean_us(self) -> float:
        """Returns the mean of the values; 0 without any."""
        return self._sum_us / self.count if self.count else 0.0

    def percentiles_us(self, percents: Sequence[float]) -> list[int]:
        """Returns the value of each percentile (0 to 100), to three digits.

        So many percent of all values are at or below it.
        """
        found = self._histogram.get_percentile_to_value_dict(percents) if self.count else {}
        # A bucket's upper end may be above every value in it.
        return [min(found.get(percent, 0), self.max_us) for percent in percents]

    def log_line(self, start_s: float, length_s: float) -> str:
        """Returns one interval of an HdrHistogram log. `start_s`: since the epoch.

        The package's own writer floors the maximum to whole seconds, so the line is put together here.
        """
        encoded = self._histogram.encode().decode()
        return f"{start_s:.3f},{length_s:.3f},{self.max_us / 1e6:.3f},{encoded}\n"
