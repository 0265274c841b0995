"""The two clocks. Only edges and the composition root look at them; every other room is told the time."""

from __future__ import annotations

import time

monotonic_ns = time.monotonic_ns
"""For intervals: cache age, keep-alive, rates."""


def wall_ms() -> int:
    """Milliseconds since 1970, for what clients and other processes read: timestamps, publish times."""
    return time.time_ns() // 1_000_000
