"""The queue of adds that wait for space in the write cache.

An add waits here when the active write cache is full while the other one is still being flushed. It waits at most
`dbStorage_maxThrottleTimeMs` and is then answered "too many requests", as in BookKeeper. The queue keeps the order of
the adds; every later add waits after the ones that are held.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from bookie_stub.base.posting import Post, post_quietly
from bookie_stub.journal.entry_run import EntryRun

_WAIT_S_MIN = 0.01
"""Shortest time between two checks for expired adds. Each check starts and ends a timer thread."""


class HeldAdds:
    """A queue of runs with one timer for all of them."""

    def __init__(self, seconds_max: float, post: Post, expired: Callable[[EntryRun], None]) -> None:
        """`expired(run)` is called in the loop for each expired run.

        A run expires when it has waited longer than `seconds_max`."""
        self._seconds_max = seconds_max
        self._post = post
        self._expired = expired
        self._runs: deque[tuple[float, EntryRun]] = deque()
        self._timed = False

    def __bool__(self) -> bool:
        """Returns True while at least one run waits."""
        return bool(self._runs)

    def hold(self, run: EntryRun) -> None:
        """Appends a run, and starts the timer if none is running."""
        self._runs.append((time.monotonic(), run))
        if not self._timed:
            self._expire_after(self._seconds_max)

    def next(self) -> EntryRun:
        """Removes and returns the run that has waited longest. Raises IndexError when none waits."""
        return self._runs.popleft()[1]

    def _expire_after(self, seconds: float) -> None:
        # A timer thread, not `loop.call_later`: the bookie knows its loop only as `post`.
        self._timed = True
        timer = threading.Timer(seconds, post_quietly, (self._post, self._expire))
        timer.daemon = True
        timer.start()

    def _expire(self) -> None:
        self._timed = False
        limit = time.monotonic() - self._seconds_max
        while self._runs and self._runs[0][0] <= limit:
            self._expired(self._runs.popleft()[1])
        if self._runs:
            self._expire_after(max(self._runs[0][0] - limit, _WAIT_S_MIN))
