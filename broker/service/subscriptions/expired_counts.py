"""ExpiredCounts: the counts of a subscription's expired messages."""

from __future__ import annotations

from typing import Final, NamedTuple


class ExpiredCounts(NamedTuple):
    """Counts entries that expired. Each expiry makes new ones: most subscriptions have none, and share NONE_EXPIRED."""

    total: int = 0
    """Entries that expired since the topic was opened."""
    last_ms: int = 0
    """Wall clock of the last expiry, ms since 1970; 0 = none yet."""
    running: bool = False
    """True while an expiry that an administrator asked for searches for its end; a second request is refused."""

    def counted(self, entries: int, now_ms: int) -> ExpiredCounts:
        """Returns the counts after one more expiry."""
        return self._replace(total=self.total + entries, last_ms=now_ms)


NONE_EXPIRED: Final = ExpiredCounts()
"""Of a subscription without an expired entry."""
