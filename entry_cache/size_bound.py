"""SizeBound: says which bytes count against the size, and what happens to an insert above it.

The policy `pip430` has none: like Pulsar it counts the bytes of entries alone, and may exceed the size until a size check
has run. `bounds/strict_size.py` belongs to the policy `magnetar`. `ChargedSize` serves all other policies while the objects
of entries are charged as well (`managedLedgerCacheChargesOverhead`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from entry_cache.active_cursors import ActiveCursors
from entry_cache.cache_stats import Reason
from entry_cache.listener import Obstacle
from entry_cache.policy import Removed, Requeued
from entry_cache.settings import CacheSettings
from foundation.model.entry import Entry

ENTRY_OVERHEAD_BYTES: Final = 510
"""Memory of the objects of a cached entry beyond its bytes: the entry, its numbers, the facts of its metadata, its places in
dictionary and queue. Resident memory grows by 507 to 518 bytes for each of 100,000 entries of CPython 3.11; an entry whose
body is a slice of a receive buffer has 180 bytes more."""
LEAST_SHARE: Final = 32
"""A share is at least one in so many bytes of entries.

Where the evicted entries pin nothing, smaller and smaller shares would need many passes to reach the target.
"""


class BoundEviction(Protocol):
    """The parts of `Eviction` that a bound uses."""

    used_bytes: int
    """Bytes of all cached entries."""
    size_visits: int
    """Slots that size passes have looked at since the start."""

    def charged_bytes(self) -> int:
        """Returns the bytes that count against the size."""
        ...

    def check_size(self, now_ns: int, visits_max: int) -> bool:
        """Begins or continues size passes while the trigger or the target asks for them."""
        ...

    def account_pass(
        self, reason: Reason, removed: Removed, requeued: Requeued | None, now_ns: int
    ) -> Removed:
        """Reports a slice of a pass and lowers the totals. A `SizeBound` calls it for what it evicts at once."""
        ...


class BoundCache(Protocol):
    """The parts of `EntryCache` that a bound uses."""

    cursors: ActiveCursors | None
    """The log's active cursors; see `attach_cursors`."""

    @property
    def eviction(self) -> BoundEviction:
        """The totals and limits of all caches, which inserts report to."""
        ...

    def insert_now(self, entries: list[Entry], expected_reads: int | None, now_ns: int) -> int:
        """Inserts a run as `insert_run` does, whatever its size. For `insert_run` and a `SizeBound`."""
        ...

    def not_cached(self, entries: Sequence[Entry], obstacle: Obstacle, now_ns: int) -> None:
        """Reports a run that does not enter the cache."""
        ...


class SizeBound(Protocol):
    """Stands between the inserts and the caches, and says which bytes count against the size."""

    def configure(self, settings: CacheSettings, used_bytes: int, *, pass_runs: bool) -> None:
        """Takes over changed settings, with the bytes that are cached now; a size pass may have been cut."""
        ...

    def insert_run(
        self, cache: BoundCache, entries: list[Entry], expected_reads: int | None, now_ns: int
    ) -> int:
        """Inserts a run through `EntryCache.insert_now` as far as there is space. Returns how many were inserted."""
        ...

    def charged_bytes(self, used_bytes: int, *, pass_runs: bool) -> int:
        """Returns the bytes that count against the size: those of the entries, and those that they pin."""
        ...

    def share_of(self, bytes_to_free: int, used_bytes: int, charged_bytes: int) -> int:
        """Returns how many bytes of entries to evict at first, so that about `bytes_to_free` become free.

        They may be too few: then another size pass follows.
        """
        ...

    def hold(self, eviction: BoundEviction, now_ns: int) -> int:
        """Evicts at once until the charged bytes are within the bound, and returns them; called by each insert."""
        ...


class ChargedSize:
    """The bound of a policy that has none of its own, while the objects of entries are charged: it refuses nothing."""

    def configure(self, settings: CacheSettings, used_bytes: int, *, pass_runs: bool) -> None:
        """Does nothing: the limits are those of `Eviction`."""

    def insert_run(
        self, cache: BoundCache, entries: list[Entry], expected_reads: int | None, now_ns: int
    ) -> int:
        """Inserts the run."""
        return cache.insert_now(entries, expected_reads, now_ns)

    def charged_bytes(self, used_bytes: int, *, pass_runs: bool) -> int:
        """Returns `used_bytes`, which have the objects in them."""
        return used_bytes

    def share_of(self, bytes_to_free: int, used_bytes: int, charged_bytes: int) -> int:
        """Returns `entries_share`."""
        return entries_share(bytes_to_free, used_bytes, charged_bytes)

    def hold(self, eviction: BoundEviction, now_ns: int) -> int:
        """Evicts nothing: a size check follows."""
        return eviction.charged_bytes()


def entries_share(bytes_to_free: int, used_bytes: int, charged_bytes: int) -> int:
    """Returns how many bytes of entries to evict, so that about `bytes_to_free` of the charged bytes become free.

    All of `bytes_to_free` where nothing but entries is charged. It may be too few, so the caller has to look again
    afterwards.
    """
    share = max(1, bytes_to_free * used_bytes // charged_bytes, used_bytes // LEAST_SHARE)
    return min(bytes_to_free, share)
