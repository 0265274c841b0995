"""Where an entry is served from, in this order: write cache, flushing half, read cache, index and entry log.

What is in memory is answered by the loop's thread when the request comes. What is not is loaded by a reader's
thread, one load of a ledger at a time: a client asks for the next hundred entries at once, and the first of
them brings all the others. A request that meets a load of its ledger waits and then looks into memory again.

An entry in the read cache is always its newest version: an add takes it out, and what a load brings goes in
only if no flush has ended since the load began, without the entries that a half has in a newer version. Of a load
that a flush has overtaken only the entry that it was started for is served; the others are loaded again.
Completions never run inside the call.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from bookie_stub.base.metrics import BookieStats
from bookie_stub.base.posting import Answer
from bookie_stub.base.record import LENGTH_BYTES
from bookie_stub.disk.ledger_entries import LedgerEntries
from bookie_stub.disk.read_cache import ReadCache
from bookie_stub.disk.read_pool import ReadPool
from bookie_stub.disk.stored_entries import Loaded, StoredEntries
from bookie_stub.disk.write_cache import WriteCaches
from bookie_stub.ledgers.ledger import Ledger
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

_NO_COUNT = 1 << 31
_NOTHING: Mapping[int, bytes] = MappingProxyType({})


class _Request:
    """Consecutive entries that somebody waits for."""

    __slots__ = ("count", "done", "entries", "ledger", "missed", "next_id", "room", "started_ns")

    def __init__(self, ledger: Ledger, first: int, count: int, room: int, done: BatchReadDone) -> None:
        self.ledger = ledger
        self.next_id = first
        self.count = count
        """Entries that may still come."""
        self.room = room
        """Bytes that these may have; an entry counts as long as its record, the first one fits anyway."""
        self.entries: list[bytes] = []
        self.done = done
        self.missed = -1
        """The entry that a load was started for, which is no hit of the read cache."""
        self.started_ns = 0
        """When it was found that memory is not enough; 0 while it is."""

    def take(self, entry: bytes) -> bool:
        """False when it does not fit any more."""
        self.room -= LENGTH_BYTES + len(entry)
        if self.room < 0 and self.entries:
            return False
        self.entries.append(entry)
        self.next_id += 1
        self.count -= 1
        return True


class Reads:
    def __init__(
        self,
        ledgers: dict[int, Ledger],
        cache: WriteCaches,
        hidden: Container[int],
        read_cache: ReadCache,
        stored: Callable[[int], StoredEntries],
        pool: ReadPool,
        answer: Callable[[Answer], None],
        batch_bytes_max: int,
        stats: BookieStats,
    ) -> None:
        """`hidden` has the ledgers whose rows in the index belong to a deleted ledger of the same id; `stored` says
        where a ledger's entries are."""
        self._ledgers = ledgers
        self._cache = cache
        self._hidden = hidden
        self._read_cache = read_cache
        self._stored = stored
        self._pool = pool
        self._answer = answer
        self._batch_bytes_max = batch_bytes_max
        self._stats = stats
        self._waiting: dict[int, deque[_Request]] = {}
        """Ledgers that are being loaded from, and the requests that wait for it."""
        self._flushes = 0
        self._closed = False

    # What else happens to entries.

    def rewritten(self, ledger: Ledger, entry_id: int) -> None:
        """An add of an entry that is not behind the ledger's last one: it may have been read before."""
        self._read_cache.discard(ledger.serial, entry_id)

    def flushed(self) -> None:
        """A half of the write cache is gone; what its entries were before may still be on its way from a log."""
        self._flushes += 1

    def close(self) -> None:
        """Whoever waits for a load is refused; loads that are running still answer."""
        self._closed = True
        for waiting in self._waiting.values():
            while waiting:
                self._finish(waiting.popleft(), RC_IO_ERROR)

    # Requests.

    def read(self, ledger_id: int, entry_id: int, done: ReadDone) -> None:
        """`done(rc, entry)`; entry id -1 asks for the last entry."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            self._refuse(done, RC_NO_LEDGER)
        elif entry_id == LAST_ENTRY:
            self._read_last(ledger, done)
        else:
            self._read_entry(ledger, entry_id, done)

    def _read_entry(self, ledger: Ledger, entry_id: int, done: ReadDone) -> None:
        """The two hits that most reads are, told the short way."""
        stats = self._stats
        record = self._cache.get(ledger.ledger_id, entry_id)
        if record is not None:
            entry = record[LENGTH_BYTES:]
            stats.write_cache_hits += 1
        elif (cached := self._read_cache.get(ledger.serial, entry_id)) is not None:
            entry = cached
            stats.write_cache_misses += 1
            stats.read_cache_hits += 1
        else:
            self._serve(_Request(ledger, entry_id, 1, 0, partial(_first_of, done)))
            return
        stats.served(1, len(entry))
        self._answer(partial(done, RC_OK, entry))

    def _read_last(self, ledger: Ledger, done: ReadDone) -> None:
        if self._closed:
            self._refuse(done, RC_IO_ERROR)
        elif not ledger.last_known:
            find = partial(self._find_last, ledger, done)
            self._pool.submit(find, partial(self._refuse, done, RC_IO_ERROR))
        elif ledger.last < 0:
            self._refuse(done, _missing(ledger))
        else:
            self._read_entry(ledger, ledger.last, done)

    def _find_last(self, ledger: Ledger, done: ReadDone) -> Answer:
        """In a reader's thread."""
        return partial(
            self._last_found, ledger, self._stored(ledger.ledger_id).last_entry(ledger.ledger_id), done
        )

    def _last_found(self, ledger: Ledger, stored_last: int, done: ReadDone) -> None:
        ledger.last = max(ledger.last, stored_last)
        ledger.last_known = True
        self._read_last(ledger, done)

    def batch_read(
        self, ledger_id: int, first: int, count_max: int, bytes_max: int, done: BatchReadDone
    ) -> None:
        """`done(rc, entries)`: consecutive entries from `first` on, at least one when rc is 0.

        `count_max` <= 0 sets no count; `bytes_max` is the size of the whole answer on the wire: 36 bytes and
        for each entry 4 more than it has (and never more than maxBatchReadSize).
        """
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            self._refuse_batch(done, RC_NO_LEDGER)
            return
        count = count_max if count_max > 0 else _NO_COUNT
        room = min(bytes_max, self._batch_bytes_max) - BATCH_OVERHEAD_BYTES
        self._serve(_Request(ledger, first, count, room, done))

    # From memory, or by a load.

    def _serve(self, request: _Request) -> None:
        if self._gather(request):
            self._finish(request, RC_OK)
            return
        request.started_ns = time.perf_counter_ns()
        ledger_id = request.ledger.ledger_id
        if ledger_id in self._waiting:
            self._waiting[ledger_id].append(request)
        elif self._load(request):
            self._waiting[ledger_id] = deque()

    def _gather(self, request: _Request, loaded: Mapping[int, bytes] = _NOTHING) -> bool:
        """Take the next entries from memory; whether that is all that the request is to get.

        `loaded` is what a load has just brought, for which the read cache may be too small.
        """
        ledger, stats = request.ledger, self._stats
        halves = self._cache.entries_of(ledger.ledger_id)
        while request.count:
            entry_id = request.next_id
            record = _newest(halves, entry_id) if halves else None
            if record is not None:
                if not request.take(record[LENGTH_BYTES:]):
                    return True
                stats.write_cache_hits += 1
                continue
            if entry_id > ledger.last and ledger.last_known and request.entries:
                return True
            entry = self._read_cache.get(ledger.serial, entry_id) or loaded.get(entry_id)
            if entry is None:
                return False
            if not request.take(entry):
                return True
            if entry_id != request.missed:
                stats.write_cache_misses += 1
                stats.read_cache_hits += 1
        return True

    def _load(self, request: _Request) -> bool:
        """Start a load for the request's next entry, unless the index must not be asked for it."""
        ledger = request.ledger
        if self._closed:
            self._finish(request, RC_IO_ERROR)
        elif (now := self._ledgers.get(ledger.ledger_id)) is not ledger:
            # Deleted, or emptied, since the request came.
            self._finish(request, RC_NO_LEDGER if now is None else _missing(now))
        elif ledger.ledger_id in self._hidden or request.next_id < 0:
            self._finish(request, _missing(ledger))
        else:
            request.missed = request.next_id
            self._stats.write_cache_misses += 1
            self._stats.read_cache_misses += 1
            work = partial(self._load_stored, request, self._flushes)
            self._pool.submit(work, partial(self._load_failed, request))
            return True
        return False

    def _load_stored(self, request: _Request, flushes: int) -> Answer:
        """In a reader's thread."""
        ledger_id = request.ledger.ledger_id
        loaded = self._stored(ledger_id).load(ledger_id, request.next_id, request.count, request.room)
        return partial(self._loaded, request, flushes, loaded)

    def _loaded(self, request: _Request, flushes: int, loaded: Loaded) -> None:
        ledger, ids = request.ledger, loaded.ids
        self._stats.load(len(ids), sum(map(len, loaded.entries[1:])), loaded.index_ns, loaded.logs_ns)
        fresh: dict[int, bytes] = {}
        more = False
        if ids:
            ledger.last = max(ledger.last, ids[-1])
        if ids and flushes == self._flushes:
            fresh = dict(zip(ids, loaded.entries, strict=True))
            complete = self._gather(request, fresh)
            # Right behind the load's end there is no entry, or a damaged one. Memory may have helped over that.
            more = not complete and request.next_id > ids[-1] + 1
            self._keep(ledger, loaded, request.next_id)
        elif ids:
            # A newer version of any of them may have gone from memory to a log since the load looked. But the first
            # one was nowhere in memory when it began, which is after the request was asked.
            more = not self._gather(request, {ids[0]: loaded.entries[0]})
        if not more:
            self._finish(request, _missing(ledger))
        elif self._load(request):
            return
        self._next(ledger, fresh)

    def _load_failed(self, request: _Request) -> None:
        self._finish(request, RC_IO_ERROR)
        self._next(request.ledger, _NOTHING)

    def _keep(self, ledger: Ledger, loaded: Loaded, served_before: int) -> None:
        """Put what was loaded into the read cache; entries below `served_before` have been handed out."""
        ids, entries = loaded.ids, loaded.entries
        for half in self._cache.entries_of(ledger.ledger_id):
            kept = [index for index, entry_id in enumerate(ids) if entry_id not in half]
            ids, entries = [ids[index] for index in kept], [entries[index] for index in kept]
        self._read_cache.put(ledger.serial, ids, entries, bisect_left(ids, served_before))

    def _next(self, ledger: Ledger, fresh: Mapping[int, bytes]) -> None:
        """A load is done: serve who waits for its ledger, up to the one who needs another load.

        `fresh` is what it brought, unless it may be old by now.
        """
        waiting = self._waiting[ledger.ledger_id]
        while waiting:
            request = waiting.popleft()
            if self._gather(request, fresh if request.ledger is ledger else _NOTHING):
                self._finish(request, RC_OK)
            elif self._load(request):
                return
        del self._waiting[ledger.ledger_id]

    # Answers.

    def _finish(self, request: _Request, rc: int) -> None:
        """With `rc` if there is no entry; what follows a missing or damaged one is for the next request to ask."""
        entries = request.entries
        if entries:
            rc = RC_OK
            self._stats.served(len(entries), sum(map(len, entries)), request.started_ns)
        else:
            self._stats.refused()
        self._answer(partial(request.done, rc, entries))

    def _refuse(self, done: ReadDone, rc: int) -> None:
        self._stats.refused()
        self._answer(partial(done, rc, b""))

    def _refuse_batch(self, done: BatchReadDone, rc: int) -> None:
        self._stats.refused()
        self._answer(partial(done, rc, []))


def _newest(halves: Sequence[LedgerEntries], entry_id: int) -> bytes | None:
    for half in halves:
        record = half.get(entry_id)
        if record is not None:
            return record
    return None


def _first_of(done: ReadDone, rc: int, entries: list[bytes]) -> None:
    done(rc, entries[0] if entries else b"")


def _missing(ledger: Ledger) -> int:
    return RC_UNKNOWN_LEDGER_STATE if ledger.limbo else RC_NO_ENTRY
