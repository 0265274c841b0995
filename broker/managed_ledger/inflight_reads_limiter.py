"""InflightReadsLimiter: a budget of bytes for everything that is read and not yet sent, broker-wide (PIP-430).

A read takes permits for its estimated size and gives them back when its last entry has been delivered. Who
does not fit waits in line, up to a time. No clock and no timer: the owner looks at `timer_due_ns` after each
call and calls `timer_fired` at that time.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from broker.errors import TooManyRequests

log = logging.getLogger(__name__)

READ_AHEAD_SHARE: Final = 0.7
"""The part of the budget that reads nobody waits for may fill."""


@dataclass(slots=True)
class Permits:
    size_bytes: int
    """What was taken from the budget: less than asked for if the request was larger than the budget."""


Granted = Callable[[Permits | None], None]
"""The permits, or none because the wait took too long."""


@dataclass(slots=True)
class _Waiter:
    size_bytes: int
    since_ns: int
    granted: Granted


class InflightReadsLimiter:
    __slots__ = ("_queue_max", "_timeout_ns", "_waiters", "budget_bytes", "remaining_bytes", "timer_due_ns")

    def __init__(self, budget_bytes: int, queue_max: int, timeout_ns: int) -> None:
        """`budget_bytes` 0 or less = no limit; `timeout_ns` 0 or less = whoever waits does so for ever."""
        self._queue_max = queue_max
        self._timeout_ns = timeout_ns
        self._waiters: deque[_Waiter] = deque()
        self.budget_bytes: Final = budget_bytes
        self.remaining_bytes = budget_bytes
        self.timer_due_ns: int | None = None

    @property
    def enabled(self) -> bool:
        return self.budget_bytes > 0

    @property
    def queued(self) -> int:
        return len(self._waiters)

    def acquire(self, size_bytes: int, now_ns: int, granted: Granted) -> Permits | None:
        """Permits at once, or none: `granted` will be called. TooManyRequests if the line is full.

        A request that fits is served at once even if larger ones wait; one that is larger than the whole
        budget is served, with all of it, when nothing else is out.
        """
        if not self.enabled:
            return Permits(0)
        permits = self._take(size_bytes)
        if permits is not None:
            return permits
        if len(self._waiters) >= self._queue_max:
            raise TooManyRequests(f"{self._queue_max} reads wait for memory already")
        self._waiters.append(_Waiter(size_bytes, now_ns, granted))
        self._arm()
        return None

    def acquire_read_ahead(self, size_bytes: int) -> Permits | None:
        """Permits for a read that nobody waits for yet, or none; it never stands in line."""
        if not self.enabled:
            return Permits(0)
        used_bytes = self.budget_bytes - self.remaining_bytes
        if self._waiters or used_bytes + size_bytes > int(self.budget_bytes * READ_AHEAD_SHARE):
            return None
        return self._take(size_bytes)

    def release(self, permits: Permits, now_ns: int) -> None:
        """Give back, and serve the line from its head while the head has waited too long or fits."""
        self.remaining_bytes += permits.size_bytes
        permits.size_bytes = 0
        answers: list[tuple[_Waiter, Permits | None]] = []
        while self._waiters:
            waiter = self._waiters[0]
            late = self._timeout_ns > 0 and now_ns - waiter.since_ns > self._timeout_ns
            served = None if late else self._take(waiter.size_bytes)
            if not late and served is None:
                break
            answers.append((self._waiters.popleft(), served))
        self._answer(answers)

    def timer_fired(self, now_ns: int) -> None:
        """At `timer_due_ns`: give up those who have waited for the whole time."""
        self.timer_due_ns = None
        answers: list[tuple[_Waiter, Permits | None]] = []
        while self._waiters and now_ns - self._waiters[0].since_ns >= self._timeout_ns:
            answers.append((self._waiters.popleft(), None))
        self._arm()
        self._answer(answers)

    def _take(self, size_bytes: int) -> Permits | None:
        untouched = self.remaining_bytes == self.budget_bytes
        if size_bytes > self.remaining_bytes and not (untouched and size_bytes > self.budget_bytes):
            return None
        taken = min(size_bytes, self.remaining_bytes)
        self.remaining_bytes -= taken
        return Permits(taken)

    def _arm(self) -> None:
        if self._timeout_ns > 0 and self._waiters and self.timer_due_ns is None:
            self.timer_due_ns = self._waiters[0].since_ns + self._timeout_ns

    @staticmethod
    def _answer(answers: list[tuple[_Waiter, Permits | None]]) -> None:
        for waiter, permits in answers:
            try:
                waiter.granted(permits)
            except Exception:
                log.exception("a read failed when its turn came")
