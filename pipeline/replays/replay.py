"""Replays Accesses under given settings by machine code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from entry_cache.eviction import TRIGGER
from entry_cache.policy_names import FIFO_TTL, PIP430
from entry_cache.profiles import BEFORE_PIP_430, PROFILES, CountsOf50, Profile
from entry_cache.settings import CacheSettings
from entry_cache.size_bound import ENTRY_OVERHEAD_BYTES
from pipeline.replays import counters as c
from pipeline.replays.accesses import Accesses, AccessRows
from pipeline.replays.cache_arrays import ENTRY, CacheArrays
from pipeline.replays.kernel import replay_rows

_SLOTS_MIN = 1 << 16
BY_KERNEL = (PIP430, FIFO_TTL)
"""Policies with machine code; the broker's own objects replay the others."""

_BYTES_OF = {
    c.HIT_BYTES: c.HITS,
    c.MISS_BYTES: c.MISSES,
    c.COALESCED_BYTES: c.COALESCED,
    c.INSERTED_BYTES: c.INSERTED,
    c.USED_BYTES: c.ENTRIES,
}
"""Counters of bytes, and of the entries that they belong to."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The counters of a replayed cache."""

    totals: Mapping[str, int]
    """By the names of `entry_cache.observe.totals`."""
    peak_bytes: int
    """The largest use of the cache, as it is charged."""
    new_misses: int
    """Misses of entries that the recorded cache had."""

    @property
    def reads(self) -> int:
        """Entries read."""
        return self.totals["hits"] + self.totals["misses"] + self.totals["coalesced"]

    @property
    def hit_ratio(self) -> float:
        """Hits among entries read; 0 without reads."""
        return self.totals["hits"] / self.reads if self.reads else 0.0

    @property
    def storage_reads(self) -> int:
        """Entries read from bookies."""
        return self.totals["misses"]


def replay_as_recorded(accesses: Accesses) -> Outcome:
    """Replays with the recorded settings, passes and storage reads.

    A complete access record gives exactly the broker's own counters.
    """
    own = [CacheSettings.from_text(text) for text in accesses.settings]
    return _replay(accesses, own, as_recorded=True)


def replay_with(accesses: Accesses, settings: CacheSettings) -> Outcome:
    """Replays with other settings. Readers read at the recorded times, and a missed entry arrives at once."""
    return _replay(accesses, [scaled(settings, accesses)], as_recorded=False)


def scaled(settings: CacheSettings, accesses: Accesses) -> CacheSettings:
    """Returns settings with the sample's share of the size. Its hit ratio is about that of all entries."""
    if accesses.rate >= 1:
        return settings
    return replace(settings, size_bytes_max=round(settings.size_bytes_max * accesses.bytes_rate))


def _replay(accesses: Accesses, settings: Sequence[CacheSettings], *, as_recorded: bool) -> Outcome:
    cache = _new_cache(accesses, settings[0])
    values = np.array([_setting_values(one) for one in settings], np.int64)
    rows = AccessRows(*map(np.ascontiguousarray, accesses.rows))
    done = 0
    # The machine code allocates nothing; it returns when the ring is full.
    while (done := replay_rows(rows, done, cache, values, as_recorded)) < len(rows.op):
        used = cache.s[c.TAIL] - cache.s[c.HEAD]
        cache = cache.with_slots(int(used + rows.entries[done]))
    s = cache.s.tolist()
    for place, entries in _BYTES_OF.items():
        s[place] -= s[entries] * _overhead_bytes(settings[0])
    totals = {name: s[place] for name, place in c.TOTALS.items()}
    return Outcome(totals, s[c.PEAK_BYTES], s[c.NEW_MISSES])


def _overhead_bytes(settings: CacheSettings) -> int:
    """Returns what the size of an entry has on top of its bytes, so that the machine code charges it."""
    return ENTRY_OVERHEAD_BYTES if settings.charges_overhead else 0


def _profile_of(settings: CacheSettings) -> Profile:
    """Returns the decisions of the policy. ValueError for a policy without machine code."""
    if settings.policy not in BY_KERNEL:
        raise ValueError(f"the policy {settings.policy} has no machine code: replay it with replay_objects")
    return BEFORE_PIP_430 if settings.policy == FIFO_TTL else PROFILES[settings.profile]


def _setting_values(settings: CacheSettings) -> list[int]:
    """Returns the settings in the order of the counters from ENABLED on."""
    protects = _profile_of(settings).protects
    return [
        settings.size_bytes_max > 0,
        int(settings.size_bytes_max * TRIGGER),
        int(settings.size_bytes_max * settings.watermark),
        settings.ttl_ns,
        settings.requeues_max if protects else 0,
        protects and settings.extend_recently_accessed,
    ]


def _new_cache(accesses: Accesses, settings: CacheSettings) -> CacheArrays:
    profile = _profile_of(settings)
    s: NDArray[np.int64] = np.zeros(c.LENGTH, np.int64)
    s[c.TICK_NS] = accesses.tick_ns
    as_5_0 = isinstance(profile.counts, CountsOf50)
    s[c.COUNTS_FROM] = 0 if as_5_0 else 1
    s[c.RENEWS] = as_5_0
    s[c.ONE_PROTECTED_PASS] = profile.protects_once
    s[c.STOPS_AT_ZERO] = as_5_0
    entries = np.zeros(accesses.entries, ENTRY)
    entries["size"] = accesses.sizes + _overhead_bytes(settings)
    # The highest number: nothing is cached yet, so the first invalidation of a ledger has nothing to visit.
    low = np.full(max(len(accesses.numbering.ledgers), 1), np.iinfo(np.int32).max, np.int32)
    return CacheArrays(entries, np.empty(_SLOTS_MIN, np.int32), np.empty(_SLOTS_MIN, np.int64), low, s)
