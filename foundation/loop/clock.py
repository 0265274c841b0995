"""The clocks of the broker.

Only edges and the composition root call them; every other room receives the time as an argument, so that its tests
decide what time it is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from foundation.value import Value

CallLater = Callable[[float, Callable[[], None]], object]
"""(seconds, callback): the event loop's `call_later`, or a test's list of timers."""


def monotonic_ns() -> int:
    """Returns nanoseconds for intervals: cache age, keep-alive, rates.

    In whole microseconds: an access record keeps microseconds, and a replay of it must decide the same.
    """
    return time.monotonic_ns() // 1000 * 1000


def wall_ms() -> int:
    """Returns milliseconds since 1970, for times that other processes read."""
    return time.time_ns() // 1_000_000


class BrokerClock(Value):
    """The time by which a broker decides what is due, and timers that go by it.

    A broker under test has a clock that the test advances (`broker/faults/held_clock.py`). Time-outs of connections
    go by the event loop instead, because clients are not moved through time with the broker.
    """

    monotonic_ns: Callable[[], int] = monotonic_ns
    """Nanoseconds for intervals."""
    wall_ms: Callable[[], int] = wall_ms
    """Milliseconds since 1970."""
    call_later: CallLater | None = None
    """Calls once, at a time that was computed; None: the running loop's `call_later`."""
    look_later: CallLater | None = None
    """As `call_later`, for looks that repeat: an advance by a week must not make a week of looks."""

    def later(self) -> CallLater:
        """Returns the timer for one call at its time. To be called inside the running loop."""
        return self.call_later or asyncio.get_running_loop().call_later

    def looks(self) -> CallLater:
        """Returns the timer for looks that repeat. To be called inside the running loop."""
        return self.look_later or asyncio.get_running_loop().call_later
