"""InflightReadsLimiter: a broker-wide budget of bytes for reads in flight (PIP-430); ReadPermits: one read's share.

A read takes permits for its estimated size, corrects them when it knows the real size, and releases them when
its last entry was dispatched or dropped:

    acquire -> (wait) -> granted -> correct -> (lend) -> release

A read that does not fit waits in a queue, up to a time. Permits whose entries wait for a slow client are
*lent*: the limiter takes them back, by dropping those entries, when other reads wait. Otherwise one client
that takes nothing could stop every other reader of the broker.

No clock and no timer: the composer calls `expire_due` a few times a second.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from foundation.loop.turn import Turn
from foundation.model.errors import BrokerError, TooManyRequests

log = logging.getLogger(__name__)

READ_AHEAD_SHARE: Final = 0.7
"""The part of the budget that reads ahead of demand may fill; Pulsar's value."""


@dataclass(slots=True, eq=False)
class Permits:
    """Bytes taken from the budget by one read."""

    size_bytes: int
    """Less than was asked for if the request was larger than the whole budget."""


Granted = Callable[[Permits | None], None]
"""Receives the permits, or None because the wait took too long."""


@dataclass(slots=True, eq=False)
class _Waiter:
    size_bytes: int
    since_ns: int
    granted: Granted


class InflightReadsLimiter:
    """The budget, the queue of waiting reads, and the lent permits."""

    def __init__(self, budget_bytes: int, queue_max: int, timeout_ns: int, *, fair: bool = True) -> None:
        """`budget_bytes` 0 or less = no limit; `timeout_ns` 0 or less = reads wait for ever.

        `fair`: no read overtakes one that waits. With False a small read is served even past larger ones that
        wait, as Apache's releases do it; only the golden vectors use that.
        """
        self._fair = fair
        self._queue_max = queue_max
        self._timeout_ns = timeout_ns
        self._waiters: deque[_Waiter] = deque()
        self._lent: dict[Permits, Callable[[], None]] = {}
        self.budget_bytes: Final = budget_bytes
        """`managedLedgerMaxReadsInFlightSizeInMB` in bytes."""
        self.remaining_bytes = budget_bytes
        """Bytes that no read holds."""
        self.timer_due_ns: int | None = None
        """When the first read in the queue has waited long enough; None while none waits."""

    @property
    def enabled(self) -> bool:
        """False without a limit; every request is then granted at once."""
        return self.budget_bytes > 0

    @property
    def queued(self) -> int:
        """Reads that wait for permits."""
        return len(self._waiters)

    def acquire(self, size_bytes: int, now_ns: int, granted: Granted) -> Permits | None:
        """Returns permits, or None: `granted` is then called later.

        Raises TooManyRequests if the queue is full.

        A request for nothing never waits. A request larger than the whole budget is served, with all of the
        budget, when no other read holds a part of it; otherwise it could never be served.
        """
        if not self.enabled:
            return Permits(0)
        # Pulsar lets small reads past larger ones that wait; a large one may then wait until it times out.
        overtakes = not (self._fair and self._waiters) or size_bytes <= 0
        permits = self._take(size_bytes) if overtakes else None
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
        """Returns permits for a read ahead of demand, or None at once."""
        if not self.enabled:
            return Permits(0)
        used_bytes = self.budget_bytes - self.remaining_bytes
        if self._waiters or used_bytes + size_bytes > int(self.budget_bytes * READ_AHEAD_SHARE):
            return None
        return self._take(size_bytes)

    def withdraw(self, granted: Granted, now_ns: int) -> bool:
        """Removes the waiting read with this callback; returns False if it has been granted or refused already."""
        for waiter in self._waiters:
            if waiter.granted is granted:
                self._waiters.remove(waiter)
                # It may have been the one that did not fit: those after it may fit now.
                self._serve(now_ns)
                return True
        return False

    def correct(self, permits: Permits, size_bytes: int, now_ns: int) -> None:
        """Adjusts the permits to the real size; not after `release`.

        A surplus returns to the budget. Of a deficit, as much is taken as is left. A deficit never waits: the bytes are
        in memory already.
        """
        if not self.enabled:
            return
        # May leave the permits below the real size: the budget must never become negative.
        missing = size_bytes - permits.size_bytes
        change = min(missing, self.remaining_bytes)
        permits.size_bytes += change
        self.remaining_bytes -= change
        if change < 0:
            self._serve(now_ns)

    def release(self, permits: Permits, now_ns: int) -> None:
        """Gives the permits back to the budget; harmless when called again."""
        self._lent.pop(permits, None)
        self.remaining_bytes += permits.size_bytes
        permits.size_bytes = 0
        self._serve(now_ns)

    def lend(self, permits: Permits, drop: Callable[[], None]) -> None:
        """Marks permits whose entries wait for a slow client.

        `drop` drops the entries and releases the permits. `drop` is called when other reads need them, maybe inside
        this call.
        """
        # Reads may be waiting already: they had nothing to recall until now.
        self._lent[permits] = drop
        self.recall()

    def recall(self) -> None:
        """Takes back lent permits, the longest lent first, while reads wait."""
        while self._waiters and self._lent:
            # `drop` releases, and releasing serves the queue, so the condition is looked at anew.
            permits = next(iter(self._lent))
            self._lent.pop(permits)()

    def expire_due(self, now_ns: int) -> None:
        """Refuses the reads that have waited too long, if any has."""
        if self.timer_due_ns is not None and now_ns >= self.timer_due_ns:
            self.timer_fired(now_ns)

    def timer_fired(self, now_ns: int) -> None:
        """Refuses the reads that have waited too long; to be called at `timer_due_ns`."""
        self.timer_due_ns = None
        answers: list[tuple[_Waiter, Permits | None]] = []
        while self._waiters and now_ns - self._waiters[0].since_ns >= self._timeout_ns:
            answers.append((self._waiters.popleft(), None))
        if answers and self._fair:
            # A large read at the head may have kept back smaller ones that fit.
            self._take_for_waiters(now_ns, answers)
        self._arm()
        self._answer(answers)

    def _serve(self, now_ns: int) -> None:
        """Answers waiting reads from the head while the first is late or fits."""
        answers: list[tuple[_Waiter, Permits | None]] = []
        self._take_for_waiters(now_ns, answers)
        self._answer(answers)

    def _take_for_waiters(self, now_ns: int, answers: list[tuple[_Waiter, Permits | None]]) -> None:
        while self._waiters:
            waiter = self._waiters[0]
            # `>` here and `>=` in `timer_fired`, as Pulsar's InflightReadsLimiter decides (golden vectors `limiter`).
            late = self._timeout_ns > 0 and now_ns - waiter.since_ns > self._timeout_ns
            served = None if late else self._take(waiter.size_bytes)
            if not late and served is None:
                break
            answers.append((self._waiters.popleft(), served))

    def _take(self, size_bytes: int) -> Permits | None:
        # A read above the whole budget gets all of it, alone; otherwise it would wait for ever (as in Pulsar).
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
        # After all bookkeeping: a callback may come back here, and must find the queue in order.
        for waiter, permits in answers:
            try:
                waiter.granted(permits)
            except Exception:  # A defect of one read must not cost the others their permits.
                log.exception("a read failed after its permits were granted or refused")


class ReadPermits:
    """A read's share of the budget: acquired, corrected, lent, released.

    `release` may come at any time and more than once, also while the read waits. So the owner that ends a
    read need not know how far it came.
    """

    __slots__ = ("_held", "_limiter", "_now_ns", "_turn", "_waiting")

    def __init__(self, limiter: InflightReadsLimiter, turn: Turn, now_ns: Callable[[], int]) -> None:
        self._limiter = limiter
        self._turn = turn
        self._now_ns = now_ns
        self._held: Permits | None = None
        self._waiting: Granted | None = None

    @property
    def held(self) -> bool:
        """Part of the budget is taken; False while there is no limit."""
        return self._held is not None

    @property
    def waiting(self) -> bool:
        """The read is in the limiter's queue."""
        return self._waiting is not None

    def acquire(
        self, size_bytes: int, begin: Callable[[], None], refuse: Callable[[BrokerError], None]
    ) -> None:
        """Calls `begin` as soon as so many bytes may be read, maybe inside this call.

        Otherwise calls `refuse` with TooManyRequests, never inside this call: the queue is full, or the wait took too
        long.
        """
        limiter = self._limiter

        def granted(permits: Permits | None) -> None:
            self._waiting = None
            self._held = permits
            if permits is None:
                refuse(
                    TooManyRequests(
                        f"a read of {size_bytes} bytes waited too long for its share of {limiter.budget_bytes}"
                        " (managedLedgerMaxReadsInFlightSizeInMB); try again later"
                    )
                )
            else:
                begin()

        try:
            permits = limiter.acquire(size_bytes, self._now_ns(), granted)
        except TooManyRequests as error:
            refusal = error
            self._turn.confirm(lambda _: refuse(refusal))
            return
        if permits is not None:
            granted(permits)
        else:
            self._waiting = granted
            # Only now: a recalled permit is granted at once, and `granted` clears `_waiting`.
            limiter.recall()

    def correct(self, size_bytes: int) -> None:
        """Adjusts the share to the real size of the entries."""
        if self._held is not None:
            self._limiter.correct(self._held, size_bytes, self._now_ns())

    def lend(self, drop: Callable[[], None]) -> None:
        """Lets the limiter call `drop`, which must release the share, when other reads wait."""
        if self._held is not None:
            self._limiter.lend(self._held, drop)

    def release(self) -> None:
        """Gives back the share, or leaves the queue."""
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            self._limiter.withdraw(waiting, self._now_ns())
        elif self._held is not None:
            held, self._held = self._held, None
            self._limiter.release(held, self._now_ns())
