"""A histogram of latencies that keeps three digits of every value, whatever its size.

Buckets are HdrHistogram's: 2048 of width 1, then for each further power of two 1024 of twice the width.
`log_line` writes what HdrHistogram's own tools read (its interval log, version 1.3).
Law of the place: integers in microseconds, no clock, no file.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Iterable

DIGITS = 3
HALF_BITS = 10
FULL_BITS = HALF_BITS + 1
HIGHEST_US = 120_000 * 1_000_000
"""Pulsar's tool records up to 120,000 s; larger values are counted as this one."""
ENCODING_COOKIE = 0x1C849303 | 0x10
COMPRESSED_COOKIE = 0x1C849304 | 0x10


class Histogram:
    __slots__ = ("count", "counts", "max_us", "sum_us")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.count = 0
        self.sum_us = 0
        self.max_us = 0

    def record(self, value_us: int) -> None:
        """Counts one value; below 0 counts as 0."""
        value = 0 if value_us < 0 else min(value_us, HIGHEST_US)
        index = bucket_of(value)
        self.counts[index] = self.counts.get(index, 0) + 1
        self.count += 1
        self.sum_us += value
        self.max_us = max(self.max_us, value)

    def add(self, other: Histogram) -> None:
        for index, count in other.counts.items():
            self.counts[index] = self.counts.get(index, 0) + count
        self.count += other.count
        self.sum_us += other.sum_us
        self.max_us = max(self.max_us, other.max_us)

    def mean_us(self) -> float:
        return self.sum_us / self.count if self.count else 0.0

    def percentile_us(self, percent: float) -> int:
        """The value below or at which `percent` (0 to 100) of all values lie, as its bucket's upper end."""
        wanted = max(1, math.ceil(percent / 100 * self.count - 1e-9))
        seen = 0
        for index in sorted(self.counts):
            seen += self.counts[index]
            if seen >= wanted:
                return min(upper_end(index), self.max_us)
        return 0

    def encoded(self) -> str:
        """HdrHistogram's V2 encoding, compressed, in base64."""
        payload = b"".join(_zigzag(number) for number in _runs(self.counts))
        plain = (
            struct.pack(">iiiiqqd", ENCODING_COOKIE, len(payload), 0, DIGITS, 1, HIGHEST_US, 1.0) + payload
        )
        packed = zlib.compress(plain)
        return base64.b64encode(struct.pack(">ii", COMPRESSED_COOKIE, len(packed)) + packed).decode()


def bucket_of(value: int) -> int:
    shift = max(0, value.bit_length() - FULL_BITS)
    return (shift << HALF_BITS) + (value >> shift)


def upper_end(index: int) -> int:
    """The largest value that falls into bucket `index`."""
    shift = max(0, (index >> HALF_BITS) - 1)
    return ((index - (shift << HALF_BITS) + 1) << shift) - 1


LOG_HEADER = (
    "#[Histogram log format version 1.3]\n"
    '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"\n'
)


def log_line(histogram: Histogram, start_s: float, length_s: float) -> str:
    """One interval of an HdrHistogram log; `start_s` counts from the epoch, the maximum is in seconds."""
    return f"{start_s:.3f},{length_s:.3f},{histogram.max_us / 1e6:.3f},{histogram.encoded()}\n"


def _runs(counts: dict[int, int]) -> Iterable[int]:
    """Counts from bucket 0 on; n empty buckets in a row as the number -n."""
    after = 0
    for index in sorted(counts):
        if index > after:
            yield after - index
        yield counts[index]
        after = index + 1


def _zigzag(number: int) -> bytes:
    """Signed LEB128 in HdrHistogram's form (the sign in the lowest bit)."""
    value = (number << 1) ^ (number >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
