"""Timers: actions that the broker repeats on its event loop, until it stops."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from foundation.loop.clock import CallLater


class Timers:
    """Repeats actions; each runs on the loop and must return within milliseconds."""

    def __init__(self, call_later: CallLater) -> None:
        """Runs nothing before `every` or `after` is called."""
        self._call_later = call_later
        self._stopped = False

    def every(self, seconds: float, action: Callable[[], object]) -> None:
        """Calls `action` again and again, the first time after `seconds`.

        The time counts from the end of one call to the begin of the next, so a slow action cannot pile up. A call
        that raises ends the repetition; the loop logs the error.
        """

        def again() -> None:
            action()
            self.after(seconds, again)

        self.after(seconds, again)

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        """Calls `action` once after `seconds`, unless the timers were stopped by then."""
        self._call_later(seconds, partial(self._run, action))

    def stop(self) -> None:
        """Lets no further action begin."""
        self._stopped = True

    def _run(self, action: Callable[[], object]) -> None:
        if not self._stopped:
            action()
