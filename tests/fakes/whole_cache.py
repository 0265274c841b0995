"""WholeCache: the composed cache for tests, on which the manager's methods can be called directly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.entry_cache.cache_stats import Reason
from broker.entry_cache.compose import ComposedCache
from broker.entry_cache.policy import Removed
from broker.model.entry import Entry


class WholeCache(ComposedCache):
    """A `ComposedCache` that passes everything it lacks on to its manager."""

    def __getattr__(self, name: str) -> Any:
        """Returns the manager's attribute."""
        return getattr(self.manager, name)


class Removals:
    """Tells a function of everything that is removed."""

    def __init__(self, tell: Callable[[list[Entry], Reason], object]) -> None:
        """`tell` gets the entries of each pass or invalidation, and the reason."""
        self._tell = tell

    def removed(self, removed: Removed, reason: Reason, now_ns: int) -> None:
        """Passes it on."""
        self._tell(removed.entries, reason)
