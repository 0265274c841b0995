"""SizeBound: what a strict policy brings along so that the cache never exceeds its size.

The policy `pip430` has none: like Pulsar it may exceed the size until a size check has run. The one implementation is
`bounds/strict_size.py`, for the policy `magnetar`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from entry_cache.active_cursors import ActiveCursors
from entry_cache.cache_stats import Reason
from entry_cache.listener import Obstacle
from entry_cache.policy import Removed, Requeued
from entry_cache.settings import CacheSettings
from foundation.model.entry import Entry


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
