"""EntryCacheSettings: the keys of broker.conf that the entry cache and its policies obey."""

from __future__ import annotations

from broker.config.fields import broker_key
from entry_cache.settings import CacheSettings
from foundation.settings.fields import RoomSettings
from foundation.settings.settings import Settings


def _profile(settings: Settings) -> str:
    # PIP-430 came with 4.1, whose rules are those of 4.2; profile 4.0 switches it off by cacheEvictionByExpectedReadCount.
    return "5.0" if settings.profile == "5.0" else "4.2"


class EntryCacheSettings(RoomSettings, CacheSettings):
    """`CacheSettings` from the keys of broker.conf."""

    size_bytes_max: int = broker_key.int("managedLedgerCacheSizeMB", "bytes")
    watermark: float = broker_key.float("managedLedgerCacheEvictionWatermark")
    ttl_ns: int = broker_key.int("managedLedgerCacheEvictionTimeThresholdMillis", "ns")
    requeues_max: int = broker_key.int(
        "managedLedgerCacheEvictionExtendTTLOfEntriesWithRemainingExpectedReadsMaxTimes"
    )
    extend_recently_accessed: bool = broker_key.bool("managedLedgerCacheEvictionExtendTTLOfRecentlyAccessed")
    copy_entries: bool = broker_key.bool("managedLedgerCacheCopyEntries")
    policy: str = broker_key.str("entryCachePolicy")
    profile: str = broker_key.rule(_profile)
    ttl_max_ns: int = broker_key.int("managedLedgerCacheEvictionTimeThresholdMillisMax", "ns")
    continue_caching_ns: int = broker_key.int(
        "managedLedgerContinueCachingAddedEntriesAfterLastActiveCursorLeavesMillis", "ns"
    )
    topic_quota_bytes: int = broker_key.int("entryCacheTopicQuotaMB", "bytes")
    pinned_ratio_max: float = broker_key.float("entryCachePinnedRatioMax")
    charges_overhead: bool = broker_key.bool("managedLedgerCacheChargesOverhead")

    def __post_init__(self) -> None:
        CacheSettings.__post_init__(self)
