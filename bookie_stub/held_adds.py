"""Adds that wait for room: both halves of the write cache are full, a flush is on its way.

They are held, not refused, until dbStorage_maxThrottleTimeMs. Held adds keep their order, and every later add
waits behind them.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from bookie_stub.entry_run import EntryRun
from bookie_stub.posting import Post, post_quietly


class HeldAdds:
    def __init__(self, seconds_max: float, post: Post, too_late: Callable[[EntryRun], None]) -> None:
        """`too_late` is called in the loop for each run that has waited for longer than `seconds_max`."""
        self._seconds_max = seconds_max
        self._post = post
        self._too_late = too_late
        self._runs: deque[tuple[float, EntryRun]] = deque()

    def __bool__(self) -> bool:
        return bool(self._runs)

    def hold(self, run: EntryRun) -> None:
        self._runs.append((time.monotonic(), run))
        if len(self._runs) == 1:
            self._expire_later()

    def next(self) -> EntryRun:
        """The one that has waited longest."""
        return self._runs.popleft()[1]

    def _expire_later(self) -> None:
        timer = threading.Timer(self._seconds_max, post_quietly, (self._post, self._expire))
        timer.daemon = True
        timer.start()

    def _expire(self) -> None:
        limit = time.monotonic() - self._seconds_max
        while self._runs and self._runs[0][0] <= limit:
            self._too_late(self._runs.popleft()[1])
        if self._runs:
            self._expire_later()
