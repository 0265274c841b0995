"""Names the places in the array of numbers that a replayed cache keeps: counters, state of passes, settings.

The machine code reads one array instead of an object per number. The order matters: `_sweep` adds the number of a reason
to EVICTED_TTL, and `_configure` copies the settings to the places from ENABLED on.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

HITS, HIT_BYTES, MISSES, MISS_BYTES, COALESCED, COALESCED_BYTES = range(6)
INSERTED, INSERTED_BYTES, REFUSED = range(6, 9)
EVICTED_TTL, EVICTED_SIZE, EVICTED_LEDGER, EVICTED_INVALIDATE = range(9, 13)
"""Evicted entries, in the order of `cache_events.REASONS`."""
EXPECTED_TTL, EXPECTED_SIZE, EXPECTED_LEDGER, EXPECTED_INVALIDATE = range(13, 17)
"""Of these, entries with expected reads."""
REQUEUED_EXPECTED, REQUEUED_ACCESSED = range(17, 19)
ENTRIES, USED_BYTES = range(19, 21)
PEAK_BYTES, NEW_MISSES = range(21, 23)
"""NEW_MISSES: misses of entries that the recorded cache had."""
HEAD, TAIL, CHECKS_DUE, CHECK_IN_FLIGHT, READ_SINCE = range(23, 28)
"""READ_SINCE: 1 where entries were read or delivered since a size check was requested."""
PASS_OPEN, PASS_LEFT, PASS_PROTECTED, INVALIDATED_BYTES = range(28, 32)
LAST_TICK_NS, TICK_NS = range(32, 34)
ENABLED, TRIGGER_BYTES, TARGET_BYTES, TTL_NS, REQUEUES_MAX, EXTEND_ACCESSED = range(34, 40)
"""Settings, which may change during the replay; the profile's follow."""
COUNTS_FROM, RENEWS, ONE_PROTECTED_PASS, STOPS_AT_ZERO = range(40, 44)
"""Decisions that differ between releases, as in `entry_cache.policies.profile`."""
LENGTH: Final = 44
"""The length of the array."""

TOTALS: Final = MappingProxyType(
    {
        "hits": HITS,
        "hit_bytes": HIT_BYTES,
        "misses": MISSES,
        "miss_bytes": MISS_BYTES,
        "coalesced": COALESCED,
        "coalesced_bytes": COALESCED_BYTES,
        "inserted": INSERTED,
        "inserted_bytes": INSERTED_BYTES,
        "refused": REFUSED,
        "evicted: ttl": EVICTED_TTL,
        "evicted: size": EVICTED_SIZE,
        "evicted: ledger": EVICTED_LEDGER,
        "evicted: invalidate": EVICTED_INVALIDATE,
        "still expected: ttl": EXPECTED_TTL,
        "still expected: size": EXPECTED_SIZE,
        "still expected: ledger": EXPECTED_LEDGER,
        "still expected: invalidate": EXPECTED_INVALIDATE,
        "requeued: expected_reads": REQUEUED_EXPECTED,
        "requeued: recently_accessed": REQUEUED_ACCESSED,
        "entries": ENTRIES,
        "used_bytes": USED_BYTES,
    }
)
"""By name of `entry_cache.observe.totals`, the place of the counter."""
