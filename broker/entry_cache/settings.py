"""EntryCacheSettings: what broker.conf says about the cache. Values only; the manager applies them."""

from __future__ import annotations

from dataclasses import dataclass

from broker.entry_cache.profile import PROFILE_4_2, Profile


@dataclass(frozen=True, slots=True)
class EntryCacheSettings:
    size_bytes_max: int
    """`managedLedgerCacheSizeMB` in bytes. 0 = no cache: nothing is inserted, every read is a miss."""

    watermark: float = 0.9
    """`managedLedgerCacheEvictionWatermark`: the part of the size that a size pass leaves filled, 0 to 1."""

    ttl_ns: int = 1_000_000_000
    """`managedLedgerCacheEvictionTimeThresholdMillis`: how long an entry stays without another look."""

    requeues_max: int = 5
    """`managedLedgerCacheEvictionExtendTTLOfEntriesWithRemainingExpectedReadsMaxTimes`; 0 or less = never."""

    extend_recently_accessed: bool = True
    """`managedLedgerCacheEvictionExtendTTLOfRecentlyAccessed`: as often as it is read, without a limit."""

    copy_entries: bool = False
    """`managedLedgerCacheCopyEntries`: a cached entry leaves the receive buffer that it came in."""

    profile: Profile = PROFILE_4_2

    def __post_init__(self) -> None:
        if self.size_bytes_max < 0:
            raise ValueError(f"cache size is negative: {self.size_bytes_max}")
        if not 0.0 <= self.watermark <= 1.0:
            raise ValueError(f"cache watermark is not between 0 and 1: {self.watermark}")
        if self.ttl_ns < 0:
            raise ValueError(f"cache time threshold is negative: {self.ttl_ns}")
