"""Charge: what counts against the size of the cache, and the levels at which something is to be done about it.

Entries count, and under a strict policy what they pin as well. What is pinned goes with the entries that pin it, so what
is asked of a policy is bytes of entries: their share of what is too much.
"""

from __future__ import annotations

from typing import Final

from broker.entry_cache.decisions import Decisions
from broker.entry_cache.pinned_bytes import Pinned
from broker.entry_cache.settings import EntryCacheSettings

TRIGGER: Final = 0.98
"""The part of the maximum size above which a size check evicts."""

LEAST_SHARE: Final = 32
"""At least one of so many bytes of entries is asked for at a time. Where victims pin nothing many steps would lead to
the target otherwise, each smaller than the one before."""


class Charge:
    __slots__ = (
        "_decisions",
        "_pinned",
        "_strict",
        "bound_bytes",
        "size_bytes_max",
        "target_bytes",
        "trigger_bytes",
    )

    def __init__(self, pinned: Pinned, decisions: Decisions, *, strict: bool) -> None:
        self._pinned = pinned
        self._decisions = decisions
        self._strict = strict
        self.size_bytes_max = 0
        self.trigger_bytes = 0
        """A size check that finds more evicts."""
        self.target_bytes = 0
        """What it leaves."""
        self.bound_bytes = 0
        """What a strict policy never exceeds. A cache that was made smaller does not grow until it fits."""

    def configure(self, settings: EntryCacheSettings) -> None:
        """The levels; `rebound` follows."""
        self.size_bytes_max = settings.size_bytes_max
        self.trigger_bytes = int(settings.size_bytes_max * TRIGGER)
        self.target_bytes = int(settings.size_bytes_max * settings.watermark)

    def rebound(self, charged: int) -> None:
        """Of a cache for which so much is charged now."""
        self.bound_bytes = max(self.size_bytes_max, charged)

    def look(self, used_bytes: int, *, under_way: bool) -> int:
        """What is charged for entries of so many bytes; `under_way`: while a size pass is."""
        if not self._strict:
            return used_bytes
        pinned_bytes = self._pinned.count
        charged = used_bytes + pinned_bytes
        if self._decisions.record is not None:
            # With less there is room, however much less; only a pass has its own mark.
            matters = under_way or charged > self.trigger_bytes
            self._decisions.looked_at_pinned(pinned_bytes, matters=matters)
        if charged < self.bound_bytes:
            self.bound_bytes = max(charged, self.size_bytes_max)
        return charged


def entries_share(bytes_to_free: int, used_bytes: int, charged: int) -> int:
    """How many bytes of entries to ask for, so that about `bytes_to_free` of what is charged become free; all of them
    where nothing is pinned. It may be too few, so whoever has got them looks again."""
    share = max(1, bytes_to_free * used_bytes // charged, used_bytes // LEAST_SHARE)
    return min(bytes_to_free, share)
