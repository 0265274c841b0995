"""OverReplicatedLedgers: gives up entries that belong to other bookies now.

They are those of closed ledgers whose ensembles do not name this bookie any more.

That happens when other bookies took over while this one was away. BookKeeper does it in
`ScanAndCompareGarbageCollector.removeOverReplicatedledgers`.

The law: each ledger's metadata is read by name twice, the second time under the lock that re-replication takes as well,
and the lock is held until the entries are out of the index. Whatever is in doubt stays. The ledger itself stays known,
with its fence (`ledgers/removals.py`): forgotten, it would take the adds of a writer from before the fence.

Used by the thread of garbage collection alone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from bookie_stub.base.errors import BookieError
from bookie_stub.base.posting import BoundCompletion

if TYPE_CHECKING:
    from bookie_stub.cluster.zookeeper_ledgers import ZooKeeperLedgers

log = logging.getLogger(__name__)

_READ_TOGETHER = 1000
"""Ledgers whose metadata is read at a time."""
_LOCKED_TOGETHER = 100
"""Ledgers whose locks are held at a time."""
_REQUESTS_PER_LOCKED = 3
"""Requests per ledger that is given up: lock, metadata, unlock."""
_CHECKPOINT_WAIT_S = 30.0


class OverReplicatedLedgers:
    """Looks for over-replicated ledgers every `wait_s` and gives up their entries."""

    def __init__(
        self,
        metadata: ZooKeeperLedgers,
        bookie_id: str,
        with_entries: Callable[[], list[int]],
        empty: Callable[[Sequence[int], BoundCompletion], None],
        *,
        wait_s: float,
        rate: float,
        closing: threading.Event,
    ) -> None:
        """`with_entries` returns the ledgers that may have entries here, ascending.

        `empty` gives up the entries of ledgers and calls back when they are out of the index. `wait_s` 0 turns the check
        off; the first one is due `wait_s` after the start. `rate` is the number of metadata requests in a second.
        """
        self._metadata = metadata
        self._bookie_id = bookie_id
        self._with_entries = with_entries
        self._empty = empty
        self._wait_s = wait_s
        self._rate = rate
        self._closing = closing
        self._last_s = time.monotonic()

    def remove_if_due(self) -> None:
        """Looks for over-replicated ledgers if it is time. An error is logged, and the next check tries again."""
        if self._wait_s <= 0 or time.monotonic() - self._last_s < self._wait_s:
            return
        try:
            self._remove()
        except (BookieError, OSError) as error:
            log.warning("over-replicated ledgers stay until the next check in %g s: %s", self._wait_s, error)
        self._last_s = time.monotonic()

    def _remove(self) -> None:
        ledger_ids = self._with_entries()
        found: list[int] = []
        # A rate below 1 a second still reads one.
        together = int(min(self._rate, _READ_TOGETHER)) or 1
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
            # Again under the locks: re-replication may have chosen this bookie since the first check.
            still = self._metadata.elsewhere(locked, self._bookie_id)
            if not still:
                return
            done = threading.Event()
            self._empty(still, done.set)
            until = time.monotonic() + _CHECKPOINT_WAIT_S
            # `done` never comes when the bookie closes, so it must not be waited for without end.
            while not done.wait(0.05) and not self._closing.is_set() and time.monotonic() < until:
                pass
            log.info("the entries of %d over-replicated ledgers are given up", len(still))

    def _pause(self, requests: int) -> bool:
        """Waits as the rate demands; returns True when the bookie stops."""
        return self._closing.wait(requests / self._rate)
