"""CacheStats: the counts of the cache, as plain integers that only rise.

Levels (used bytes, entries, queue length) are the manager's. The number of inserted entries is not counted at the
insert: it is the number of cached entries and of evicted ones.
"""

from __future__ import annotations

import enum
from typing import Final


class Reason(enum.Enum):
    """Why entries were removed from the cache; the values are labels of metrics."""

    TTL = "ttl"
    """A time pass found them too old."""
    SIZE = "size"
    """A size pass needed their bytes."""
    LEDGER = "ledger"
    """Their ledger was invalidated: it was deleted, or could not be read."""
    INVALIDATE = "invalidate"
    """The entries stood before a position that no reader needs, or the topic was closed."""


class ReadStats:
    """Reads through one cache, or of one cursor. Each entry read is a hit, a miss or coalesced."""

    __slots__ = (
        "coalesced_bytes",
        "coalesced_entries",
        "hit_bytes",
        "hit_entries",
        "miss_bytes",
        "miss_entries",
    )

    def __init__(self) -> None:
        """Begins at zero."""
        self.hit_entries = 0
        """Entries read from the cache."""
        self.hit_bytes = 0
        """The bytes of these."""
        self.miss_entries = 0
        """Entries read from storage."""
        self.miss_bytes = 0
        """The bytes of these."""
        self.coalesced_entries = 0
        """Entries received from a storage read that another reader had started."""
        self.coalesced_bytes = 0
        """The bytes of these."""

    @property
    def entries(self) -> int:
        """All entries read."""
        return self.hit_entries + self.miss_entries + self.coalesced_entries

    @property
    def hit_ratio(self) -> float | None:
        """Hits divided by all entries read; None before the first one."""
        read = self.entries
        return self.hit_entries / read if read else None

    def count_hits(self, entries: int, size_bytes: int) -> None:
        """Counts entries that were read from the cache."""
        self.hit_entries += entries
        self.hit_bytes += size_bytes

    def count_arrived(self, coalesced: bool, entries: int, size_bytes: int) -> None:
        """Counts entries that came from storage, `coalesced` if another reader had asked for them."""
        if coalesced:
            self.coalesced_entries += entries
            self.coalesced_bytes += size_bytes
        else:
            self.miss_entries += entries
            self.miss_bytes += size_bytes

    def add(self, other: ReadStats) -> None:
        """Adds the counts of another object to these."""
        self.hit_entries += other.hit_entries
        self.hit_bytes += other.hit_bytes
        self.miss_entries += other.miss_entries
        self.miss_bytes += other.miss_bytes
        self.coalesced_entries += other.coalesced_entries
        self.coalesced_bytes += other.coalesced_bytes

    def without(self, part: ReadStats) -> ReadStats:
        """Returns these counts without those of a part of the reads."""
        rest = ReadStats()
        for name in self.__slots__:
            setattr(rest, name, getattr(self, name) - getattr(part, name))
        return rest


NO_READS: Final = ReadStats()
"""Of every cache and cursor through which nothing was read yet. Nothing is ever counted here."""


class PendingReadStats:
    """Counts of the entries that readers asked of storage, under Pulsar's names."""

    __slots__ = ("matched", "matched_included", "missed", "not_read", "overlapping", "read")

    def __init__(self) -> None:
        """Begins at zero."""
        self.read = 0
        """Entries asked of storage."""
        self.not_read = 0
        """Entries received from a read that was running."""
        self.matched = 0
        """Of these, entries from a read of the same range."""
        self.matched_included = 0
        """Of these, entries from a read of a larger range."""
        self.missed = 0
        """Entries that no running read covered."""
        self.overlapping = {"left": 0, "right": 0, "both": 0}
        """Entries from a read that lacked some on this side; the lacking ones are counted when they are asked for."""


class CacheStats:
    """Counts of the whole cache since the start."""

    __slots__ = (
        "evicted_bytes",
        "evicted_entries",
        "from_storage_entries",
        "pending_reads",
        "refused_entries",
        "size_evictions",
    )

    def __init__(self) -> None:
        """Begins at zero."""
        self.refused_entries = 0
        """Entries offered for a position that was present already."""
        self.from_storage_entries = 0
        """Entries inserted after a storage read; all others were inserted when they were published."""
        self.evicted_entries = dict.fromkeys(Reason, 0)
        """Removed entries by reason."""
        self.evicted_bytes = dict.fromkeys(Reason, 0)
        """Their bytes by reason."""
        self.size_evictions = 0
        """Size checks, asked for by inserts or periodic, that found bytes to free."""
        self.pending_reads = PendingReadStats()
        """Coalesced storage reads; the managed ledgers count them."""
