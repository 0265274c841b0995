"""ReadCacheWatch: tells when the read cache thrashes, and which setting would end it. Pure.

A cache thrashes when it evicts entries that were read ahead before a reader has come for them: they are read from disk
again, with all their neighbours. The demand is the number of ledgers that are read, times the bytes of a load. A cache
below its demand loses nearly all of it at once when its readers are equally fast, so half of it lost is far beyond chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bookie_stub.disk.read_cache import ALIGNMENT_BYTES
from foundation.units import MIB

WINDOW_NS: Final = 60_000_000_000
"""Time over which loads and evictions are compared."""
REMINDER_NS: Final = 3_600_000_000_000
"""Time between two recommendations in the log."""
SHARE_MAX: Final = 0.5
"""Share of entries evicted unused above which the cache thrashes."""
ENTRIES_MIN: Final = 1000
"""Entries read ahead in a window below which its share says nothing."""
_SPARE: Final = 1.25
"""A ring drops half of itself at once, so it needs more than the demand."""
_PADDING: Final = ALIGNMENT_BYTES // 2
"""Mean bytes that rounding adds to an entry; exact ones would cost a call for each."""


class ReadCacheWatch:
    """The share of entries evicted before their first use, window by window."""

    def __init__(self, policy: str, bytes_max: int, readahead_entries: int) -> None:
        """The values of `readCachePolicy`, `dbStorage_readAheadCacheMaxSizeMb` in bytes and
        `dbStorage_readAheadCacheBatchSize`."""
        self._policy = policy
        self._bytes_max = bytes_max
        self._readahead_entries = readahead_entries
        self._window_began_ns = 0
        self._evicted_before = 0
        self._ledgers: set[int] = set()
        self._loads = self._entries = self._bytes = 0
        self._share = 0.0
        self._said_ns: int | None = None

    def share(self, now_ns: int) -> float:
        """Returns the share of the last full window, 0 to 1; 0 when no window has ended for twice its length."""
        # Windows end with loads alone, so the last share of a bookie that is not read any more would stay for ever.
        return 0.0 if now_ns - self._window_began_ns > 2 * WINDOW_NS else self._share

    def loaded(self, ledger_id: int, entries: Sequence[bytes], evicted_unserved: int, now_ns: int) -> str:
        """Counts a load; returns a recommendation for the log, empty when there is none to make.

        `entries` begin with the one that the load was for. `evicted_unserved` is the cache's count since the start.
        """
        advice = ""
        if now_ns - self._window_began_ns >= WINDOW_NS:
            advice = self._end_window(evicted_unserved, now_ns)
        self._ledgers.add(ledger_id)
        self._loads += 1
        self._entries += len(entries) - 1
        self._bytes += sum(map(len, entries)) + _PADDING * len(entries)
        return advice

    def _end_window(self, evicted_unserved: int, now_ns: int) -> str:
        evicted = evicted_unserved - self._evicted_before
        enough = self._entries >= ENTRIES_MIN
        # Above 1 when entries of the window before are evicted too.
        self._share = min(evicted / self._entries, 1.0) if enough else 0.0
        advice = ""
        if self._share > SHARE_MAX and (self._said_ns is None or now_ns - self._said_ns >= REMINDER_NS):
            self._said_ns = now_ns
            advice = self._advice(evicted)
        self._evicted_before = evicted_unserved
        self._window_began_ns = now_ns
        self._ledgers.clear()
        self._loads = self._entries = self._bytes = 0
        return advice

    def _advice(self, evicted: int) -> str:
        demand = len(self._ledgers) * self._bytes / self._loads * _SPARE
        size_mib = -(-int(demand) // MIB)
        readahead = max(
            1, min(int(self._readahead_entries * self._bytes_max / demand), self._readahead_entries - 1)
        )
        policy = "" if self._policy == "served-first" else " or readCachePolicy=served-first,"
        return (
            f"the read cache thrashes: {evicted} of {self._entries} entries that were read ahead were evicted before"
            f" their first use, while {len(self._ledgers)} ledgers were read; set"
            f" dbStorage_readAheadCacheMaxSizeMb={size_mib},{policy}"
            f" or dbStorage_readAheadCacheBatchSize={readahead}"
        )
