"""HeldClock: a broker's clock that a test advances.

It runs with the machine's clock until `advance` moves it ahead. Timers that fall due in between run in the order of their
time: the clock stops at each timer that was set for a time, and runs it there. Looks that repeat (time to live, quotas,
unused topics, trimming) would come by the thousand in a week, so an advance makes at most LOOKS_MAX of each, evenly
spread, one at its end, and before each timer those that are due by then: nothing set for later comes before them.

    advance -> stop at the next timer or look -> run what is due -> wait for the work that it began -> next stop
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Awaitable, Callable
from typing import Final

from foundation.loop.clock import BrokerClock
from foundation.units import NS_PER_MS, NS_PER_SECOND

LOOKS_MAX: Final = 100
"""Most looks of one kind during one advance, beside those before timers."""
ADVANCE_MS_MAX: Final = 100 * 365 * 86_400_000
"""Longest advance: a hundred years."""


class HeldTimer:
    """A callback and the time of its call."""

    def __init__(self, due_ns: int, callback: Callable[[], None], *, look: bool) -> None:
        self.due_ns = due_ns
        """When, by the held clock."""
        self.callback: Callable[[], None] | None = callback
        """The function to call; None once it was called or cancelled."""
        self.look = look
        """True for a look that repeats."""

    def cancel(self) -> None:
        """Takes the call back."""
        self.callback = None

    def run(self) -> None:
        """Calls once."""
        callback, self.callback = self.callback, None
        if callback is not None:
            callback()


class HeldClock:
    """The clock, its timers, and the advance."""

    def __init__(self) -> None:
        """Shows the machine's time. Timers need a running loop; the time does not."""
        self.ahead_ns = 0
        """Nanoseconds by which the clock is ahead of the machine's."""
        self.advancing = False
        """True during an advance; a second one is refused meanwhile."""
        self._timers: list[tuple[int, int, HeldTimer]] = []
        self._numbers = itertools.count()
        self._wake: asyncio.TimerHandle | None = None

    @property
    def clock(self) -> BrokerClock:
        """The clock in the form in which a broker takes it."""
        return BrokerClock(self.monotonic_ns, self.wall_ms, self.call_later, self.look_later)

    def monotonic_ns(self) -> int:
        """Returns nanoseconds for intervals, in whole microseconds as the broker's own clock."""
        return (time.monotonic_ns() + self.ahead_ns) // 1000 * 1000

    def wall_ms(self) -> int:
        """Returns milliseconds since 1970."""
        return (time.time_ns() + self.ahead_ns) // NS_PER_MS

    def call_later(self, seconds: float, callback: Callable[[], None]) -> HeldTimer:
        """Calls once after `seconds` of this clock."""
        return self._add(seconds, callback, look=False)

    def look_later(self, seconds: float, callback: Callable[[], None]) -> HeldTimer:
        """Calls once after `seconds` of this clock, or somewhat later during an advance."""
        return self._add(seconds, callback, look=True)

    async def advance(self, by_ns: int, settle: Callable[[], Awaitable[None]]) -> None:
        """Moves the clock ahead and runs what falls due.

        `settle` waits until the work that a timer began has ended; it is awaited at each stop.
        """
        self.advancing = True
        try:
            # Relative to the machine's clock, which goes on during the advance.
            target_ns = self.ahead_ns + by_ns
            pace_ns = max(NS_PER_SECOND, by_ns // LOOKS_MAX)
            looks_ns = self.ahead_ns + pace_ns
            while self.ahead_ns < target_ns:
                self.ahead_ns = min(target_ns, looks_ns, self.ahead_ns + self._ns_to_next())
                if self.ahead_ns >= looks_ns:
                    looks_ns += pace_ns
                # Before the timers: a look may expire what a later timer would deliver.
                await self._run_due(settle, look=True)
                await self._run_due(settle, look=False)
        finally:
            self.advancing = False
            self._arm()

    async def _run_due(self, settle: Callable[[], Awaitable[None]], *, look: bool) -> None:
        due = self._take_due(self.monotonic_ns(), look=look)
        for timer in due:
            timer.run()
        if due:
            await settle()

    def _ns_to_next(self) -> int:
        """Returns the time to the next timer that is not a look; at least a microsecond."""
        due_ns = min(
            (due for due, _, timer in self._timers if not timer.look and timer.callback is not None),
            default=self.monotonic_ns() + _FAR_NS,
        )
        return max(due_ns - self.monotonic_ns() + 1000, 1000)

    def _take_due(self, now_ns: int, *, look: bool | None = None) -> list[HeldTimer]:
        """Takes out timers that are due, the earliest first; `look` None: of both kinds."""
        taken: list[HeldTimer] = []
        kept: list[tuple[int, int, HeldTimer]] = []
        while self._timers and self._timers[0][0] <= now_ns:
            item = heapq.heappop(self._timers)
            if look is None or item[2].look == look:
                taken.append(item[2])
            else:
                kept.append(item)
        for item in kept:
            heapq.heappush(self._timers, item)
        return taken

    def _add(self, seconds: float, callback: Callable[[], None], *, look: bool) -> HeldTimer:
        timer = HeldTimer(self.monotonic_ns() + int(seconds * NS_PER_SECOND), callback, look=look)
        heapq.heappush(self._timers, (timer.due_ns, next(self._numbers), timer))
        if self._timers[0][2] is timer:
            self._arm()
        return timer

    def _arm(self) -> None:
        """Sets the loop's one timer for the earliest of ours."""
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        if self._timers and not self.advancing:
            left_ns = self._timers[0][0] - self.monotonic_ns()
            self._wake = asyncio.get_running_loop().call_later(max(left_ns, 0) / NS_PER_SECOND, self._fire)

    def _fire(self) -> None:
        self._wake = None
        for timer in self._take_due(self.monotonic_ns()):
            timer.run()
        self._arm()


_FAR_NS: Final = 1 << 62
