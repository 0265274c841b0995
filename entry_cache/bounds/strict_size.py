"""StrictSize: the `SizeBound` of the policy `magnetar`: the cache never exceeds its size.

Law: after each insert the charged bytes are at most the size, or what was charged when the size was lowered. Charged are the
bytes of entries, those that they pin in receive buffers, and their objects where the settings say so. An insert that would
exceed the bound evicts at once.

Pinned bytes become free with the entries that pin them, so what is asked of the policy is a number of bytes of entries:
their share of the bytes that are too many.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from entry_cache.cache_stats import Reason
from entry_cache.eviction import TRIGGER, VISITS_PER_SLICE
from entry_cache.listener import Obstacle, Pass
from entry_cache.settings import CacheSettings
from entry_cache.size_bound import ENTRY_OVERHEAD_BYTES, BoundCache, BoundEviction, entries_share
from foundation.model.entry import Entry

if TYPE_CHECKING:
    from entry_cache.policies.magnetar.magnetar import Magnetar

PORTIONS: Final = 4
"""A run that is larger than the cache is inserted in parts of at most the size divided by this."""

VISITS_OF_INSERTS: Final = VISITS_PER_SLICE // 4
"""Slots that all inserts between two checks may look at. A check runs at the end of each turn of the loop in which the
trigger was exceeded, so this is a limit for one turn."""


class PinnedLevel(Protocol):
    """Says how many bytes cached entries pin beyond their own."""

    @property
    def count(self) -> int:
        """The pinned bytes."""
        ...


LookNoted = Callable[[int, bool], None]
"""Takes the pinned bytes of a look, and True if a decision may depend on them."""


class StrictSize:
    """Charges pinned bytes, refuses entries without readers when full, and evicts during inserts."""

    def __init__(self, policy: Magnetar, pinned: PinnedLevel, look_noted: LookNoted | None) -> None:
        """`look_noted` hears of every look at `pinned`, for an access record; None = none is kept."""
        self._size_bytes_max = 0
        self._overhead_bytes = 0
        """Bytes of an entry's objects that count against the size."""
        self._policy = policy
        self._pinned = pinned
        self._look_noted = look_noted
        self._bound_bytes = 0
        """The charged bytes that are never exceeded: the size, or more after the size was lowered."""
        self._trigger_bytes = 0
        self._visits_left = VISITS_OF_INSERTS
        """Visits that inserts may use until the next check."""

    def configure(self, settings: CacheSettings, used_bytes: int, *, pass_runs: bool) -> None:
        """A cache that was made smaller does not grow until it fits."""
        self._size_bytes_max = settings.size_bytes_max
        self._overhead_bytes = ENTRY_OVERHEAD_BYTES if settings.charges_overhead else 0
        self._trigger_bytes = int(settings.size_bytes_max * TRIGGER)
        # An empty cache pins nothing, so no look is needed, and none is recorded.
        charged = self.charged_bytes(used_bytes, pass_runs=pass_runs) if used_bytes else 0
        self._bound_bytes = max(settings.size_bytes_max, charged)

    def charged_bytes(self, used_bytes: int, *, pass_runs: bool) -> int:
        """Looks at the pinned bytes, and lowers the bound with what is charged."""
        pinned_bytes = self._pinned.count
        charged = used_bytes + pinned_bytes
        if self._look_noted is not None:
            # Below the trigger there is space, however little is pinned; only a pass has another mark.
            self._look_noted(pinned_bytes, pass_runs or charged > self._trigger_bytes)
        if charged < self._bound_bytes:
            # Downwards alone, until the size is reached: what an eviction has freed is not given back to
            # inserts.
            self._bound_bytes = max(charged, self._size_bytes_max)
        return charged

    def share_of(self, bytes_to_free: int, used_bytes: int, charged_bytes: int) -> int:
        """Returns `entries_share`."""
        return entries_share(bytes_to_free, used_bytes, charged_bytes)

    def pass_began(self, trigger: Pass, now_ns: int, visits_max: int) -> None:
        """Hears as a listener that passes run, so inserts may look at slots again."""
        self._visits_left = VISITS_OF_INSERTS

    # Inserts

    def insert_run(
        self, cache: BoundCache, entries: list[Entry], expected_reads: int | None, now_ns: int
    ) -> int:
        """Refuses a run without readers while the cache is full, and cuts a run that is larger than the cache."""
        if self._bound_bytes > self._size_bytes_max:
            # Time passes and invalidations free bytes without a look, and `hold` looks only after the run was added.
            # Without a look here a cache that was made smaller could grow back to what it held before them.
            cache.eviction.charged_bytes()
        # Only a run without any reader is refused. A run with readers evicts others instead.
        if not expected_reads and not cache.cursors and self._is_full(cache.eviction):
            cache.not_cached(entries, Obstacle.FULL, now_ns)
            return 0
        # Room for such a run cannot be made at once: evicting everything would still leave it above the bound.
        if (
            sum([entry.size for entry in entries]) + len(entries) * self._overhead_bytes
            > self._size_bytes_max
        ):
            return self._insert_in_portions(cache, entries, expected_reads, now_ns)
        return cache.insert_now(entries, expected_reads, now_ns)

    def _is_full(self, eviction: BoundEviction) -> bool:
        return eviction.charged_bytes() >= self._size_bytes_max

    def _insert_in_portions(
        self, cache: BoundCache, entries: list[Entry], expected_reads: int | None, now_ns: int
    ) -> int:
        """Inserts a run part by part, as far as each has space; leaves out entries larger than the cache."""
        size_max = self._size_bytes_max
        inserted = 0
        first = 0
        while first < len(entries):
            end, size_bytes = first, 0
            while (
                end < len(entries)
                and (size_bytes := size_bytes + entries[end].size + self._overhead_bytes)
                <= size_max // PORTIONS
            ):
                end += 1
            # At least one entry, or an entry larger than a portion would never be passed by.
            end = max(end, first + 1)
            portion = entries[first:end]
            if portion[0].size + self._overhead_bytes > size_max:
                cache.not_cached(portion, Obstacle.TOO_LARGE, now_ns)
            else:
                inserted += self.insert_run(cache, portion, expected_reads, now_ns)
                # `insert_run` may have put other objects into the list, which readers have to get.
                entries[first:end] = portion
            first = end
        return inserted

    def hold(self, eviction: BoundEviction, now_ns: int) -> int:
        """Evicts by a slice of a size pass while inserts have visits left, and after that at once."""
        charged = eviction.charged_bytes()
        if charged <= self._bound_bytes:
            return charged
        # A pass finds the right victims and may cost a scan. Inserts of one turn share a quota for that; beyond
        # it `evict_now` takes what is known.
        if self._visits_left > 0:
            visits_before = eviction.size_visits
            eviction.check_size(now_ns, self._visits_left)
            self._visits_left -= eviction.size_visits - visits_before
            charged = eviction.charged_bytes()
        while (too_many := charged - self._bound_bytes) > 0:
            share = entries_share(too_many, eviction.used_bytes, charged)
            removed = self._policy.evict_now(share, now_ns)
            removed.done = False  # It is no pass, so it must not count as one that has ended.
            eviction.account_pass(Reason.SIZE, removed, None, now_ns)
            # Nothing is left to evict: one run alone may pin more than the bound.
            if not removed.entries:
                break
            charged = eviction.charged_bytes()
        return charged
