"""InflightReadsLimiter: a budget of bytes for everything that is read and not yet handed over, broker-wide (PIP-430).

A read takes permits for its estimated size, corrects them when it knows the real one, and gives them back when
its last entry was handed over or dropped. Who does not fit waits in line, up to a time. What is held for a
client that does not take it is lent: it comes back when others wait. No clock and no timer: the owner looks at
`timer_due_ns` after each call and calls `timer_fired` at that time.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from broker.model.errors import TooManyRequests

log = logging.getLogger(__name__)

READ_AHEAD_SHARE: Final = 0.7
"""The part of the budget that reads nobody waits for may fill."""


@dataclass(slots=True, eq=False)
class Permits:
    size_bytes: int
    """What was taken from the budget: less than asked for if the request was larger than the budget."""


Granted = Callable[[Permits | None], None]
"""The permits, or none because the wait took too long."""


@dataclass(slots=True, eq=False)
class _Waiter:
    size_bytes: int
    since_ns: int
    granted: Granted


class InflightReadsLimiter:
    __slots__ = (
        "_fair",
        "_lent",
        "_queue_max",
        "_timeout_ns",
        "_waiters",
        "budget_bytes",
        "remaining_bytes",
        "timer_due_ns",
    )

    def __init__(self, budget_bytes: int, queue_max: int, timeout_ns: int, *, fair: bool = True) -> None:
        """`budget_bytes` 0 or less = no limit; `timeout_ns` 0 or less = whoever waits does so for ever.

        `fair`: nobody passes those who wait. Without, what fits is served even past larger requests, as
        Apache's releases do it.
        """
        self._fair = fair
        self._queue_max = queue_max
        self._timeout_ns = timeout_ns
        self._waiters: deque[_Waiter] = deque()
        self._lent: dict[Permits, Callable[[], None]] = {}
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

        A request for nothing never waits; one that is larger than the whole budget is served, with all of it,
        when nothing else is out.
        """
        if not self.enabled:
            return Permits(0)
        passes = not (self._fair and self._waiters) or size_bytes <= 0
        permits = self._take(size_bytes) if passes else None
        if permits is not None:
            return permits
        if len(self._waiters) >= self._queue_max:
            raise TooManyRequests(
                f"{self._queue_max} reads wait already for their share of {self.budget_bytes} bytes"
                " (managedLedgerMaxReadsInFlightSizeInMB); try again later"
            )
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

    def withdraw(self, granted: Granted, now_ns: int) -> bool:
        """Who asked with this callback waits no longer; False if it has been answered."""
        for waiter in self._waiters:
            if waiter.granted is granted:
                self._waiters.remove(waiter)
                self._serve(now_ns)
                return True
        return False

    def correct(self, permits: Permits, size_bytes: int, now_ns: int) -> None:
        """The real size is known: a surplus goes back, of a deficit is taken what there is. Not after `release`."""
        if not self.enabled:
            return
        missing = size_bytes - permits.size_bytes
        change = min(missing, self.remaining_bytes)
        permits.size_bytes += change
        self.remaining_bytes -= change
        if change < 0:
            self._serve(now_ns)

    def release(self, permits: Permits, now_ns: int) -> None:
        """Give back; harmless where that was done before."""
        self._lent.pop(permits, None)
        self.remaining_bytes += permits.size_bytes
        permits.size_bytes = 0
        self._serve(now_ns)

    def lend(self, permits: Permits, let_go: Callable[[], None]) -> None:
        """What was read waits for somebody who may never take it: `let_go`, which releases these permits, is
        called when others need them, maybe inside this call."""
        self._lent[permits] = let_go
        self.recall()

    def recall(self) -> None:
        """Let those who wait have what is lent, the longest lent first, as far as they need it."""
        while self._waiters and self._lent:
            permits = next(iter(self._lent))
            self._lent.pop(permits)()

    def timer_fired(self, now_ns: int) -> None:
        """At `timer_due_ns`: give up those who have waited for the whole time."""
        self.timer_due_ns = None
        answers: list[tuple[_Waiter, Permits | None]] = []
        while self._waiters and now_ns - self._waiters[0].since_ns >= self._timeout_ns:
            answers.append((self._waiters.popleft(), None))
        if answers and self._fair:
            self._take_for_waiters(now_ns, answers)
        self._arm()
        self._answer(answers)

    def _serve(self, now_ns: int) -> None:
        """Answer the line from its head while the head has waited too long or fits."""
        answers: list[tuple[_Waiter, Permits | None]] = []
        self._take_for_waiters(now_ns, answers)
        self._answer(answers)

    def _take_for_waiters(self, now_ns: int, answers: list[tuple[_Waiter, Permits | None]]) -> None:
        while self._waiters:
            waiter = self._waiters[0]
            late = self._timeout_ns > 0 and now_ns - waiter.since_ns > self._timeout_ns
            served = None if late else self._take(waiter.size_bytes)
            if not late and served is None:
                break
            answers.append((self._waiters.popleft(), served))

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
