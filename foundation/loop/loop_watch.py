"""LoopWatch: measures how long the event loop is held by a single callback.

A timer notes each turn in which it runs. Its lateness is the time for which something else held the loop. A helper thread
may ask for the age of the last note while the loop is held, which the loop itself could not answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from foundation.units import NS_PER_SECOND

INTERVAL_S: Final = 0.1
"""Time between two notes."""
WINDOW_NS: Final = 10_000_000_000
"""The longest lag is kept for one to two of these, so that a scrape every ten seconds misses none."""


class LoopWatch:
    """Keeps the time of the last note, and the longest lag of the last ten to twenty seconds."""

    def __init__(
        self, call_later: Callable[[float, Callable[[], None]], object], now_ns: Callable[[], int]
    ) -> None:
        """`now_ns` is monotonic; it is called by other threads too."""
        self._call_later = call_later
        self._now_ns = now_ns
        self._noted_ns = now_ns()
        self._window_ns = self._noted_ns
        self._longest_ns = 0
        self._longest_before_ns = 0
        self._late_ns = 0
        self._stopped = False

    def start(self) -> None:
        """Begins to note."""
        self._noted_ns = self._window_ns = self._now_ns()
        self._call_later(INTERVAL_S, self._note)

    def stop(self) -> None:
        """Ends the notes."""
        self._stopped = True

    def held_s(self) -> float:
        """Returns the seconds by which the next note is late, 0 while it is not. Any thread may call this."""
        return max(0.0, (self._now_ns() - self._noted_ns) / NS_PER_SECOND - INTERVAL_S)

    @property
    def lag_s(self) -> float:
        """The longest lag of the last ten to twenty seconds."""
        return max(self._longest_ns, self._longest_before_ns) / NS_PER_SECOND

    @property
    def late_us(self) -> int:
        """The sum of all lags since the start, in microseconds. Any thread may read it."""
        return self._late_ns // 1000

    def _note(self) -> None:
        if self._stopped:
            return
        now_ns = self._now_ns()
        lag_ns = max(0, now_ns - self._noted_ns - int(INTERVAL_S * NS_PER_SECOND))
        self._noted_ns = now_ns
        if now_ns - self._window_ns >= WINDOW_NS:
            self._window_ns = now_ns
            self._longest_before_ns, self._longest_ns = self._longest_ns, 0
        self._longest_ns = max(self._longest_ns, lag_ns)
        self._late_ns += lag_ns
        self._call_later(INTERVAL_S, self._note)
