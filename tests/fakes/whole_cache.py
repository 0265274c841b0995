"""WholeCache: the composed cache for tests, on which the manager's methods can be called directly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from entry_cache.cache_stats import Reason
from entry_cache.compose import ComposedCache
from entry_cache.policy import Removed
from foundation.model.entry import Entry


class WholeCache(ComposedCache):
    """A `ComposedCache` that passes everything it lacks on to its manager."""

    def __getattr__(self, name: str) -> Any:
        """Returns the manager's attribute."""
        return getattr(self.manager, name)

    def clear(self) -> None:
        """Removes every entry of every cache."""
        for cache in self.manager.caches:
            cache.clear()

    def evict_older(self, threshold_ns: int, now_ns: int) -> Removed:
        """Runs one whole time pass."""
        return self.manager.eviction.expire(threshold_ns, now_ns)

    def evict_bytes(self, bytes_to_free: int, now_ns: int) -> Removed:
        """Runs one whole size pass, whatever the limits say. ValueError unless `bytes_to_free` is positive."""
        eviction = self.manager.eviction
        return eviction.free(eviction.policy.begin_size_pass(bytes_to_free), now_ns)


class Removals:
    """Tells a function of everything that is removed."""

    def __init__(self, tell: Callable[[list[Entry], Reason], object]) -> None:
        """`tell` gets the entries of each pass or invalidation, and the reason."""
        self._tell = tell

    def removed(self, removed: Removed, reason: Reason, now_ns: int) -> None:
        """Passes it on."""
        self._tell(removed.entries, reason)
