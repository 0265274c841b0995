"""The hit ratio by day: finds drops, and names the changes that come with them.

Pure functions. The share of a topic in a drop is exact: shares of all topics add up to the drop.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

from pipeline.jobs.report import bytes_text, percent

BEFORE_DAYS: Final = 7
"""Days with reads that a day is compared with."""
_CAUSES: Final = 5
"""Topics that the text of a drop names."""
_LEAST: Final = 0.05
"""Part of a drop below which a reader is not named."""
_KEYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "size_bytes_max": "managedLedgerCacheSizeMB",
        "watermark": "managedLedgerCacheEvictionWatermark",
        "ttl_ns": "managedLedgerCacheEvictionTimeThresholdMillis",
        "requeues_max": "managedLedgerCacheEvictionExtendTTLOfEntriesWithRemainingExpectedReadsMaxTimes",
        "extend_recently_accessed": "managedLedgerCacheEvictionExtendTTLOfRecentlyAccessed",
        "copy_entries": "managedLedgerCacheCopyEntries",
        "policy": "entryCachePolicy",
        "profile": "pulsarDefaults",
        "ttl_max_ns": "managedLedgerCacheEvictionTimeThresholdMillisMax",
        "topic_quota_bytes": "entryCacheTopicQuotaMB",
        "pinned_ratio_max": "entryCachePinnedRatioMax",
        "charges_overhead": "managedLedgerCacheChargesOverhead",
    }
)
"""Keys of broker.conf by the fields of `CacheSettings`."""


class DayCounts(NamedTuple):
    """Entries read."""

    hits: int = 0
    """From the cache."""
    misses: int = 0
    """From bookies."""
    coalesced: int = 0
    """With another reader's read from a bookie."""

    @property
    def reads(self) -> int:
        """All of them."""
        return self.hits + self.misses + self.coalesced

    @property
    def hit_ratio(self) -> float:
        """Hits among reads; 0 without reads."""
        return self.hits / self.reads if self.reads else 0.0

    def plus(self, other: DayCounts) -> DayCounts:
        """Returns the sums."""
        return DayCounts(*map(sum, zip(self, other, strict=True)))


Reader = tuple[str, str]
"""Topic and subscription."""


@dataclass(frozen=True, slots=True)
class Drop:
    """A day whose hit ratio is below that of the days before."""

    day: str
    """UTC."""
    before: float
    """The hit ratio of all reads of the days before."""
    now: float
    """The hit ratio of the day."""
    causes: tuple[str, ...]
    """Changes that came with it, a line each: settings first, then the readers with the largest shares."""

    @property
    def depth(self) -> float:
        """The lost hit ratio."""
        return self.before - self.now


def days_before(days: Sequence[str], day: str) -> list[str]:
    """Returns the days with reads that a day is compared with."""
    return [one for one in days if one < day][-BEFORE_DAYS:]


def is_drop(by_day: Mapping[str, DayCounts], day: str, threshold: float) -> bool:
    """Returns True if the day's hit ratio lies more than `threshold` below that of the days before."""
    before = summed(by_day[one] for one in days_before(sorted(by_day), day))
    return before.reads > 0 and before.hit_ratio - by_day[day].hit_ratio > threshold


def summed(counts: Iterable[DayCounts]) -> DayCounts:
    """Returns the sums of counts."""
    total = DayCounts()
    for one in counts:
        total = total.plus(one)
    return total


def shares_of_drop(
    before: Mapping[Reader, DayCounts], now: Mapping[Reader, DayCounts]
) -> dict[Reader, float]:
    """Returns the part of each reader in a drop of the hit ratio, largest first; all add up to the drop.

    A reader counts by its part of the reads and the distance of its hit ratio from the old one of all readers: it
    lowers the ratio when it reads more with a worse ratio than before.
    """
    old, new = summed(before.values()), summed(now.values())
    parts = {}
    for reader in before.keys() | now.keys():
        was, one = before.get(reader, DayCounts()), now.get(reader, DayCounts())
        lost = (one.reads * old.hit_ratio - one.hits) / max(new.reads, 1)
        parts[reader] = lost - (was.reads * old.hit_ratio - was.hits) / max(old.reads, 1)
    return dict(sorted(parts.items(), key=lambda item: (-item[1], item[0])))


def causes_of_drop(
    before: Mapping[Reader, DayCounts], now: Mapping[Reader, DayCounts], settings: Sequence[str]
) -> tuple[str, ...]:
    """Returns the changes that came with a drop, a line each."""
    topics_before = {topic for topic, _ in before}
    lines = list(settings)
    parts = shares_of_drop(before, now)
    shares = [item for item in parts.items() if item[1] > _LEAST * sum(parts.values())]
    for (topic, subscription), part in shares[:_CAUSES]:
        was, one = before.get((topic, subscription)), now.get((topic, subscription))
        if one is None:
            change = "is gone, and it hit often"
        elif topic not in topics_before:
            change = f"is new, as is its topic: {one.reads:,} reads, hit ratio {percent(one.hit_ratio)}"
        elif was is None:
            change = f"is new: {one.reads:,} reads, hit ratio {percent(one.hit_ratio)}"
        else:
            change = f"hit ratio {percent(was.hit_ratio)} -> {percent(one.hit_ratio)}, {one.reads:,} reads"
        lines.append(f"{subscription} of {topic} {change}: {100 * part:.2f} points of the drop")
    return tuple(lines)


def changed_settings(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Returns a line per broker and setting that differs; both map brokers to `CacheSettings.to_text`."""
    lines = []
    for broker in sorted(before.keys() & now.keys()):
        was, one = json.loads(before[broker]), json.loads(now[broker])
        lines += [
            f"setting of {broker}: {_KEYS.get(name, name)} {_value(name, was.get(name))} -> {_value(name, one.get(name))}"
            for name in one
            if was.get(name) != one.get(name)
        ]
    return lines + [f"broker {broker} is new" for broker in sorted(now.keys() - before.keys())]


def _value(name: str, value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        if "bytes" in name:
            return bytes_text(value)
        if name.endswith("_ns"):
            return f"{value / 1e6:g} ms"
    return str(value).lower() if isinstance(value, bool) else str(value)
