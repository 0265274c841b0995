"""Adds that wait for room: both halves of the write cache are full, a flush is on its way.

They are held, not refused, until dbStorage_maxThrottleTimeMs. Held adds keep their order, and every later add
waits behind them.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from bookie_stub.base.posting import Post, post_quietly
from bookie_stub.journal.entry_run import EntryRun

_WAIT_S_MIN = 0.01
"""Between two looks at what has waited too long: each takes a thread to its end."""


class HeldAdds:
    def __init__(self, seconds_max: float, post: Post, too_late: Callable[[EntryRun], None]) -> None:
        """`too_late` is called in the loop for each run that has waited for longer than `seconds_max`."""
        self._seconds_max = seconds_max
        self._post = post
        self._too_late = too_late
        self._runs: deque[tuple[float, EntryRun]] = deque()
        self._timed = False
        """A timer is running; there is never a second one."""

    def __bool__(self) -> bool:
        return bool(self._runs)

    def hold(self, run: EntryRun) -> None:
        self._runs.append((time.monotonic(), run))
        if not self._timed:
            self._expire_after(self._seconds_max)

    def next(self) -> EntryRun:
        """The one that has waited longest."""
        return self._runs.popleft()[1]

    def _expire_after(self, seconds: float) -> None:
        self._timed = True
        timer = threading.Timer(seconds, post_quietly, (self._post, self._expire))
        timer.daemon = True
        timer.start()

    def _expire(self) -> None:
        self._timed = False
        limit = time.monotonic() - self._seconds_max
        while self._runs and self._runs[0][0] <= limit:
            self._too_late(self._runs.popleft()[1])
        if self._runs:
            self._expire_after(max(self._runs[0][0] - limit, _WAIT_S_MIN))
