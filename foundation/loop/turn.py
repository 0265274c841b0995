"""Turn: work that is collected during a turn of the event loop and done once at its end.

A room that changes the situation of another one does not call it at once; it registers a callback for the end of the
turn. So a hundred receipts in one turn cost one look of a dispatcher and one write to a connection.

Four ranks keep the order of the message flow. Each takes any callback, and runs before the next:
1. confirm: confirmed runs of entries, and results of reads that are complete already
2. dispatch: dispatchers look for entries and consumers; cursors begin to store their acknowledgements
3. write: connections write their output; permits of dispatched entries are released; the cache evicts
4. commit: the journal writes the records of the turn, or hands them to its thread. Last, because it may wait for the disk,
   and no output that is ready waits with it

A callback may register more. The turn goes on until nothing is left or `ROUNDS_MAX` rounds are done; then the
loop serves its sockets first. A callback that fails is logged, and the others run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

log = logging.getLogger("magnetar")

ROUNDS_MAX = 4
"""Rounds per turn: enough for add, dispatch, write and what follows; more would keep sockets waiting."""
Callback = Callable[[int], None]
"""Takes `now_ns`, read once per round."""
_NOTHING: Final[list[list[Callback]]] = [[], [], [], []]


class Turn:
    """Collects callbacks of one event loop and runs them by rank."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], now_ns: Callable[[], int]) -> None:
        self._call_soon = call_soon
        self._now_ns = now_ns
        self._scheduled = False
        # A list per rank, replaced before its calls, so that callbacks registered by them run in the next round.
        self._ranks: list[list[Callback]] = [[], [], [], []]

    def confirm(self, callback: Callback) -> None:
        """Calls back first: entries were confirmed or a read is complete."""
        self._ranks[0].append(callback)
        if not self._scheduled:
            self._schedule()

    def dispatch(self, callback: Callback) -> None:
        """Calls back second: a dispatcher or a cursor has work."""
        self._ranks[1].append(callback)
        if not self._scheduled:
            self._schedule()

    def write(self, callback: Callback) -> None:
        """Calls back third: output has gathered, or dispatched entries may be settled."""
        self._ranks[2].append(callback)
        if not self._scheduled:
            self._schedule()

    def commit(self, callback: Callback) -> None:
        """Calls back last: records have gathered for the disk."""
        self._ranks[3].append(callback)
        if not self._scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        self._call_soon(self._run)

    def _run(self) -> None:
        ranks = self._ranks
        for _ in range(ROUNDS_MAX):
            # One reading per round: callbacks of a round agree on the time, and a clock call each would add up.
            now_ns = self._now_ns()
            for rank, callbacks in enumerate(ranks):
                if not callbacks:
                    continue
                ranks[rank] = []
                for callback in callbacks:
                    try:
                        callback(now_ns)
                    except Exception:  # A defect in one room must not stop the turns of all.
                        log.exception("! %r failed", callback)
            if ranks == _NOTHING:
                self._scheduled = False
                return
        # `_scheduled` stays set, so callbacks that come meanwhile wait for this call and ask for none.
        self._call_soon(self._run)
