"""CacheSettings: the values that the entry cache and its policies obey."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Self

from entry_cache.policy_names import POLICY_NAMES
from entry_cache.profiles import PROFILES
from foundation.value import Value


def no_such_policy(name: str) -> str:
    """Returns the text of the error for a policy's name that is unknown."""
    return f"no such cache policy: {name}; choose one of {', '.join(POLICY_NAMES)}"


class CacheSettings(Value):
    """Size, policy and times of the cache. The manager applies them; the access record keeps them."""

    size_bytes_max: int
    """Bytes of cached entries. 0 = no cache: nothing is inserted, every read is a miss."""
    watermark: float
    """Share of the size that a size pass leaves filled, 0 to 1."""
    ttl_ns: int
    """Time to live of an entry."""
    requeues_max: int
    """Requeues of an entry with expected reads; 0 or less = none."""
    extend_recently_accessed: bool
    """Requeue an entry that was read since its last time to live began, without a limit."""
    copy_entries: bool
    """Copy a cached entry out of its receive buffer."""
    policy: str
    """Name of the policy that decides which entries stay."""
    profile: str
    """Release whose decisions the policy `pip430` takes; the other policies ignore it."""
    ttl_max_ns: int
    """Time to live of an entry with expected reads, for the policy `pip430-stash`."""
    continue_caching_ns: int
    """Time after which a cursor that left is not expected back; follows the time to live unless it is set.

    A managed ledger brings its own when it is opened. This one holds for open ones after a change.
    """
    topic_quota_bytes: int
    """Bytes of a topic above which its entries are evicted first, if that is more than an equal share.

    For the policy `magnetar`.
    """
    pinned_ratio_max: float
    """Length of a receive buffer in lengths of its cached entries, above which these are copied out of it.

    The cache checks it for entries that are inserted together, and later for those that are still cached. 0 = never,
    unless a strict policy needs the space.
    """
    charges_overhead: bool = False
    """Count the objects of an entry, `ENTRY_OVERHEAD_BYTES`, against the size. Stays as it is while the cache lives."""

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
            raise ValueError(no_such_policy(self.policy))
        if self.profile not in PROFILES:
            raise ValueError(f"no such cache profile: {self.profile}; choose one of {', '.join(PROFILES)}")

    def to_text(self) -> str:
        """Formats the settings for an access record."""
        values = asdict(self)
        # Left out while it is off, so that earlier versions read the record.
        if not self.charges_overhead:
            del values["charges_overhead"]
        return json.dumps(values)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Reads the text of `to_text`. Raises ValueError for another text or another version's fields."""
        try:
            values = dict(json.loads(text))
            # The first records lack this field: their brokers waited for twice the time to live, unless told otherwise.
            return cls(**{"continue_caching_ns": 2 * values.get("ttl_ns", 0), **values})
        except TypeError as error:
            raise ValueError(f"not the settings of this cache: {error}") from None
