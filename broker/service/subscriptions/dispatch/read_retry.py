"""ReadRetry: delays storage reads after a failed one, longer each time."""

from __future__ import annotations

from typing import Protocol

from foundation.loop.clock import CallLater

DELAY_MS_MIN = 100
"""Delay after the first failure."""
DELAY_MS_MAX = 60_000
"""Longest delay."""


class Woken(Protocol):
    """A dispatcher."""

    def wake(self) -> None:
        """Looks again at the end of this turn."""
        ...


class ReadRetry:
    """Counts failures of storage reads and wakes the dispatcher after the delay.

    The first delay is 100 ms; each further failure doubles it, up to 60 s. While `waiting` is True the dispatcher
    starts no read: without the delay, a bookie that is away would be asked again in every turn of the event loop.
    """

    __slots__ = ("_call_later", "_delay_ms", "dispatcher", "waiting")

    def __init__(self, call_later: CallLater, dispatcher: Woken) -> None:
        self.waiting = False
        """True from a failure until its delay is over."""
        self._call_later = call_later
        self.dispatcher: Woken | None = dispatcher
        """Looks again after each delay; None once nobody is to look."""
        self._delay_ms = 0

    def succeeded(self) -> None:
        """Starts the next series of delays at the minimum again."""
        self._delay_ms = 0

    def failed(self) -> None:
        """Begins a delay; a second failure during the delay changes nothing."""
        if not self.waiting:
            self._delay_ms = max(DELAY_MS_MIN, min(self._delay_ms * 2, DELAY_MS_MAX))
            self.waiting = True
            self._call_later(self._delay_ms / 1000, self._end_delay)

    def _end_delay(self) -> None:
        self.waiting = False
        self.wake()

    def wake(self) -> None:
        """Lets the dispatcher look again."""
        if self.dispatcher is not None:
            self.dispatcher.wake()
