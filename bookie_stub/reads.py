"""Where an entry is served from: a half of the write cache at once, an entry log through the reader's threads.

Which of the two is decided in the loop's thread, when the request comes; a batch read from the logs stops
before an entry that has a newer version in memory at that moment. Completions never run inside the call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container
from functools import partial

from bookie_stub.ledger import Ledger
from bookie_stub.metrics import BookieStats
from bookie_stub.posting import Answer
from bookie_stub.reader import ReadPool, StoredEntries
from bookie_stub.record import LENGTH_BYTES
from bookie_stub.write_cache import WriteCache
from protocol.bookie_frame import (
    BATCH_OVERHEAD_BYTES,
    LAST_ENTRY,
    RC_IO_ERROR,
    RC_NO_ENTRY,
    RC_NO_LEDGER,
    RC_OK,
    RC_UNKNOWN_LEDGER_STATE,
)

ReadDone = Callable[[int, bytes], None]
BatchReadDone = Callable[[int, list[bytes]], None]


class Reads:
    def __init__(
        self,
        ledgers: dict[int, Ledger],
        cache: WriteCache,
        hidden: Container[int],
        stored: StoredEntries,
        pool: ReadPool,
        answer: Callable[[Answer], None],
        batch_bytes_max: int,
        stats: BookieStats,
    ) -> None:
        """`hidden` has the ledgers whose rows in the index belong to a deleted ledger of the same id."""
        self._ledgers = ledgers
        self._cache = cache
        self._hidden = hidden
        self._stored = stored
        self._pool = pool
        self._answer = answer
        self._batch_bytes_max = batch_bytes_max
        self._stats = stats

    def read(self, ledger_id: int, entry_id: int, done: ReadDone) -> None:
        """`done(rc, entry)`; entry id -1 asks for the last entry."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            self._answer_read(done, RC_NO_LEDGER)
        elif entry_id == LAST_ENTRY:
            self._read_last(ledger, done)
        else:
            self._read_entry(ledger, entry_id, done)

    def _read_entry(self, ledger: Ledger, entry_id: int, done: ReadDone) -> None:
        record = self._cache.get(ledger.ledger_id, entry_id)
        if record is not None:
            stats = self._stats
            stats.write_cache_hits += 1
            stats.read_entries += 1
            stats.read_bytes += len(record)
            stats.read_requests.ok.count += 1
            self._answer(partial(done, RC_OK, record[LENGTH_BYTES:]))
        elif ledger.ledger_id in self._hidden or entry_id < 0:
            self._answer_read(done, _missing(ledger))
        else:
            self._stats.write_cache_misses += 1
            started = time.perf_counter_ns()
            self._pool.submit(
                partial(self._read_stored, ledger, entry_id, started, done),
                partial(self._read_done, started, done, RC_IO_ERROR, b""),
            )

    def _read_last(self, ledger: Ledger, done: ReadDone) -> None:
        if not ledger.last_known:
            self._pool.submit(
                partial(self._find_last, ledger, done), partial(self._answer_read, done, RC_IO_ERROR)
            )
        elif ledger.last < 0:
            self._answer_read(done, _missing(ledger))
        else:
            self._read_entry(ledger, ledger.last, done)

    def _find_last(self, ledger: Ledger, done: ReadDone) -> Answer:
        """In a reader's thread."""
        return partial(self._last_found, ledger, self._stored.last_entry(ledger.ledger_id), done)

    def _last_found(self, ledger: Ledger, stored_last: int, done: ReadDone) -> None:
        ledger.last = max(ledger.last, stored_last)
        ledger.last_known = True
        self._read_last(ledger, done)

    def _read_stored(self, ledger: Ledger, entry_id: int, started: int, done: ReadDone) -> Answer:
        """In a reader's thread."""
        entry = self._stored.read(ledger.ledger_id, entry_id)
        if entry is None:
            return partial(self._read_done, started, done, _missing(ledger), b"")
        return partial(self._read_done, started, done, RC_OK, entry)

    def _read_done(self, started: int, done: ReadDone, rc: int, entry: bytes) -> None:
        stats = self._stats
        stats.read_requests.observe_ns(rc == RC_OK, time.perf_counter_ns() - started)
        if rc == RC_OK:
            stats.read_cache_misses += 1
            stats.read_entries += 1
            stats.read_bytes += len(entry)
        done(rc, entry)

    def _answer_read(self, done: ReadDone, rc: int) -> None:
        self._stats.read_requests.failed.count += 1
        self._answer(partial(done, rc, b""))

    def batch_read(
        self, ledger_id: int, first: int, count_max: int, bytes_max: int, done: BatchReadDone
    ) -> None:
        """`done(rc, entries)`: consecutive entries from `first` on, at least one when rc is 0.

        `count_max` <= 0 sets no count; `bytes_max` is the size of the whole answer on the wire: 36 bytes and
        for each entry 4 more than it has (and never more than maxBatchReadSize).
        """
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            self._answer_batch(done, RC_NO_LEDGER)
            return
        room = min(bytes_max, self._batch_bytes_max) - BATCH_OVERHEAD_BYTES
        halves = self._cache.halves_of(ledger_id)
        if any(first in half for half in halves):
            entries = _cached_run(halves, first, count_max, room)
            self._batch_done(0, done, RC_OK, entries, True)
        elif ledger_id in self._hidden or first < 0:
            self._answer_batch(done, _missing(ledger))
        else:
            started = time.perf_counter_ns()
            self._pool.submit(
                partial(self._batch_stored, ledger, first, count_max, room, halves, started, done),
                partial(self._batch_done, started, done, RC_IO_ERROR, [], False),
            )

    def _batch_stored(
        self,
        ledger: Ledger,
        first: int,
        count_max: int,
        room: int,
        halves: tuple[dict[int, bytes], ...],
        started: int,
        done: BatchReadDone,
    ) -> Answer:
        """In a reader's thread."""
        entries = self._stored.batch(ledger.ledger_id, first, count_max, room, halves)
        rc = RC_OK if entries else _missing(ledger)
        return partial(self._batch_done, started, done, rc, entries, False)

    def _batch_done(
        self, started: int, done: BatchReadDone, rc: int, entries: list[bytes], cached: bool
    ) -> None:
        stats = self._stats
        stats.read_entries += len(entries)
        stats.read_bytes += sum(map(len, entries))
        if cached:
            stats.write_cache_hits += len(entries)
            stats.read_requests.ok.count += 1
            self._answer(partial(done, rc, entries))
            return
        stats.write_cache_misses += 1
        stats.read_requests.observe_ns(rc == RC_OK, time.perf_counter_ns() - started)
        stats.readahead.observe(len(entries))
        done(rc, entries)

    def _answer_batch(self, done: BatchReadDone, rc: int) -> None:
        self._stats.read_requests.failed.count += 1
        self._answer(partial(done, rc, []))


def _missing(ledger: Ledger) -> int:
    return RC_UNKNOWN_LEDGER_STATE if ledger.limbo else RC_NO_ENTRY


def _cached_run(halves: tuple[dict[int, bytes], ...], first: int, count_max: int, room: int) -> list[bytes]:
    """Consecutive entries that are in memory; a record is as long as its entry counts in the answer."""
    entries: list[bytes] = []
    count_max = count_max if count_max > 0 else len(halves[0]) + len(halves[-1])
    for entry_id in range(first, first + count_max):
        record = halves[0].get(entry_id)
        if record is None:
            record = halves[-1].get(entry_id)
            if record is None:
                break
        room -= len(record)
        if room < 0 and entries:
            break
        entries.append(record[LENGTH_BYTES:])
    return entries
