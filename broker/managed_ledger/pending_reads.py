"""PendingReads: readers that want what is being read from storage already wait for it (PIP-430, coalescing).

Per ledger, the reads under way. A new one looks for the same range, then for one that includes it, then for
one that overlaps: it waits for the overlap and reads the rest. Everybody receives the same entry objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from broker.entry_cache.cache_stats import PendingReadStats
from broker.entry_cache.entry_cache import EntryCache
from broker.entry_cache.listener import StorageRead
from broker.entry_cache.reader import Reader
from broker.model.entry import Entry
from broker.model.errors import BrokerError

EntriesRead = Callable[[list[Entry], BrokerError | None], None]
"""(the whole range in order, None), or ([], why not)"""

ReadStorage = Callable[[int, int, int, Callable[[], int | None], EntriesRead], None]
"""(ledger id, first, last, how many readers are to come: asked when the entries have arrived, done)"""


class _Waiter(NamedTuple):
    reader: Reader | None
    first: int
    last: int
    done: EntriesRead


class _RunningRead:
    __slots__ = ("first", "last", "ledger_id", "waiters")

    def __init__(self, ledger_id: int, waiter: _Waiter) -> None:
        self.ledger_id = ledger_id
        self.first = waiter.first
        self.last = waiter.last
        self.waiters = [waiter]
        """The first one has started it."""


class _Joined:
    """A request in parts: delivers them in order once the last has ended, or the first error."""

    __slots__ = ("_done", "_error", "_open", "_parts")

    def __init__(self, parts: int, done: EntriesRead) -> None:
        self._parts: list[list[Entry]] = [[] for _ in range(parts)]
        self._open = parts
        self._error: BrokerError | None = None
        self._done = done

    def part(self, number: int) -> EntriesRead:
        def arrived(entries: list[Entry], error: BrokerError | None) -> None:
            self._parts[number] = entries
            self._error = self._error or error
            self._open -= 1
            if not self._open:
                if self._error is None:
                    self._done([entry for part in self._parts for entry in part], None)
                else:
                    self._done([], self._error)

        return arrived


class PendingReads:
    __slots__ = ("_cache", "_read_storage", "_running")

    def __init__(self, read_storage: ReadStorage, cache: EntryCache) -> None:
        """`read_storage` never completes inside its call."""
        self._read_storage = read_storage
        self._cache = cache
        self._running: dict[int, dict[tuple[int, int], _RunningRead]] = {}

    @property
    def stats(self) -> PendingReadStats:
        """Of all logs, so that nothing is lost when one is closed."""
        return self._cache.pending_reads

    def read(
        self,
        reader: Reader | None,
        ledger_id: int,
        first: int,
        last: int,
        expected_reads: Callable[[], int | None],
        done: EntriesRead,
    ) -> None:
        """Entries `first` to `last`, both included. `reader`: for whom they count as missed or coalesced; None =
        they have been counted. The first who asks for a storage read says for how many readers it fills the
        cache; `done` is called once, never inside this call. What an overlap leaves over comes back here:
        whoever asks has looked in the cache in the same turn."""
        waiter = _Waiter(reader, first, last, done)
        running = self._running.setdefault(ledger_id, {})
        found = running.get((first, last))
        if found is not None:
            self.stats.matched += last - first + 1
            self._join(found, waiter)
            return
        for candidate in running.values():
            if candidate.first <= first and last <= candidate.last:
                self.stats.matched_included += last - first + 1
                self._join(candidate, waiter)
                return
        overlap = _best_overlap(running.values(), first, last)
        if overlap is None:
            self._start(ledger_id, waiter, expected_reads)
        else:
            self._read_around(overlap, waiter, expected_reads)

    def invalidate_ledger(self, ledger_id: int) -> None:
        """Nobody joins the reads under way any more; they still serve those who wait."""
        self._running.pop(ledger_id, None)

    def clear(self) -> None:
        self._running.clear()

    def _start(self, ledger_id: int, waiter: _Waiter, expected_reads: Callable[[], int | None]) -> None:
        first, last = waiter.first, waiter.last
        self.stats.read += last - first + 1
        self.stats.missed += last - first + 1
        started = self._running[ledger_id][first, last] = _RunningRead(ledger_id, waiter)
        self._note(StorageRead.MISS, ledger_id, waiter)

        def arrived(entries: list[Entry], error: BrokerError | None) -> None:
            running = self._running.get(ledger_id)
            if running is not None and running.get((first, last)) is started:
                del running[first, last]
                if not running:
                    del self._running[ledger_id]
            self._deliver(started, entries, error)

        self._read_storage(ledger_id, first, last, expected_reads, arrived)

    def _join(self, running: _RunningRead, waiter: _Waiter) -> None:
        self.stats.not_read += waiter.last - waiter.first + 1
        self._note(StorageRead.COALESCED, running.ledger_id, waiter)
        running.waiters.append(waiter)

    def _deliver(self, ended: _RunningRead, entries: list[Entry], error: BrokerError | None) -> None:
        for waiter in ended.waiters:
            if error is not None:
                self._note(StorageRead.FAILED, ended.ledger_id, waiter)
                waiter.done([], error)
                continue
            wanted = entries[waiter.first - ended.first : waiter.last - ended.first + 1]
            if waiter.reader is not None:
                started = waiter is ended.waiters[0]
                read = StorageRead.MISS if started else StorageRead.COALESCED
                self._cache.count_arrived(read, waiter.reader, wanted)
            waiter.done(wanted, None)

    def _note(self, read: StorageRead, ledger_id: int, waiter: _Waiter) -> None:
        if waiter.reader is not None:
            count = waiter.last - waiter.first + 1
            self._cache.listener.asked_storage(
                read, self._cache, waiter.reader, ledger_id, waiter.first, count
            )

    def _read_around(
        self, overlap: _RunningRead, waiter: _Waiter, expected_reads: Callable[[], int | None]
    ) -> None:
        """Wait for the overlap and read what it lacks."""
        reader, first, last, done = waiter
        lacks_left, lacks_right = first < overlap.first, overlap.last < last
        middle_first, middle_last = max(first, overlap.first), min(last, overlap.last)
        side = "both" if lacks_left and lacks_right else "left" if lacks_left else "right"
        self.stats.overlapping[side] += middle_last - middle_first + 1
        joined = _Joined(1 + lacks_left + lacks_right, done)
        self._join(overlap, _Waiter(reader, middle_first, middle_last, joined.part(int(lacks_left))))
        ledger_id = overlap.ledger_id
        if lacks_left:
            self.read(reader, ledger_id, first, overlap.first - 1, expected_reads, joined.part(0))
        if lacks_right:
            number = 1 + int(lacks_left)
            self.read(reader, ledger_id, overlap.last + 1, last, expected_reads, joined.part(number))


def _best_overlap(running: Iterable[_RunningRead], first: int, last: int) -> _RunningRead | None:
    """The last seen that lacks the right side, else the left, else both: what is read is then asked for in
    the order in which it is delivered."""
    right = left = both = None
    for candidate in running:
        if candidate.first <= first <= candidate.last < last:
            right = candidate
        elif first < candidate.first <= last <= candidate.last:
            left = candidate
        elif first < candidate.first and candidate.last < last:
            both = candidate
    return right or left or both
