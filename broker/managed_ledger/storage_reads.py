"""StorageReads: entries that are not in the cache, read from the ledgers and put there.

A read names one ledger and a range that exists. How many readers are to come is asked when its entries have
arrived, once for all of them, and says whether they are worth a place in the cache (PIP-430, catch-up reads).
"""

from __future__ import annotations

from collections.abc import Callable

from broker.entry_cache.entry_cache import EntryCache
from broker.entry_cache.listener import Obstacle
from broker.managed_ledger.ground import Ground
from broker.managed_ledger.pending_reads import EntriesRead
from broker.managed_ledger.settings import NS_PER_SECOND, ManagedLedgerSettings
from broker.managed_ledger.stats import LogStats
from broker.model.entry import Entry
from broker.model.errors import BrokerError, ReadTimedOut
from broker.model.range_set import EntryRange


class StorageReads:
    __slots__ = ("_cache", "_ground", "_settings", "_stats")

    def __init__(
        self,
        ground: Ground,
        cache: EntryCache,
        stats: LogStats,
        settings: Callable[[], ManagedLedgerSettings],
    ) -> None:
        """`settings` are asked for each read, since they may change at run time."""
        self._ground = ground
        self._cache = cache
        self._stats = stats
        self._settings = settings

    def read(
        self,
        ledger_id: int,
        first: int,
        last: int,
        expected_reads: Callable[[], int | None],
        done: EntriesRead,
    ) -> None:
        """`done` is called once, never inside this call."""
        assert 0 <= first <= last

        def ended(entries: list[Entry], error: BrokerError | None) -> None:
            if error is None:
                self._admit(entries, expected_reads())
            else:
                self._stats.read_errors += 1
            done(entries, error)

        _StorageRead(self._ground, EntryRange(ledger_id, first, last), self._settings(), ended).begin()

    def _admit(self, entries: list[Entry], expected_reads: int | None) -> None:
        size_bytes = sum([entry.size for entry in entries])
        self._stats.storage_entries_read += len(entries)
        self._stats.storage_bytes_read += size_bytes
        now_ns = self._ground.now_ns()
        self._cache.listener.fetched(self._cache, entries, expected_reads, now_ns)
        counts = self._ground.caches.policy.counts
        if expected_reads is not None and counts.fills_cache(expected_reads):
            self._cache.insert_run(entries, expected_reads, now_ns)
        else:
            self._cache.not_cached(entries, Obstacle.NO_READER, now_ns)


class _StorageRead:
    """One range, in as many batch reads as the byte limit makes of it, within the time that it may take."""

    __slots__ = ("_done", "_entries", "_ground", "_next", "_range", "_settings")

    def __init__(
        self, ground: Ground, wanted: EntryRange, settings: ManagedLedgerSettings, done: EntriesRead
    ) -> None:
        self._ground = ground
        self._range = wanted
        self._settings = settings
        self._next = wanted.first
        self._entries: list[Entry] = []
        self._done: EntriesRead | None = done
        """None once it has ended; what storage answers then comes too late."""

    def begin(self) -> None:
        timeout_ns = self._settings.read_timeout_s * NS_PER_SECOND
        if timeout_ns > 0:
            self._ground.read_deadlines.add(self, self._ground.now_ns() + timeout_ns)
        self._read_on()

    def _read_on(self) -> None:
        ledger_id, _, last = self._range
        self._ground.ledgers.read(ledger_id, self._next, last, self._settings.read_bytes_max, self._arrived)

    def _arrived(self, entries: list[Entry], error: BrokerError | None) -> None:
        if self._done is None:
            return
        if error is not None:
            self._end(error)
            return
        self._entries += entries
        self._next += len(entries)
        if self._next <= self._range.last:
            self._read_on()
        else:
            self._end(None)

    def overdue(self) -> None:
        ledger_id, first, last = self._range
        limit = f"{self._settings.read_timeout_s} s (managedLedgerReadEntryTimeoutSeconds)"
        self._end(ReadTimedOut(f"reading entries {ledger_id}:{first}-{last}: not read within {limit}"))

    def _end(self, error: BrokerError | None) -> None:
        assert self._done is not None
        done, self._done = self._done, None
        self._ground.read_deadlines.remove(self)
        entries, self._entries = self._entries, []
        done(entries if error is None else [], error)
