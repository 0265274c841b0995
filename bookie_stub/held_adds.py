"""Adds that wait for room: both halves of the write cache are full, a flush is on its way.

They are held, not refused, until dbStorage_maxThrottleTimeMs; then they are answered "too many requests".
Held adds keep their order, and every later add waits behind them.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from bookie_stub.metrics import BookieStats
from bookie_stub.posting import Post, post_quietly
from protocol.bookie_frame import RC_TOO_MANY_REQUESTS

Add = tuple[int, int, bytes, bytes, bool, Callable[[int, int], None]]
"""Ledger id, entry id, record, master key, recovery, done: the arguments of `Bookie.add`."""


class HeldAdds:
    def __init__(self, seconds_max: float, post: Post, stats: BookieStats) -> None:
        self._seconds_max = seconds_max
        self._post = post
        self._stats = stats
        self._adds: deque[tuple[float, Add]] = deque()

    def __bool__(self) -> bool:
        return bool(self._adds)

    def __len__(self) -> int:
        return len(self._adds)

    def hold(self, add: Add) -> None:
        self._stats.adds_held += 1
        self._adds.append((time.monotonic(), add))
        if len(self._adds) == 1:
            self._expire_later()

    def next(self) -> Add:
        """The one that has waited longest."""
        return self._adds.popleft()[1]

    def _expire_later(self) -> None:
        timer = threading.Timer(self._seconds_max, post_quietly, (self._post, self._expire))
        timer.daemon = True
        timer.start()

    def _expire(self) -> None:
        limit = time.monotonic() - self._seconds_max
        while self._adds and self._adds[0][0] <= limit:
            _, (_, entry_id, _, _, _, done) = self._adds.popleft()
            self._stats.adds_rejected += 1
            self._stats.adds_refused += 1
            done(RC_TOO_MANY_REQUESTS, entry_id)
        if self._adds:
            self._expire_later()
