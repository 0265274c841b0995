"""The miss ratio curve: the share of reads that caches of several sizes would miss.

`miss_ratio.py` makes it from a sample; the console and `/metrics` show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from foundation.value import Value

READS_ENOUGH: Final = 1_000
"""Sampled reads below which the curve says nothing."""
_NOTE: Final = (
    "Readers are taken to come at the same times as now: a size with more misses would slow them down, and reads that"
    " wait for redelivery are counted as they come."
)


class Point(Value):
    """One size of the curve."""

    size_bytes: int
    """The size of the cache."""
    miss_ratio: float
    """Reads that find no entry, divided by all."""
    standard_error: float
    """Of `miss_ratio`: by chance of the sample, and by the difference of the curve from the real cache at its size."""
    evicted_expected: int
    """Entries that it would have removed although reads of them were expected, about, since the sampling began."""


class Curve(Value):
    """The miss ratios of several sizes."""

    since_ns: int
    """When the counting began: with the sampling, and once more when the miniatures have filled."""
    rate: float
    """Share of the entries in the sample."""
    reads: int
    """Sampled reads that count."""
    measured: float | None
    """Miss ratio of the real cache in the same time; None without a read."""
    unknown_share: float
    """Share of sampled reads of entries from before the sampling, 0 to 1."""
    points: Sequence[Point]
    """By size, ascending; sizes of which the sample is too small are left out."""
    note: str = _NOTE
    """The limits of the estimate."""

    @property
    def is_enough(self) -> bool:
        """True when the reads are enough for a statement."""
        return self.reads >= READS_ENOUGH


class Curves(Protocol):
    """A sampling that is running."""

    def curve(self) -> Curve:
        """Returns the curve as the sample tells it now."""
        ...
