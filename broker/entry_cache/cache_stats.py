"""What the cache counts. Plain integers that only rise; whoever exposes them reads them.

Levels (used bytes, entries, queue length, pinned bytes) are the manager's; what was inserted is what is there
and what has left, so that an insert need not count it.
"""

from __future__ import annotations

import enum
from typing import Final

from broker.entry_cache.pass_stats import PassStats, TimeHistogram

SLICE_BOUNDS_NS: Final = tuple(ms * 1_000_000 for ms in (1, 2, 5, 10, 20, 50, 100))


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


class PendingReadStats:
    """What became of the entries that readers asked of storage. The names are Pulsar's."""

    __slots__ = ("matched", "matched_included", "missed", "not_read", "overlapping", "read")

    def __init__(self) -> None:
        self.read = 0
        """Asked of storage."""
        self.not_read = 0
        """Received from a read that was under way."""
        self.matched = 0
        """Of those, from a read of the same range."""
        self.matched_included = 0
        """From a read of a larger range."""
        self.missed = 0
        self.overlapping = {"left": 0, "right": 0, "both": 0}
        """From a read that lacked something on that side; what it lacked is counted when it is asked for."""


class CacheStats:
    __slots__ = (
        "evicted_bytes",
        "evicted_entries",
        "evicted_expected_bytes",
        "evicted_expected_entries",
        "passes",
        "pending_reads",
        "refused_entries",
        "size_evictions",
        "slices",
    )

    def __init__(self) -> None:
        self.refused_entries = 0
        """Offered for a position that was present already."""
        self.evicted_entries = dict.fromkeys(Reason, 0)
        self.evicted_bytes = dict.fromkeys(Reason, 0)
        self.evicted_expected_entries = dict.fromkeys(Reason, 0)
        """Those that left although expected reads remained."""
        self.evicted_expected_bytes = dict.fromkeys(Reason, 0)
        self.size_evictions = 0
        """Size checks, submitted or periodic, that found something to free."""
        self.pending_reads = PendingReadStats()
        self.passes = {Reason.TTL: PassStats(), Reason.SIZE: PassStats()}
        self.slices = {trigger: TimeHistogram(SLICE_BOUNDS_NS) for trigger in ("periodic", "insert")}
        """How long slices of passes held the loop, by what made them due. The owner, who has the clock, measures."""
