"""The end of a loop turn: what has changed is noted now and acted upon once, before the loop sleeps.

Rooms never hand work to each other in the middle of a call; they ask for a callback at the end of the
turn. Three ranks keep the order of the message flow: confirmed entries first, dispatchers next,
connections (one write each) last. A callback may note further work; the turn goes on until none is left
or its share of rounds is used up, then the loop gets to serve its sockets and the rest runs in the next turn.
A callback that fails is logged and costs the others nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

log = logging.getLogger("magnetar")

ROUNDS_MAX = 4
Callback = Callable[[int], None]
"""Takes `now_ns`, read once per round."""


class Turn:
    __slots__ = ("_call_soon", "_confirms", "_dispatches", "_now_ns", "_scheduled", "_writes")

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], now_ns: Callable[[], int]) -> None:
        self._call_soon = call_soon
        self._now_ns = now_ns
        self._scheduled = False
        self._confirms: list[Callback] = []
        self._dispatches: list[Callback] = []
        self._writes: list[Callback] = []

    def confirm(self, callback: Callback) -> None:
        """Ledgers: deliver the run of entries that were confirmed in this turn."""
        self._confirms.append(callback)
        self._schedule()

    def dispatch(self, callback: Callback) -> None:
        """Dispatchers: look at the whole situation once."""
        self._dispatches.append(callback)
        self._schedule()

    def write(self, callback: Callback) -> None:
        """Connections: join what has gathered and write it once."""
        self._writes.append(callback)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._call_soon(self._run)

    def _run(self) -> None:
        for _ in range(ROUNDS_MAX):
            now_ns = self._now_ns()
            for name in ("_confirms", "_dispatches", "_writes"):
                callbacks: list[Callback] = getattr(self, name)
                if callbacks:
                    setattr(self, name, [])
                    for callback in callbacks:
                        try:
                            callback(now_ns)
                        except Exception:  # A defect in one room must not stop the turns of all.
                            log.exception("! %r failed", callback)
            if not (self._confirms or self._dispatches or self._writes):
                self._scheduled = False
                return
        self._call_soon(self._run)
