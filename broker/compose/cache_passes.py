"""CachePasses: runs the passes of the entry cache on the event loop, in slices, and measures them.

The cache has no timer and no clock of its own. Two events make a pass due: the periodic timer (PIP-430,
`managedLedgerCacheEvictionIntervalMs`), and an insert that leaves the cache above its size. Both passes run in slices of
at most `VISITS_PER_SLICE` visits; between two slices the loop serves the sockets.

Periodic passes are rarer while the cache changes little: a pass costs 0.1 ms beside its visits, and 100 a second were a
tenth of the CPU of a broker with 1,000 messages a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from broker.compose.timers import Timers
from entry_cache.compose import ComposedCache
from entry_cache.eviction import VISITS_PER_SLICE
from foundation.loop.turn import Turn

IDLE_INTERVAL_S: Final = 0.1
"""Interval of looks at an empty cache: an entry cannot expire sooner than a time threshold after its insert."""
CHANGES_PER_PASS: Final = 200
"""Inserts and removals for which a periodic pass is worth its price."""
LONGEST_WAIT_S: Final = 0.05
"""Replays of an access record take 0.1 s without a pass for a rest of an empty cache, and run passes of their own."""
LATE: Final = 0.1
"""The part of the time to live by which an entry may stay longer, because passes are rare."""


class CachePasses:
    """The passes of one cache."""

    def __init__(
        self,
        cache: ComposedCache,
        turn: Turn,
        timers: Timers,
        interval_s: float,
        now_ns: Callable[[], int],
    ) -> None:
        """`interval_s`: the least time between two periodic passes."""
        self.interval_s = interval_s
        """May be changed while the broker runs; holds from the next pass on."""
        self._wait_s = interval_s
        """Until the next periodic pass."""
        self._changes = 0
        """Changes of the cache until the last periodic pass."""
        self._cache = cache
        self._turn = turn
        self._timers = timers
        self._now_ns = now_ns

    def start(self) -> None:
        """Begins with both kinds of passes."""
        self._cache.manager.eviction.on_size_check = self._request_size_check
        self._run_periodic()

    def _run_periodic(self) -> None:
        delay = self.interval_s
        try:
            self._adapt()
            if not self._cache.queue_length:
                delay = IDLE_INTERVAL_S
            elif self._run_slice("periodic", self._cache.tick, self._now_ns()):
                delay = 0.0  # More is due: go on after the sockets were served once.
            else:
                delay = self._wait_s
        finally:
            # Even after an error, or one defect in a pass would end all passes and the cache would only grow.
            self._timers.after(delay, self._run_periodic)

    def _adapt(self) -> None:
        """Sets the wait in which as many changes come as a pass is worth, if they go on to come as since the last one."""
        changes = self._cache.changes
        new, self._changes = changes - self._changes, changes
        wanted_s = self._wait_s * CHANGES_PER_PASS / max(new, 1)
        longest_s = min(LONGEST_WAIT_S, LATE * self._cache.manager.settings.ttl_ns / 1e9)
        self._wait_s = max(self.interval_s, min(wanted_s, longest_s))

    def _request_size_check(self) -> None:
        """Runs the check at the end of the loop turn: the dispatchers read the new entries before it evicts some."""
        self._turn.write(self._check_size)

    def _check_size(self, now_ns: int) -> None:
        if self._run_slice("insert", self._cache.run_pending, now_ns):
            # Asked for through the loop, because a callback that this turn's end registers runs in the same turn: the
            # sockets would wait for the whole check. Through the timers instead of `call_soon`, because a stop ends the
            # timers before it writes the totals of the access record: a slice after that would evict entries which
            # the totals count as cached.
            self._timers.after(0, self._request_size_check)

    def _run_slice(self, trigger: str, slice_of: Callable[[int, int], bool], now_ns: int) -> bool:
        """Runs and measures one slice; returns True if another one is due at once."""
        began_ns = time.perf_counter_ns()
        more = slice_of(now_ns, VISITS_PER_SLICE)
        self._cache.eviction_stats.slices[trigger].add(time.perf_counter_ns() - began_ns)
        return more
