"""ReadPermits: what one read has of the budget of reads in flight, from the asking to the giving back.

The steps are ask, granted, correct, lend, release. `release` may come at any time, also while the read waits
in line, and more than once, so that whoever ends a read need not know how far it came.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.managed_ledger.ground import Ground
from broker.managed_ledger.inflight_reads_limiter import Granted, Permits
from broker.model.errors import BrokerError, TooManyRequests


class ReadPermits:
    __slots__ = ("_ground", "_held", "_waiting")

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._held: Permits | None = None
        self._waiting: Granted | None = None

    @property
    def held(self) -> bool:
        """Part of the budget is taken; never where the budget has no limit."""
        return self._held is not None

    @property
    def waiting(self) -> bool:
        return self._waiting is not None

    def ask(self, size_bytes: int, begin: Callable[[], None], refuse: Callable[[BrokerError], None]) -> None:
        """Call `begin` as soon as so many bytes may be read, maybe inside this call; `refuse`, never inside
        it, with TooManyRequests when too many reads wait already or the wait took too long."""
        limiter = self._ground.reads_limiter
        if not limiter.enabled:
            begin()
            return

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
            permits = limiter.acquire(size_bytes, self._ground.now_ns(), granted)
        except TooManyRequests as error:
            refusal = error
            self._ground.turn.confirm(lambda _: refuse(refusal))
            return
        if permits is not None:
            granted(permits)
        else:
            self._waiting = granted
            limiter.recall()

    def correct(self, size_bytes: int) -> None:
        """So large is what was read."""
        if self._held is not None:
            self._ground.reads_limiter.correct(self._held, size_bytes, self._ground.now_ns())

    def lend(self, let_go: Callable[[], None]) -> None:
        """Nobody takes what was read just now: `let_go`, which must release, is called when others need the room."""
        if self._held is not None:
            self._ground.reads_limiter.lend(self._held, let_go)

    def release(self) -> bool:
        """Give back what is held, or leave the line; True if this ended the wait: nobody is called any more."""
        now_ns = self._ground.now_ns()
        limiter = self._ground.reads_limiter
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            return limiter.withdraw(waiting, now_ns)
        if self._held is not None:
            held, self._held = self._held, None
            limiter.release(held, now_ns)
        return False
