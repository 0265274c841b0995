"""The two clocks. Only edges and the composition root look at them; every other room is told the time."""

from __future__ import annotations

import time


def monotonic_ns() -> int:
    """For intervals: cache age, keep-alive, rates. In whole microseconds, so that a record of decisions, which
    keeps microseconds, repeats them exactly."""
    return time.monotonic_ns() // 1000 * 1000


def wall_ms() -> int:
    """Milliseconds since 1970, for what clients and other processes read: timestamps, publish times."""
    return time.time_ns() // 1_000_000
