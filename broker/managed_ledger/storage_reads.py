"""StorageReads: entries that are not in the cache, read from the ledger client and put there.

A read names one ledger and a range that exists. How many readers are to come is asked when its entries have
arrived, once for all of them, and says whether they are worth a place in the cache (PIP-430, catch-up reads).
"""

from __future__ import annotations

from collections.abc import Callable

from broker.entry_cache.decisions import Op
from broker.entry_cache.entry_cache import EntryCache
from broker.entry_cache.reader import Reader
from broker.errors import BrokerError, PersistenceError
from broker.ledger_client.stored_entries import decode_run
from broker.managed_ledger.ground import Ground
from broker.managed_ledger.pending_reads import EntriesRead
from broker.managed_ledger.recovery import OK, error_of
from broker.managed_ledger.stats import LogStats
from broker.model.entry import Entry

NOT_CACHED = -1


class StorageReads:
    __slots__ = ("_bytes_max", "_cache", "_ground", "_stats")

    def __init__(self, ground: Ground, cache: EntryCache, stats: LogStats, bytes_max: int) -> None:
        self._ground = ground
        self._cache = cache
        self._stats = stats
        self._bytes_max = bytes_max

    def read(
        self,
        reader: Reader,
        ledger_id: int,
        first: int,
        last: int,
        expected_reads: Callable[[], int],
        done: EntriesRead,
    ) -> None:
        """`done` is called once, never inside this call."""
        assert 0 <= first <= last
        self._cache.note_asked(Op.MISS, reader, ledger_id, first, last - first + 1)

        def arrived(entries: list[Entry], error: BrokerError | None) -> None:
            if error is None:
                self._admit(reader, entries, expected_reads())
            else:
                self._stats.read_errors += 1
                self._cache.note_asked(Op.FAILED, reader, ledger_id, first, last - first + 1)
            done(entries, error)

        _RangeRead(self._ground, ledger_id, first, last, self._bytes_max, arrived).begin()

    def _admit(self, reader: Reader, entries: list[Entry], expected_reads: int) -> None:
        size_bytes = sum([entry.size for entry in entries])
        self._stats.storage_entries_read += len(entries)
        self._stats.storage_bytes_read += size_bytes
        self._cache.count_misses(reader, len(entries), size_bytes)
        caches = self._ground.caches
        if expected_reads >= 0 and caches.policy.caches_storage_reads(expected_reads):
            self._cache.insert_run(entries, expected_reads, self._ground.now_ns())


class _RangeRead:
    """One range, in as many batch reads as the byte limit makes of it."""

    __slots__ = ("_bytes_max", "_client", "_done", "_entries", "_last", "_ledger_id", "_next")

    def __init__(
        self, ground: Ground, ledger_id: int, first: int, last: int, bytes_max: int, done: EntriesRead
    ) -> None:
        self._client = ground.ledgers
        self._ledger_id = ledger_id
        self._next = first
        self._last = last
        self._bytes_max = bytes_max
        self._entries: list[Entry] = []
        self._done = done

    def begin(self) -> None:
        self._client.batch_read(
            self._ledger_id, self._next, self._last - self._next + 1, self._bytes_max, self._arrived
        )

    def _arrived(self, rc: int, stored: list[bytes]) -> None:
        if rc != OK:
            self._done([], error_of(rc, f"reading entry {self._ledger_id}:{self._next}"))
            return
        assert 0 < len(stored) <= self._last - self._next + 1
        try:
            decode_run(self._ledger_id, self._next, stored, self._entries)
        except PersistenceError as error:
            self._done([], error)
            return
        self._next += len(stored)
        if self._next <= self._last:
            self.begin()
        else:
            self._done(self._entries, None)
