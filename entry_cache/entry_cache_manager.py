"""EntryCacheManager: all entry caches of the broker under one size (PIP-430, EntryCacheManager).

It makes and forgets the caches of managed ledgers, takes the deliveries that lower expected reads, and forwards the
owner's timer to `Eviction`. One thread calls everything here; the manager owns no timer, and asks its clock for
invalidations alone.

`compose.py` makes a manager with its policy and with everything that a broker attaches to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from entry_cache.cache_stats import CacheStats, ReadStats
from entry_cache.entry_cache import EntryCache
from entry_cache.eviction import Eviction
from entry_cache.listener import CacheListener, Redelivery
from entry_cache.policy import EvictionPolicy
from entry_cache.reader import Reader
from entry_cache.settings import CacheSettings
from entry_cache.size_bound import SizeBound
from foundation.model.entry import Entry

MarkDelivered = Callable[[Iterable[Entry]], None]
"""Takes the entries of one delivery to a consumer."""
CACHES_PER_SLICE: Final = 2_000
"""Caches whose reads are summed between two pauses: half a millisecond."""


class EntryCacheManager:
    """The caches of all managed ledgers, by name."""

    def __init__(
        self,
        settings: CacheSettings,
        policy: EvictionPolicy,
        listener: CacheListener | None = None,
        bound: SizeBound | None = None,
        clock: Callable[[], int] = lambda: 0,
    ) -> None:
        """`clock` says the time of invalidations; passes and inserts get theirs with each call."""
        self.settings = settings
        """The settings that hold now."""
        self.policy = policy
        """Decides which entries stay, for the life of the manager."""
        self.eviction = Eviction(settings, policy, listener or CacheListener(), bound)
        """The totals and the passes."""
        self.stats: CacheStats = self.eviction.stats
        """Counts since the start."""
        self._listener: CacheListener = listener or CacheListener()
        self._clock = clock
        self._caches: dict[str, EntryCache] = {}
        self.closed_reads = ReadStats()
        """Reads through the caches that were removed."""
        self.closed_cursor_reads = ReadStats()
        """Those of them that were for a cursor."""
        hears = self._listener.hears_deliveries
        self.mark_delivered: MarkDelivered = self._report_delivered if hears else policy.counts.mark_delivered
        """Lowers the expected reads of entries that were written to a consumer.

        The policy's own function where no listener hears of deliveries: it is called for each of them.
        """
        self._listener.configured(settings)

    def reconfigure(self, settings: CacheSettings) -> None:
        """Takes over changed settings; they hold from the next visit on.

        Raises ValueError if the policy or its profile would change: entries are cached under it.
        """
        if (settings.policy, settings.profile) != (self.settings.policy, self.settings.profile):
            raise ValueError(
                f"cache policy {self.settings.policy} cannot change to {settings.policy} while the broker runs: restart it"
            )
        if settings != self.settings:
            before, self.settings = self.settings, settings
            self._listener.configured(settings)
            self.eviction.configure(settings)
            if settings.continue_caching_ns != before.continue_caching_ns:
                self._continue_caching(settings.continue_caching_ns)

    def _continue_caching(self, continue_caching_ns: int) -> None:
        """Lets open managed ledgers expect cursors that left for another time; 0 = this one expects none back."""
        for cache in self._caches.values():
            if cache.cursors is not None and cache.cursors.continue_caching_ns > 0:
                cache.cursors.continue_caching_ns = continue_caching_ns

    # Caches

    def open(self, name: str) -> EntryCache:
        """Returns the cache of the managed ledger `name`, a new one if there is none."""
        cache = self._caches.get(name)
        if cache is None:
            cache = EntryCache(name, self.eviction, self.policy.counts, self._listener, self._clock)
            self._caches[name] = cache
        return cache

    def find(self, name: str) -> EntryCache | None:
        """Returns the cache of an open managed ledger; None for another name."""
        return self._caches.get(name)

    def remove(self, name: str) -> None:
        """Removes a cache with all its entries: the managed ledger was closed."""
        cache = self._caches.pop(name, None)
        if cache is not None:
            cache.clear()
            self.closed_reads.add(cache.reads)
            self.closed_cursor_reads.add(cache.cursor_reads)
            self._listener.cache_removed(cache)

    @property
    def caches(self) -> list[EntryCache]:
        """The caches of all open managed ledgers."""
        return list(self._caches.values())

    # Deliveries

    def _report_delivered(self, entries: Iterable[Entry]) -> None:
        delivered = entries if isinstance(entries, list) else list(entries)
        self.policy.counts.mark_delivered(delivered)
        if delivered:
            self._listener.delivered(delivered)

    def expect_redelivery(self, reader: Reader, entries: Sequence[Entry]) -> None:
        """Raises the expected reads of delivered entries that wait for redelivery to the reader (PIP-430, replay queue)."""
        self.policy.counts.expect_redelivery(reader.number, entries)
        if entries:
            self._listener.redelivery_changed(Redelivery.EXPECTED, reader, entries)

    # Levels

    @property
    def entries(self) -> int:
        """Cached entries of all caches."""
        return self.eviction.entries

    @property
    def used_bytes(self) -> int:
        """The bytes of all cached entries."""
        return self.eviction.used_bytes

    def reads(self) -> ReadStats:
        """Returns the reads through all caches since the start, removed caches included."""
        total = ReadStats()
        for _ in self.count_reads(total):
            pass
        return total

    def count_reads(self, total: ReadStats) -> Iterator[None]:
        """Adds the reads through all caches to `total`; yields now and then, so that the caller can give the loop a turn."""
        # Both as of the begin: a cache that is closed during a pause is in the list, and must not count twice.
        total.add(self.closed_reads)
        for number, cache in enumerate(list(self._caches.values()), 1):
            total.add(cache.reads)
            if number % CACHES_PER_SLICE == 0:
                yield
