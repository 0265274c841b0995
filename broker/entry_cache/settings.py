"""EntryCacheSettings: what broker.conf says about the cache. Values only; the manager applies them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from broker.entry_cache.policies.names import POLICY_NAMES, PROFILE_NAMES


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

    policy: str = "pip430"
    """`entryCachePolicy`."""

    profile: str = "4.2"
    """The release whose decisions the policy `pip430` takes; for the others it has no meaning."""

    ttl_max_ns: int = 5_000_000_000
    """`managedLedgerCacheEvictionTimeThresholdMillisMax`: as `ttl_ns` for entries with expected reads, for the
    policy `pip430-stash`."""

    topic_quota_bytes: int = 0
    """`entryCacheTopicQuotaMB` in bytes: what a topic may hold before its entries go first, if that is more than
    an equal share; for the policy `magnetar`."""

    pinned_ratio_max: float = 1.5
    """`entryCachePinnedRatioMax`: entries are copied out of a receive buffer that is more than so many times as long as
    those of them that are inserted together, and later as those of them that are still cached. 0 = never, unless a
    strict policy wants room."""

    def __post_init__(self) -> None:
        if self.size_bytes_max < 0:
            raise ValueError(f"cache size is negative: {self.size_bytes_max}")
        if not 0.0 <= self.watermark <= 1.0:
            raise ValueError(f"cache watermark is not between 0 and 1: {self.watermark}")
        if self.ttl_ns < 0:
            raise ValueError(f"cache time threshold is negative: {self.ttl_ns}")
        if self.ttl_max_ns < 0:
            raise ValueError(f"longer cache time threshold is negative: {self.ttl_max_ns}")
        if self.topic_quota_bytes < 0:
            raise ValueError(f"cache quota of a topic is negative: {self.topic_quota_bytes}")
        if self.policy not in POLICY_NAMES:
            raise ValueError(f"no such cache policy: {self.policy}; there are {', '.join(POLICY_NAMES)}")
        if self.profile not in PROFILE_NAMES:
            raise ValueError(f"no such cache profile: {self.profile}; there are {', '.join(PROFILE_NAMES)}")

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> EntryCacheSettings:
        """Of `to_text`. ValueError where it is not that, or of another version of the cache."""
        try:
            return cls(**json.loads(text))
        except TypeError as error:
            raise ValueError(f"not the settings of this cache: {error}") from None
