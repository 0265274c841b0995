"""LedgerLogs: which managed ledger a ledger belongs to, for events that name entries alone."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from entry_cache.range_cache import CachedLog

CLOSED_LEDGERS_MAX: Final = 65_536
"""Ledgers without cached entries whose logs are still known."""


class LedgerLogs:
    """A listener that knows the log of each ledger: ids are unique in a broker."""

    def __init__(self) -> None:
        """Begins without ledgers."""
        self._open: dict[int, str] = {}
        """By ledger that caches hold entries of, the name of its log."""
        self._closed: OrderedDict[int, str] = OrderedDict()
        """The same of ledgers without cached entries; the newest `CLOSED_LEDGERS_MAX` of them."""

    def ledger_changed(self, cache: CachedLog, ledger_id: int, *, opened: bool) -> None:
        """Keeps the log's name for a while after the end: entries that were read before may still be delivered."""
        if opened:
            self._closed.pop(ledger_id, None)
            self._open[ledger_id] = cache.name
            return
        log = self._open.pop(ledger_id, None)
        if log is not None:
            self._keep_closed(ledger_id, log)

    def seen(self, ledger_id: int, log: str) -> None:
        """Notes the log of a ledger that may never get cached entries."""
        # A read from storage that does not fill the cache still has events, which must name the log.
        if ledger_id not in self._open and ledger_id not in self._closed:
            self._keep_closed(ledger_id, log)

    def _keep_closed(self, ledger_id: int, log: str) -> None:
        self._closed[ledger_id] = log
        if len(self._closed) > CLOSED_LEDGERS_MAX:
            # The oldest first. Ledgers come and go for the life of the broker, so some must be forgotten.
            self._closed.popitem(last=False)

    def of(self, ledger_id: int) -> str:
        """Returns the name of the log; empty if it is not known any more."""
        return self._open.get(ledger_id) or self._closed.get(ledger_id, "")
