"""CacheOwner: what the cache of one managed ledger needs of the manager of all caches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker.entry_cache.cache_stats import CacheStats, Reason
from broker.entry_cache.decisions import Decisions
from broker.entry_cache.policies.policy import Policy, Removed
from broker.entry_cache.settings import EntryCacheSettings
from broker.model.entry import Entry

if TYPE_CHECKING:
    from broker.entry_cache.entry_cache import EntryCache


class CacheOwner(Protocol):
    """What a cache needs of the manager of all: caches hold the entries, their owner counts and evicts.

    Not with the manager, which makes the caches and therefore stands above them.
    """

    enabled: bool
    settings: EntryCacheSettings
    stats: CacheStats
    policy: Policy
    decisions: Decisions

    def ledger_opened(self, ledger_id: int, cache: EntryCache) -> None:
        """The cache holds entries of another ledger from now on."""
        ...

    def ledger_closed(self, ledger_id: int) -> None:
        """It holds none of that ledger any more."""
        ...

    def is_full(self, size_bytes: int) -> bool:
        """Whether so many bytes more have no room, for a policy that is strict about it."""
        ...

    def admit(self, entries: list[Entry], size_bytes: int, now_ns: int, *, slices: bool) -> None:
        """A cache has just taken in entries, at least one; whether any may be a slice of a buffer."""
        ...

    def dismiss(self, cache: EntryCache, removed: Removed, reason: Reason, now_ns: int) -> None:
        """A cache has invalidated entries; their slots stay in the removal queue."""
        ...
