"""EntryCacheManager: all entry caches of the broker, their bytes, their limits, and when to evict.

One thread calls everything here, and the manager owns no timer: an insert that crosses the trigger only
asks for a size check (`on_size_check`), and the owner calls `run_pending` soon and `tick` every
`managedLedgerCacheEvictionIntervalMs`. Inserts are never refused for lack of room (PIP-430), so the
bytes may pass the maximum until the check has run. A call with `visits_max` looks at no more slots than
that and answers whether more is to do, so that the loop is never held for long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.entry_cache.cache_stats import CacheStats, ReadStats, Reason
from broker.entry_cache.entry_cache import EntryCache
from broker.entry_cache.pinned_bytes import PinnedBytes
from broker.entry_cache.removal_queue import NO_LIMIT, RemovalQueue, Removed, SizePass
from broker.entry_cache.settings import EntryCacheSettings
from broker.model.entry import Entry

TRIGGER: Final = 0.98
"""The part of the maximum size above which a size check evicts."""

VISITS_PER_SLICE: Final = 10_000
"""Slots that take 3 to 8 ms to visit: what a slice may look at between two turns of the loop."""

INVALIDATED_BYTES_KEPT: Final = 16 * 1024 * 1024
"""Invalidated entries may hold so many bytes, or as many as are cached, until the head reaches them."""

Observer = Callable[[list[Entry], Reason], None]


class EntryCacheManager:
    __slots__ = (
        "_caches",
        "_check_in_flight",
        "_enqueue",
        "_invalidated_bytes",
        "_pinned",
        "_queue",
        "_retired_reads",
        "_size_checks",
        "_size_pass",
        "_target_bytes",
        "_trigger_bytes",
        "enabled",
        "entries",
        "handed_over",
        "on_evicted",
        "on_size_check",
        "put_back",
        "settings",
        "stats",
        "used_bytes",
    )

    def __init__(self, settings: EntryCacheSettings) -> None:
        self.stats = CacheStats()
        self.used_bytes = 0
        self.entries = 0
        self.handed_over = settings.profile.handed_over
        """Call with the entries of a delivery written to a consumer: one read of each is done."""
        self.put_back = settings.profile.put_back
        """Call with entries that go to a replay queue: one more read of each is to come."""
        self.on_evicted: Observer | None = None
        """Told of everything that leaves, in order, for recording what the cache decides."""
        self.on_size_check: Callable[[], None] | None = None
        """Told once when a size check is wanted, in the middle of an insert: it must not evict at once."""
        self._queue = RemovalQueue(settings.profile, settings.requeues_max, settings.extend_recently_accessed)
        self._enqueue = self._queue.extend
        self._caches: dict[str, EntryCache] = {}
        self._pinned = PinnedBytes()
        self._retired_reads = ReadStats()
        self._invalidated_bytes = 0
        self._size_checks = 0
        self._check_in_flight = False
        self._size_pass: SizePass | None = None
        self._apply(settings)

    def reconfigure(self, settings: EntryCacheSettings) -> None:
        """Every value holds from the next visit on. The profile is for the life of the manager."""
        if settings.profile is not self.settings.profile:
            raise ValueError("the cache profile cannot be changed while entries are cached under it")
        self._apply(settings)

    def _apply(self, settings: EntryCacheSettings) -> None:
        self.settings = settings
        self.enabled = settings.size_bytes_max > 0
        self._trigger_bytes = int(settings.size_bytes_max * TRIGGER)
        self._target_bytes = int(settings.size_bytes_max * settings.watermark)
        self._queue.requeues_max = settings.requeues_max
        self._queue.extend_recently_accessed = settings.extend_recently_accessed

    # Caches

    def open(self, name: str) -> EntryCache:
        """The cache of the managed ledger `name`, new and empty if there is none."""
        cache = self._caches.get(name)
        if cache is None:
            cache = self._caches[name] = EntryCache(self, name)
        return cache

    def remove(self, name: str) -> None:
        """Forget a cache with all it holds."""
        cache = self._caches.pop(name, None)
        if cache is not None:
            cache.clear()
            self._retired_reads.add(cache.reads)

    def clear(self) -> None:
        for cache in self._caches.values():
            cache.clear()

    # Called by the caches

    def admit(self, entries: list[Entry], size_bytes: int, *, slices: bool) -> None:
        """Entries that a cache has just taken in, at least one; whether any may be a slice of a buffer."""
        if slices:
            self._admit_slices(entries)
        self._enqueue(entries)
        self.entries += len(entries)
        self.used_bytes += size_bytes
        if self.used_bytes > self._trigger_bytes and not self._check_in_flight:
            self._check_in_flight = True
            self._size_checks += 1
            if self.on_size_check is not None:
                self.on_size_check()

    def _admit_slices(self, entries: list[Entry]) -> None:
        if not self.settings.copy_entries:
            self._pinned.add(entries)
            return
        for entry in entries:
            if type(entry.body) is memoryview:
                entry.body = bytes(entry.body)

    def dismiss(self, removed: Removed, reason: Reason) -> None:
        """Entries that a cache has invalidated; their slots stay in the queue."""
        self._invalidated_bytes += removed.size_bytes
        self._account(removed, reason)

    def _account(self, removed: Removed, reason: Reason) -> None:
        entries = removed.entries
        if not entries:
            return
        self.entries -= len(entries)
        self.used_bytes -= removed.size_bytes
        stats = self.stats
        stats.evicted_entries[reason] += len(entries)
        stats.evicted_bytes[reason] += removed.size_bytes
        stats.evicted_wanted_entries[reason] += removed.wanted
        if self._pinned:
            self._pinned.remove(entries)
        if self.on_evicted is not None:
            self.on_evicted(entries, reason)

    # Evicting

    @property
    def size_checks_due(self) -> int:
        """Checks that were asked for and have not run: a periodic pass lets a second one be asked for."""
        return self._size_checks

    def tick(self, now_ns: int, visits_max: int = NO_LIMIT) -> bool:
        """The periodic pass: what is too old, then the size check. Whether to call again at once."""
        if self._size_pass is None:
            removed = self._queue.remove_expired(now_ns - self.settings.ttl_ns, now_ns, visits_max)
            self._account(removed, Reason.TTL)
            if not removed.done:
                return True
            visits_max -= removed.visits
        if self._check_size(now_ns, visits_max):
            return True
        self._check_in_flight = False
        self._let_go_of_invalidated()
        return False

    def run_pending(self, now_ns: int, visits_max: int = NO_LIMIT) -> bool:
        """The size checks asked for. Whether to call again at once."""
        while self._size_checks:
            if self._check_size(now_ns, visits_max):
                return True
            self._size_checks -= 1
            self._check_in_flight = False
        return False

    def _check_size(self, now_ns: int, visits_max: int) -> bool:
        """Begin or go on with a size pass if there is need; whether it is unfinished."""
        bytes_to_free = self.used_bytes - self._target_bytes
        if self._size_pass is None:
            if self.used_bytes <= self._trigger_bytes or bytes_to_free <= 0:
                return False
            self.stats.size_evictions += 1
            self._size_pass = self._queue.begin_size_pass(bytes_to_free)
        elif bytes_to_free <= 0:  # Invalidations made the room while the pass was cut.
            self._size_pass = None
            return False
        removed = self._queue.free(self._size_pass, now_ns, visits_max)
        self._account(removed, Reason.SIZE)
        if removed.done:
            self._size_pass = None
        return not removed.done

    def evict_older(self, threshold_ns: int, now_ns: int) -> Removed:
        """One time pass with a threshold of the caller's choice."""
        removed = self._queue.remove_expired(threshold_ns, now_ns)
        self._account(removed, Reason.TTL)
        return removed

    def evict_bytes(self, bytes_to_free: int, now_ns: int) -> Removed:
        """One size pass, whatever the limits say. ValueError unless `bytes_to_free` is positive."""
        removed = self._queue.free(self._queue.begin_size_pass(bytes_to_free), now_ns)
        self._account(removed, Reason.SIZE)
        return removed

    def _let_go_of_invalidated(self) -> None:
        """With a long TTL the head may take long to reach invalidated entries, and their bytes are held."""
        if not self.tombstones:
            self._invalidated_bytes = 0
        elif self._invalidated_bytes > max(INVALIDATED_BYTES_KEPT, self.used_bytes):
            self._queue.drop_invalidated()
            self._invalidated_bytes = 0

    # Levels

    @property
    def queue(self) -> RemovalQueue:
        return self._queue

    @property
    def caches(self) -> list[EntryCache]:
        return list(self._caches.values())

    @property
    def inserted_entries(self) -> int:
        """Since the start, like `inserted_bytes`."""
        return self.entries + sum(self.stats.evicted_entries.values())

    @property
    def inserted_bytes(self) -> int:
        return self.used_bytes + sum(self.stats.evicted_bytes.values())

    @property
    def queue_length(self) -> int:
        return len(self._queue)

    @property
    def tombstones(self) -> int:
        """Slots of the queue whose entries were invalidated."""
        return len(self._queue) - self.entries

    @property
    def pinned_bytes(self) -> int:
        """Bytes that cached entries keep alive beyond their own length: the rest of their receive buffers."""
        return self._pinned.count

    def reads(self) -> ReadStats:
        """Of all caches, those removed included."""
        total = ReadStats()
        total.add(self._retired_reads)
        for cache in self._caches.values():
            total.add(cache.reads)
        return total
