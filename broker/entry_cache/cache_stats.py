"""What the cache counts. Plain integers that only rise; whoever exposes them reads them.

Levels (used bytes, entries, queue length, pinned bytes) are the manager's; what was inserted is what is there
and what has left, so that an insert need not count it.
"""

from __future__ import annotations

import enum


class Reason(enum.Enum):
    """Why entries left the cache."""

    TTL = "ttl"
    SIZE = "size"
    LEDGER = "ledger"
    """Their ledger was invalidated: deleted, or its storage gave an error."""
    INVALIDATE = "invalidate"
    """They stood before a position that no reader needs, or the topic was closed."""


class ReadStats:
    """Reads through one cache. An entry is a hit, a miss or coalesced, never two of them."""

    __slots__ = (
        "coalesced_bytes",
        "coalesced_entries",
        "hit_bytes",
        "hit_entries",
        "miss_bytes",
        "miss_entries",
    )

    def __init__(self) -> None:
        self.hit_entries = 0
        self.hit_bytes = 0
        self.miss_entries = 0
        """Read from storage."""
        self.miss_bytes = 0
        self.coalesced_entries = 0
        """Received from a storage read that another reader had started."""
        self.coalesced_bytes = 0

    def add(self, other: ReadStats) -> None:
        self.hit_entries += other.hit_entries
        self.hit_bytes += other.hit_bytes
        self.miss_entries += other.miss_entries
        self.miss_bytes += other.miss_bytes
        self.coalesced_entries += other.coalesced_entries
        self.coalesced_bytes += other.coalesced_bytes


class CacheStats:
    __slots__ = (
        "evicted_bytes",
        "evicted_entries",
        "evicted_wanted_entries",
        "refused_entries",
        "size_evictions",
    )

    def __init__(self) -> None:
        self.refused_entries = 0
        """Offered for a position that was present already."""
        self.evicted_entries = dict.fromkeys(Reason, 0)
        self.evicted_bytes = dict.fromkeys(Reason, 0)
        self.evicted_wanted_entries = dict.fromkeys(Reason, 0)
        """Those that left although expected reads remained."""
        self.size_evictions = 0
        """Size checks, submitted or periodic, that found something to free."""
