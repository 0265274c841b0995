"""Eviction: says when entries are evicted and how many, and keeps the totals (PIP-430, eviction handler).

The policy says which entries go. Passes run for two reasons:
* age: `tick`, called every `managedLedgerCacheEvictionIntervalMs`, removes entries that were queued longer ago than the TTL;
* size: when the cached bytes exceed 98 % of the size (`TRIGGER`), a size pass brings them down to the watermark.

An insert never waits for a pass and is never refused for lack of space: an insert that exceeds the trigger asks for a
size check through `on_size_check`, and the owner calls `run_size_checks` soon. So under the policy `pip430` the cached
bytes may exceed the size until the check has run. A policy that must not exceed it brings a `SizeBound` along.

A call with `visits_max` looks at no more slots than that and returns True if more is to do, so that no call holds the
event loop for long. Everything here depends on the calls and their times only, so that a record of them can be replayed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from entry_cache.cache_stats import CacheStats, Reason
from entry_cache.listener import CacheListener, Pass
from entry_cache.policy import NO_LIMIT, EvictionPolicy, Removed, Requeued, SizePass
from entry_cache.settings import CacheSettings
from entry_cache.size_bound import ENTRY_OVERHEAD_BYTES, ChargedSize, SizeBound
from foundation.model.entry import Entry

VISITS_PER_SLICE: Final = 10_000
"""Slots that take 3 to 8 ms to visit: a slice of a pass between two turns of the loop."""

TRIGGER: Final = 0.98
"""The part of the size above which a size check evicts; a constant in Pulsar as well."""

INVALIDATED_BYTES_KEPT: Final = 16 * 1024 * 1024
"""Invalidated entries may hold this many bytes, or as many as are cached, until passes meet their slots."""


class Eviction:
    """The totals of the cache, and the passes that keep them within the limits."""

    def __init__(
        self,
        settings: CacheSettings,
        policy: EvictionPolicy,
        listener: CacheListener,
        bound: SizeBound | None,
    ) -> None:
        """Made by `EntryCacheManager`, empty."""
        self.policy = policy
        """Decides which entries go."""
        self.bound = bound or (ChargedSize() if settings.charges_overhead else None)
        """None under a policy that may exceed the size for a moment."""
        self.stats = CacheStats()
        """Counts since the start."""
        self.enabled = False
        """False if the size is 0: then nothing is inserted."""
        self.entries = 0
        """Cached entries of all caches."""
        self.used_bytes = 0
        """Their bytes, without those of their objects."""
        self.overhead_bytes = ENTRY_OVERHEAD_BYTES if settings.charges_overhead else 0
        """Bytes of an entry's objects that count against the size."""
        self.on_size_check: Callable[[], None] | None = None
        """Called once when a size check is wanted, during an insert: it must not evict at once."""
        self.size_checks_due = 0
        """Checks that were asked for and have not run: a tick lets a second one be asked for."""
        self.size_visits = 0
        """Slots that size passes have looked at since the start."""
        self._listener = listener
        self._admit = policy.admit
        self._check_in_flight = False
        self._size_pass: SizePass | None = None
        """The size pass that was cut by `visits_max`."""
        self._partial = False
        """True if `_size_pass` may free too little, because a `SizeBound` asked for a share."""
        self._invalidated_bytes = 0
        """Bytes invalidated since the slots of invalidated entries were dropped the last time."""
        self.configure(settings)

    def configure(self, settings: CacheSettings) -> None:
        """Takes over changed settings; they hold from the next visit on."""
        self._settings = settings
        self.enabled = settings.size_bytes_max > 0
        self._trigger_bytes = int(settings.size_bytes_max * TRIGGER)
        self._target_bytes = int(settings.size_bytes_max * settings.watermark)
        self.policy.configure(settings)
        if self.bound is not None:
            self.bound.configure(settings, self.accounted_bytes, pass_runs=self._size_pass is not None)

    # Called by the caches

    def admit(self, entries: list[Entry], size_bytes: int, now_ns: int) -> None:
        """Takes a run, at least one entry, that a cache has just inserted."""
        self.entries += len(entries)
        self.used_bytes += size_bytes
        if self.bound is not None:
            # Before `policy.admit`, so a new entry cannot evict itself before it was read.
            self._ask_for_check(self.bound.hold(self, now_ns))
        elif self.used_bytes > self._trigger_bytes:
            self._ask_for_check(self.used_bytes)
        self._admit(entries)

    def dismiss(self, removed: Removed, reason: Reason, now_ns: int) -> None:
        """Accounts for entries that a cache has invalidated; their slots stay in the queue."""
        if removed.entries:
            self._invalidated_bytes += removed.size_bytes
            self._account(removed, reason, now_ns)

    def _ask_for_check(self, charged_bytes: int) -> None:
        """Asks for a size check if so many bytes exceed the trigger and no check is on its way."""
        if charged_bytes > self._trigger_bytes and not self._check_in_flight:
            self._check_in_flight = True
            self.size_checks_due += 1
            if self.on_size_check is not None:
                self.on_size_check()

    def _account(self, removed: Removed, reason: Reason, now_ns: int) -> None:
        """Lowers the totals by entries, at least one, that were removed from their caches."""
        count = len(removed.entries)
        self.entries -= count
        self.used_bytes -= removed.size_bytes
        self.stats.evicted_entries[reason] += count
        self.stats.evicted_bytes[reason] += removed.size_bytes
        self._listener.removed(removed, reason, now_ns)

    # Passes

    def tick(self, now_ns: int, visits_max: int = NO_LIMIT) -> bool:
        """Runs the time pass, then the size check. Returns True if it is to be called again at once."""
        self._listener.pass_began(Pass.PERIODIC, now_ns, visits_max)
        # A cut size pass is finished first: a policy may have put entries aside that a time pass has to see.
        if self._size_pass is None:
            removed = self.expire(now_ns - self._settings.ttl_ns, now_ns, visits_max)
            if not removed.done:
                return True
            visits_max -= removed.visits
        if self.check_size(now_ns, visits_max):
            return True
        self._check_in_flight = False
        self._drop_invalidated()
        return False

    def run_size_checks(self, now_ns: int, visits_max: int = NO_LIMIT) -> bool:
        """Runs the size checks that were asked for. Returns True if it is to be called again at once."""
        self._listener.pass_began(Pass.SIZE_CHECK, now_ns, visits_max)
        while self.size_checks_due:
            if self.check_size(now_ns, visits_max):
                return True
            self.size_checks_due -= 1
            self._check_in_flight = False
        return False

    def expire(self, threshold_ns: int, now_ns: int, visits_max: int = NO_LIMIT) -> Removed:
        """Runs a time pass, or a slice of it, that removes what was queued before `threshold_ns`."""
        requeued = self._listener.requeued_wanted()
        removed = self.policy.remove_expired(threshold_ns, now_ns, visits_max, requeued)
        return self.account_pass(Reason.TTL, removed, requeued, now_ns)

    def free(self, size_pass: SizePass, now_ns: int, visits_max: int = NO_LIMIT) -> Removed:
        """Runs a size pass, or a slice of it, whatever the limits say."""
        requeued = self._listener.requeued_wanted()
        removed = self.policy.free(size_pass, now_ns, visits_max, requeued)
        self.size_visits += removed.visits
        return self.account_pass(Reason.SIZE, removed, requeued, now_ns)

    def account_pass(
        self, reason: Reason, removed: Removed, requeued: Requeued | None, now_ns: int
    ) -> Removed:
        """Reports a slice of a pass and lowers the totals. A `SizeBound` calls it for what it evicts at once."""
        self._listener.pass_ran(reason, removed, requeued)
        if removed.entries:
            self._account(removed, reason, now_ns)
        return removed

    def check_size(self, now_ns: int, visits_max: int) -> bool:
        """Begins or continues size passes while the trigger or the target asks for them.

        Returns True if a pass used up its visits.
        """
        while (size_pass := self._wanted_pass(now_ns)) is not None:
            removed = self.free(size_pass, now_ns, visits_max)
            if not removed.done:
                return True
            visits_max -= removed.visits
            queue_is_empty = size_pass.bytes_to_free > 0
            if queue_is_empty or not self._partial:
                self._size_pass = None
            if queue_is_empty:
                return False
        return False

    def _wanted_pass(self, now_ns: int) -> SizePass | None:
        """Returns the size pass to run now: the one that was cut, or a new one above the trigger.

        A pass that was cut goes on until the target is reached, because inserts may have come in between.
        """
        size_pass = self._size_pass
        charged = self.charged_bytes()
        bytes_to_free = charged - self._target_bytes
        if size_pass is None:
            if charged <= self._trigger_bytes or bytes_to_free <= 0:
                return None
            self.stats.size_evictions += 1
        elif bytes_to_free <= 0:  # Invalidations freed the rest while the pass was cut.
            size_pass.bytes_to_free = 0
            self.policy.free(size_pass, now_ns, 0)
            self._size_pass = None
            return None
        if size_pass is None or size_pass.bytes_to_free <= 0:
            share = bytes_to_free
            if self.bound is not None:
                share = self.bound.share_of(bytes_to_free, self.used_bytes, charged)
            self._partial = share < bytes_to_free
            size_pass = self._size_pass = self.policy.begin_size_pass(share)
        return size_pass

    @property
    def accounted_bytes(self) -> int:
        """Bytes of all cached entries, with those of their objects where they are charged."""
        return self.used_bytes + self.entries * self.overhead_bytes

    def charged_bytes(self) -> int:
        """Returns the bytes that count against the size."""
        if self.bound is None:
            return self.used_bytes
        return self.bound.charged_bytes(self.accounted_bytes, pass_runs=self._size_pass is not None)

    def _drop_invalidated(self) -> None:
        """Drops the slots of invalidated entries when they hold many bytes: with a long TTL passes meet them late."""
        if len(self.policy) == self.entries:
            self._invalidated_bytes = 0
        elif self._invalidated_bytes > max(INVALIDATED_BYTES_KEPT, self.used_bytes):
            self.policy.drop_invalidated()
            self._invalidated_bytes = 0
