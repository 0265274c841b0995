"""QuotaEvictions, ExpiredCounts: messages that quotas and lifetimes have taken, for administrators who look for them."""

from __future__ import annotations

from collections import Counter, deque
from typing import Final, NamedTuple

from foundation.model.position import Position

KEPT: Final = 100
"""Evictions of one topic that are kept in memory; older ones are in the log alone."""


class QuotaEviction(NamedTuple):
    """Messages that a quota has taken from one subscription."""

    at_ms: int
    """Wall clock, ms since 1970."""
    subscription: str
    """Its name."""
    kind: str
    """Type of the quota: `destination_storage` or `message_age`."""
    limit: int
    """The quota, in bytes or seconds."""
    after: Position
    """The mark-delete position before; the first entry taken is the next one."""
    through: Position
    """The last entry taken."""
    entries: int
    """Entries that were unacknowledged until then."""


class QuotaEvictions:
    """Counts entries by the type of the quota, and keeps the newest evictions."""

    __slots__ = ("entries", "newest", "times")

    def __init__(self) -> None:
        self.times: Counter[str] = Counter()
        """Evictions since the topic was opened, by type of the quota."""
        self.entries: Counter[str] = Counter()
        """Entries that they took."""
        self.newest: deque[QuotaEviction] = deque(maxlen=KEPT)
        """In order of time."""

    def add(self, one: QuotaEviction) -> None:
        """Notes an eviction."""
        self.times[one.kind] += 1
        self.entries[one.kind] += one.entries
        self.newest.append(one)


NO_EVICTIONS: Final = QuotaEvictions()
"""Of every topic from which nothing was evicted, which is nearly every one. Nothing is ever added."""


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
