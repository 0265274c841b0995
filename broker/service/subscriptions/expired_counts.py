"""ExpiredCounts: the counters of a subscription's expired messages."""

from __future__ import annotations

from typing import Final


class ExpiredCounts:
    """Counts entries that expired; kept by each subscription."""

    __slots__ = ("last_ms", "running", "total")

    def __init__(self) -> None:
        self.total = 0
        """Entries that expired since the topic was opened."""
        self.last_ms = 0
        """Wall clock of the last expiry, ms since 1970; 0 = none yet."""
        self.running = False
        """True while an expiry that an administrator asked for searches for its end; a second request is refused."""

    def count(self, entries: int, now_ms: int) -> None:
        """Counts one expiry."""
        self.total += entries
        self.last_ms = now_ms


NONE_EXPIRED: Final = ExpiredCounts()
"""Of every subscription without an expired entry. Nothing is ever counted here."""
