"""The two clocks of the broker.

Only edges and the composition root call them; every other room receives the time as an argument, so that its tests
decide what time it is.
"""

from __future__ import annotations

import time


def monotonic_ns() -> int:
    """Return nanoseconds for intervals: cache age, keep-alive, rates.

    In whole microseconds: an access record keeps microseconds, and a replay of it must decide the same.
    """
    return time.monotonic_ns() // 1000 * 1000


def wall_ms() -> int:
    """Return milliseconds since 1970, for times that other processes read."""
    return time.time_ns() // 1_000_000
