"""LedgerReads: an entry comes from a cache or from a load.

A load looks into the location index, then into an entry log.

The loop's thread answers at once what memory has. Otherwise a reader's thread loads the entry and reads ahead. A
ledger has at most one load at a time: a client asks for the next hundred entries at once, and the load for the first
one brings the others. A request that meets a load of its ledger waits for its end and then looks into memory again.

Invariants:

* The read cache has only the newest version of an entry. An add discards the old version; a load is cached only if no
  flush has ended since it began, and without the entries of which a write cache has a newer version.
* Of a load that a flush has overtaken, only the entry that it was started for is served. The others are loaded again.
* "No such entry" is answered only when the location index was read and has none. Any failure is 101, and a missing
  entry of a ledger in limbo is 107.
* A completion never runs inside the call that asked.

Called by the `wire` room, by `last_confirmed` and by the embedded broker, in the loop's thread.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from bookie_stub.base.posting import BoundCompletion
from bookie_stub.base.record import LENGTH_BYTES
from bookie_stub.disk.ledger_entries import LedgerEntries
from bookie_stub.disk.stored_entries import Loaded
from bookie_stub.ledgers.ledger import Ledger
from bookie_stub.ledgers.state import BookieState
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
"""Completion of a read: (rc, entry). The entry is empty unless rc is 0."""
BatchReadDone = Callable[[int, list[bytes]], None]
"""Completion of a batch read: (rc, entries). At least one when rc is 0."""

log = logging.getLogger(__name__)

_NO_COUNT = 1 << 31
"""A count that no batch reaches."""
_NOTHING: Mapping[int, bytes] = MappingProxyType({})


class _Request:
    """One client's read of consecutive entries, while it is gathered."""

    __slots__ = ("bytes_left", "count", "done", "entries", "ledger", "missed", "next_id", "started_ns")

    def __init__(self, ledger: Ledger, first: int, count: int, bytes_left: int, done: BatchReadDone) -> None:
        self.ledger = ledger
        """The ledger as it was when the request came; a deletion replaces the object in the registry."""
        self.next_id = first
        """The entry that is added next."""
        self.count = count
        """Entries that may still be added."""
        self.bytes_left = bytes_left
        """Bytes that these may have. An entry counts as its record, and the first one always fits."""
        self.entries: list[bytes] = []
        """Entries gathered so far."""
        self.done = done
        """The client's completion."""
        self.missed = -1
        """The entry that a load was started for. It does not count as a hit of the read cache."""
        self.started_ns = 0
        """Time at which memory turned out not to be enough.

        0 while it is."""

    def add(self, entry: bytes) -> bool:
        """Adds the next entry. Returns False when the answer has no space for it."""
        self.bytes_left -= LENGTH_BYTES + len(entry)
        if self.bytes_left < 0 and self.entries:
            return False
        self.entries.append(entry)
        self.next_id += 1
        self.count -= 1
        return True


class LedgerReads:
    """Serves single reads and batch reads; starts, shares and finishes loads."""

    def __init__(self, state: BookieState, batch_bytes_max: int) -> None:
        """`batch_bytes_max` is `maxBatchReadSize`, for the whole answer on the wire."""
        self._registry = state.ledgers
        self._ledgers = state.ledgers.by_id
        self._hidden = state.ledgers.deletions.hidden
        self._caches = state.write_caches
        self._read_cache = state.read_cache
        self._watch = state.read_cache_watch
        self._storages = state.storages
        self._pool = state.read_pool
        self._answer = state.answers.add
        self._stats = state.stats
        self._batch_bytes_max = batch_bytes_max
        self._waiting: dict[int, deque[_Request]] = {}
        """Requests that wait for a load, by the ledger that is loaded."""
        self._flushes = 0
        self._closed = False

    def flush_ended(self) -> None:
        """Marks all running loads as overtaken by a flush.

        Such a load may bring a version that was replaced before the flush."""
        self._flushes += 1

    def close(self) -> None:
        """Answers the waiting requests with an I/O error (101). Running loads still answer theirs."""
        self._closed = True
        # The queues are emptied and stay: a running load looks its queue up when it ends.
        for waiting in self._waiting.values():
            while waiting:
                self._finish(waiting.popleft(), RC_IO_ERROR)

    # Requests.

    def read(self, ledger_id: int, entry_id: int, done: ReadDone) -> None:
        """Calls `done(rc, entry)`; entry id -1 asks for the ledger's last entry.

        rc: 0; 1 no such ledger; 2 no such entry; 101 it cannot be read; 107 it may be lost."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            self._refuse(done, self._rc_of_unknown_ledger(ledger_id))
        elif entry_id == LAST_ENTRY:
            self._read_last(ledger, done)
        else:
            self._read_entry(ledger, entry_id, done)

    def _rc_of_unknown_ledger(self, ledger_id: int) -> int:
        unknown = self._registry.is_unknown(ledger_id, LAST_ENTRY)
        return RC_UNKNOWN_LEDGER_STATE if unknown else RC_NO_LEDGER

    def _read_entry(self, ledger: Ledger, entry_id: int, done: ReadDone) -> None:
        # Most reads are one of these two hits, so they take no `_Request`.
        stats = self._stats
        record = self._caches.get(ledger.ledger_id, entry_id)
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
        if ledger.limbo:
            # Higher entries may be lost, so the highest one here need not be the last.
            self._refuse(done, RC_UNKNOWN_LEDGER_STATE)
        elif self._closed:
            self._refuse(done, RC_IO_ERROR)
        elif not ledger.last_known:
            find = partial(self._find_last, ledger, done)
            self._pool.submit(find, partial(self._refuse, done, RC_IO_ERROR))
        elif ledger.last < 0:
            self._refuse(done, _rc_of_missing(ledger))
        else:
            self._read_entry(ledger, ledger.last, done)

    def _find_last(self, ledger: Ledger, done: ReadDone) -> BoundCompletion:
        """Runs in a reader's thread."""
        ledger_id = ledger.ledger_id
        stored_last = self._storages.of(ledger_id).stored.last_entry(ledger_id)
        return partial(self._last_found, ledger, stored_last, done)

    def _last_found(self, ledger: Ledger, stored_last: int, done: ReadDone) -> None:
        # The higher one: an add may have come while the index was read.
        ledger.last = max(ledger.last, stored_last)
        ledger.last_known = True
        self._read_last(ledger, done)

    def batch_read(
        self, ledger_id: int, first: int, count_max: int, bytes_max: int, done: BatchReadDone
    ) -> None:
        """Calls `done(rc, entries)` with consecutive entries from `first` on.

        At least one entry when rc is 0.

        `count_max` <= 0 sets no limit. `bytes_max` limits the whole answer on the wire: 36 bytes, and 4 more than its
        own length for each entry; `maxBatchReadSize` limits it as well. A missing or damaged entry ends the batch
        early."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            self._stats.refused()
            self._answer(partial(done, self._rc_of_unknown_ledger(ledger_id), []))
            return
        count = count_max if count_max > 0 else _NO_COUNT
        bytes_left = min(bytes_max, self._batch_bytes_max) - BATCH_OVERHEAD_BYTES
        self._serve(_Request(ledger, first, count, bytes_left, done))

    # From memory, or by a load.

    def _serve(self, request: _Request) -> None:
        if self._gather(request):
            self._finish(request, RC_OK)
            return
        # Only reads that need the disk are timed, so a hit costs no clock read.
        request.started_ns = time.perf_counter_ns()
        ledger_id = request.ledger.ledger_id
        if ledger_id in self._waiting:
            self._waiting[ledger_id].append(request)
        elif self._load(request):
            self._waiting[ledger_id] = deque()

    def _gather(self, request: _Request, loaded: Mapping[int, bytes] = _NOTHING) -> bool:
        """Adds the next entries from memory.

        Returns True when the request has all that it may get.

        `loaded` has the entries of the load that just ended, for which the read cache may be too small.
        """
        ledger, stats = request.ledger, self._stats
        cached = self._caches.entries_of(ledger.ledger_id)
        while request.count:
            entry_id = request.next_id
            record = _newest(cached, entry_id) if cached else None
            if record is not None:
                if not request.add(record[LENGTH_BYTES:]):
                    return True
                stats.write_cache_hits += 1
                continue
            # After the ledger's end a batch is complete. An empty one needs a load: only the index may say "absent".
            if entry_id > ledger.last and ledger.last_known and request.entries:
                return True
            # `or` cannot pass over a cached entry: each has at least 24 bytes, so none is false.
            entry = self._read_cache.get(ledger.serial, entry_id) or loaded.get(entry_id)
            if entry is None:
                return False
            if not request.add(entry):
                return True
            if entry_id != request.missed:
                stats.write_cache_misses += 1
                stats.read_cache_hits += 1
        return True

    def _load(self, request: _Request) -> bool:
        """Starts a load for the request's next entry. Returns False when the request is answered instead."""
        ledger = request.ledger
        if self._closed:
            self._finish(request, RC_IO_ERROR)
        elif (now := self._ledgers.get(ledger.ledger_id)) is not ledger:
            # The ledger was deleted or emptied after the request had come.
            self._finish(request, RC_NO_LEDGER if now is None else _rc_of_missing(now))
        elif ledger.ledger_id in self._hidden or request.next_id < 0:
            # Rows of a hidden ledger belong to entries that were given up.
            self._finish(request, _rc_of_missing(ledger))
        else:
            request.missed = request.next_id
            self._stats.write_cache_misses += 1
            self._stats.read_cache_misses += 1
            # The number of flushes tells at the end of the load if one has overtaken it.
            work = partial(self._load_stored, request, self._flushes)
            self._pool.submit(work, partial(self._load_failed, request))
            return True
        return False

    def _load_stored(self, request: _Request, flushes: int) -> BoundCompletion:
        """Runs in a reader's thread."""
        ledger_id = request.ledger.ledger_id
        stored = self._storages.of(ledger_id).stored
        loaded = stored.load(ledger_id, request.next_id, request.count, request.bytes_left)
        return partial(self._loaded, request, flushes, loaded)

    def _loaded(self, request: _Request, flushes: int, loaded: Loaded) -> None:
        ledger, ids = request.ledger, loaded.ids
        self._stats.load(len(ids), sum(map(len, loaded.entries[1:])), loaded.index_ns, loaded.logs_ns)
        fresh: dict[int, bytes] = {}
        more = False
        if ids:
            ledger.last = max(ledger.last, ids[-1])
        if ids and flushes == self._flushes:
            # The result is given along: the read cache may be smaller than one load.
            fresh = dict(zip(ids, loaded.entries, strict=True))
            complete = self._gather(request, fresh)
            # The entry right after the load is missing or damaged. Ask again only if memory had that entry.
            more = not complete and request.next_id > ids[-1] + 1
            self._keep(ledger, loaded, request.next_id)
        elif ids:
            # Since the load looked, a flush may have moved a newer version of each entry from memory to a log. The first
            # entry is safe: it was nowhere in memory when the load began, so a newer one came after the request.
            more = not self._gather(request, {ids[0]: loaded.entries[0]})
        if not more:
            self._finish(request, _rc_of_missing(ledger))
        elif self._load(request):
            return
        self._serve_waiting(ledger, fresh)

    def _load_failed(self, request: _Request) -> None:
        self._finish(request, RC_IO_ERROR)
        self._serve_waiting(request.ledger, _NOTHING)

    def _keep(self, ledger: Ledger, loaded: Loaded, served_before: int) -> None:
        """Puts loaded entries into the read cache. Those below `served_before` were served already."""
        ids, entries = loaded.ids, loaded.entries
        # Entries that were written again since are newer in a write cache. Cached here, their old versions would be
        # served after the next flush.
        for newer in self._caches.entries_of(ledger.ledger_id):
            kept = [index for index, entry_id in enumerate(ids) if entry_id not in newer]
            ids, entries = [ids[index] for index in kept], [entries[index] for index in kept]
        self._read_cache.put(ledger.serial, ids, entries, bisect_left(ids, served_before))
        advice = self._watch.loaded(
            ledger.ledger_id, loaded.entries, self._read_cache.evicted_unserved, time.monotonic_ns()
        )
        if advice:
            log.warning("%s", advice)

    def _serve_waiting(self, ledger: Ledger, fresh: Mapping[int, bytes]) -> None:
        """Serves the requests that waited for a load.

        Stops at the first one that needs another load. `fresh` has the loaded entries, and is empty if a flush has
        overtaken the load.
        """
        waiting = self._waiting[ledger.ledger_id]
        while waiting:
            request = waiting.popleft()
            # A request for a ledger that was deleted and made anew must not get the old ledger's entries.
            if self._gather(request, fresh if request.ledger is ledger else _NOTHING):
                self._finish(request, RC_OK)
            elif self._load(request):
                return
        del self._waiting[ledger.ledger_id]

    # Answers.

    def _finish(self, request: _Request, rc: int) -> None:
        """Answers with the gathered entries, or with `rc` when there is none.

        An error after the first entry is not told: the client asks again from there."""
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


def _newest(caches: Sequence[LedgerEntries], entry_id: int) -> bytes | None:
    for entries in caches:
        record = entries.get(entry_id)
        if record is not None:
            return record
    return None


def _first_of(done: ReadDone, rc: int, entries: list[bytes]) -> None:
    done(rc, entries[0] if entries else b"")


def _rc_of_missing(ledger: Ledger) -> int:
    return RC_UNKNOWN_LEDGER_STATE if ledger.limbo else RC_NO_ENTRY
