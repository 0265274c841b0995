"""TokenBucket: allows so much per period on average, and one period's worth at once. Pure."""

from __future__ import annotations

from typing import Final

from foundation.units import NS_PER_SECOND

UNLIMITED: Final = 1 << 62
"""More than anything that is counted here."""
SHORTEST_WAIT_NS: Final = 10_000_000
"""Shortest wait for tokens. A high rate returns a token every microsecond, and a timer for each would be a busy loop."""


class TokenBucket:
    """A bucket that holds at most one period's tokens and fills evenly.

    It may be overdrawn: the whole of a message or a run of messages is taken, and the next one waits until the debt is
    paid. So the average holds for batches of any size.
    """

    __slots__ = ("_level", "_period_ns", "_rate", "_updated_ns")

    def __init__(self, rate: int, period_ns: int, now_ns: int) -> None:
        """`rate` tokens per `period_ns`; the bucket is full."""
        self._rate = rate
        self._period_ns = period_ns
        # In tokens times `period_ns`: whole numbers, so that no rounding adds up over many small fills.
        self._level = rate * period_ns
        self._updated_ns = now_ns

    def change(self, rate: int, now_ns: int) -> None:
        """Fills with the former rate up to now, then goes on with another one."""
        self._fill(now_ns)
        self._rate = rate
        self._level = min(self._level, rate * self._period_ns)

    def take(self, count: int, now_ns: int) -> None:
        """Removes tokens, also more than there are."""
        self._fill(now_ns)
        self._level -= count * self._period_ns

    def available(self, now_ns: int) -> int:
        """Returns the whole tokens that are left; 0 or less = wait."""
        self._fill(now_ns)
        return self._level // self._period_ns

    def wait_ns(self, now_ns: int) -> int:
        """Returns the nanoseconds until a token is left; 0 = there is one."""
        self._fill(now_ns)
        missing = self._period_ns - self._level
        if missing <= 0:
            return 0
        # A rate of 0 comes from a relative rate alone, which is computed again within a second.
        return -(-missing // self._rate) if self._rate > 0 else NS_PER_SECOND

    def _fill(self, now_ns: int) -> None:
        elapsed = now_ns - self._updated_ns
        if elapsed > 0:
            self._level = min(self._level + elapsed * self._rate, self._rate * self._period_ns)
            self._updated_ns = now_ns
