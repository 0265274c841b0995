"""ConfirmedRights: rights in memory are never older than a bound; after it nobody has any until the store answers.

Watches bring a change of rights within a fraction of a second. This is the guard for when they do not: the broker is cut off
from the metadata store, or a notice was lost. Every `ROUND_S` seconds all that rights follow from is read again; rights that
no such round has confirmed for `BOUND_S` seconds count as revoked, because another broker may have revoked them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Final

from broker.compose.timers import Timers
from broker.security.authorization.authorizer import Authorizer
from foundation.model.errors import MetadataError

log = logging.getLogger("magnetar")

ROUND_S: Final = 20.0
"""Seconds between two rounds."""
BOUND_S: Final = 60.0
"""The greatest age of rights in force, in seconds: two rounds may fail."""
CHECK_S: Final = 1.0
"""Seconds between two checks of the age, which end what is open."""


class ConfirmedRights:
    """The age of the rights of one broker on a shared store."""

    def __init__(
        self,
        reads: Sequence[Callable[[], Awaitable[None]]],
        expired: Callable[[], None],
        *,
        now_ns: Callable[[], int],
        spawn: Callable[[Coroutine[object, None, None], str], object],
    ) -> None:
        """Takes `reads`, after which rights have every change from before them, and `expired`, which ends what is open.

        The rights were just read.
        """
        self._reads = reads
        self._expired = expired
        self._now_ns = now_ns
        self._spawn = spawn
        self._confirmed_ns = now_ns()
        self._is_reading = False
        self._has_expired = False

    def start(self, authorizer: Authorizer, timers: Timers) -> None:
        """Begins the rounds, and binds the decisions of `authorizer` to them."""
        authorizer.is_confirmed = self.is_confirmed
        timers.every(ROUND_S, self.begin_round)
        timers.every(CHECK_S, self.check)

    def is_confirmed(self) -> bool:
        """Returns False while rights may be older than the bound."""
        return self._now_ns() - self._confirmed_ns <= BOUND_S * 1e9

    def begin_round(self) -> None:
        """Reads everything again, unless the round before still waits for the store."""
        if not self._is_reading:
            self._is_reading = True
            self._spawn(self._read(), "rights are read again")

    def check(self) -> None:
        """Ends what clients have open once rights are too old."""
        if not self.is_confirmed() and not self._has_expired:
            self._has_expired = True
            log.error("! no rights: the metadata store has not confirmed them for %g s", BOUND_S)
            self._expired()

    async def _read(self) -> None:
        began_ns = self._now_ns()
        try:
            for read in self._reads:
                await read()
        except MetadataError as error:
            log.warning("! rights cannot be read again: %s", error)
        else:
            self._confirmed_ns = began_ns
            self._has_expired = not self.is_confirmed()
        finally:
            self._is_reading = False
