"""EntryCacheSettings: the settings of the cache, from broker.conf. Values only; the manager applies them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from broker.entry_cache.policies.names import POLICY_NAMES, PROFILE_NAMES


@dataclass(frozen=True, slots=True)
class EntryCacheSettings:
    """Each field names its key; times are in nanoseconds, sizes in bytes."""

    size_bytes_max: int
    """`managedLedgerCacheSizeMB` in bytes. 0 = no cache: nothing is inserted, every read is a miss."""

    watermark: float = 0.9
    """`managedLedgerCacheEvictionWatermark`: the part of the size that a size pass leaves filled, 0 to 1."""

    ttl_ns: int = 1_000_000_000
    """`managedLedgerCacheEvictionTimeThresholdMillis`: how long an entry stays in the cache without a requeue."""

    requeues_max: int = 5
    """`managedLedgerCacheEvictionExtendTTLOfEntriesWithRemainingExpectedReadsMaxTimes`; how often
    expected reads requeue an entry; 0 or less = never. `magnetar` uses it too, for readers that may return."""

    extend_recently_accessed: bool = True
    """`managedLedgerCacheEvictionExtendTTLOfRecentlyAccessed`: `pip430` requeues
    an entry that was read since the last visit, without a limit."""

    copy_entries: bool = False
    """`managedLedgerCacheCopyEntries`: entries are copied out of their receive buffer when they are inserted."""

    policy: str = "pip430"
    """`entryCachePolicy`, one of `POLICY_NAMES`."""

    profile: str = "4.2"
    """The release that the policy `pip430` follows; the other policies ignore it."""

    ttl_max_ns: int = 5_000_000_000
    """`managedLedgerCacheEvictionTimeThresholdMillisMax`: the `ttl_ns` of entries with expected reads,
    for the policy `pip430-stash` alone."""

    topic_quota_bytes: int = 0
    """`entryCacheTopicQuotaMB` in bytes: under the policy `magnetar`, a topic that holds more than this and more than
    an equal share loses its entries first."""

    pinned_ratio_max: float = 1.5
    """`entryCachePinnedRatioMax`: entries are copied out of a receive buffer that is more than so many times as long as
    the entries of it that are inserted together, and later as those that are still cached. 0 = never, except by a size
    pass of `magnetar`."""

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
            raise ValueError(f"no such cache policy: {self.policy}; choose one of {', '.join(POLICY_NAMES)}")
        if self.profile not in PROFILE_NAMES:
            raise ValueError(
                f"no such cache profile: {self.profile}; choose one of {', '.join(PROFILE_NAMES)}"
            )

    def to_text(self) -> str:
        """Returns the values as JSON, as access records keep them."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> EntryCacheSettings:
        """Parses `to_text`. Raises ValueError for another text, or one of another version of the cache."""
        try:
            return cls(**json.loads(text))
        except TypeError as error:
            raise ValueError(f"not the settings of this cache: {error}") from None
