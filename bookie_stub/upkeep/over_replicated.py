"""Over-replicated ledgers: closed, here, and named by no ensemble of theirs any more, because other bookies took over.

Their entries are given up here. Law of the place: each ledger's metadata is read by name twice, the second time under
the lock that re-replication takes as well, which is held until the entries are out of the index; whatever is in doubt
stays. A ledger goes on being known, with its fence (`removals`). Used by the garbage collection's thread alone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from bookie_stub.base.errors import BookieError
from bookie_stub.base.posting import Answer
from bookie_stub.cluster.cluster_ledgers import ClusterLedgers

log = logging.getLogger(__name__)

_TOGETHER = 1000
"""Ledgers whose metadata is read at a time."""
_LOCKED_TOGETHER = 100
_REQUESTS_PER_LOCKED = 3
_CHECKPOINT_WAIT_S = 30.0


class OverReplicated:
    def __init__(
        self,
        metadata: ClusterLedgers,
        bookie_id: str,
        with_entries: Callable[[], list[int]],
        empty: Callable[[Sequence[int], Answer], None],
        *,
        wait_s: float,
        rate: float,
        closing: threading.Event,
    ) -> None:
        """`with_entries`: the ledgers that may have entries here, ascending. `empty` gives their entries up and calls
        back when they are out of the index. `wait_s` between two looks, 0 for none; `rate`: metadata requests in a
        second."""
        self._metadata = metadata
        self._bookie_id = bookie_id
        self._with_entries = with_entries
        self._empty = empty
        self._wait_s = wait_s
        self._rate = rate
        self._closing = closing
        self._last_s = time.monotonic()

    def look_if_due(self) -> None:
        if self._wait_s <= 0 or time.monotonic() - self._last_s < self._wait_s:
            return
        try:
            self._look()
        except (BookieError, OSError) as error:
            log.warning("over-replicated ledgers are looked for another time: %s", error)
        self._last_s = time.monotonic()

    def _look(self) -> None:
        ledger_ids = self._with_entries()
        found: list[int] = []
        together = int(min(self._rate, _TOGETHER)) or 1
        for start in range(0, len(ledger_ids), together):
            some = ledger_ids[start : start + together]
            found += self._metadata.elsewhere(some, self._bookie_id)
            if self._pause(len(some)):
                return
        if found:
            log.info("%d of %d ledgers are not at home here any more", len(found), len(ledger_ids))
        for start in range(0, len(found), _LOCKED_TOGETHER):
            some = found[start : start + _LOCKED_TOGETHER]
            self._give_up(some)
            if self._pause(_REQUESTS_PER_LOCKED * len(some)):
                return

    def _give_up(self, ledger_ids: Sequence[int]) -> None:
        with ExitStack() as locks:
            locked = [
                ledger_id
                for ledger_id in ledger_ids
                if locks.enter_context(self._metadata.replication_lock(ledger_id, self._bookie_id))
            ]
            still = self._metadata.elsewhere(locked, self._bookie_id)
            if not still:
                return
            done = threading.Event()
            self._empty(still, done.set)
            until = time.monotonic() + _CHECKPOINT_WAIT_S
            while not done.wait(0.05) and not self._closing.is_set() and time.monotonic() < until:
                pass
            log.info("the entries of %d over-replicated ledgers are given up", len(still))

    def _pause(self, requests: int) -> bool:
        """Keeps under the rate. Whether the bookie stops."""
        return self._closing.wait(requests / self._rate)
