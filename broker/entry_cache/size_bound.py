"""SizeBound: what a strict policy brings along so that the cache never exceeds its size.

The policy `pip430` has none: like Pulsar it may exceed the size until a size check has run. The one implementation is
`bounds/strict_size.py`, for the policy `magnetar`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker.model.entry import Entry

if TYPE_CHECKING:
    from broker.entry_cache.entry_cache import EntryCache
    from broker.entry_cache.eviction import Eviction
    from broker.entry_cache.settings import EntryCacheSettings


class SizeBound(Protocol):
    """Stands between the inserts and the caches, and says which bytes count against the size."""

    def configure(self, settings: EntryCacheSettings, used_bytes: int) -> None:
        """Takes over changed settings, with the bytes that are cached now."""
        ...

    def insert_run(
        self, cache: EntryCache, entries: list[Entry], expected_reads: int | None, now_ns: int
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

    def hold(self, eviction: Eviction, now_ns: int) -> int:
        """Evicts at once until the charged bytes are within the bound, and returns them; called by each insert."""
        ...

    def pass_begins(self) -> None:
        """Hears that the timer or a size check begins a slice of passes."""
        ...
