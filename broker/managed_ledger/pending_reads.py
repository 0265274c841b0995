"""PendingReads: readers that want what is being read from storage already wait for it (PIP-430, coalescing).

Per ledger, the reads under way. A new one looks for the same range, then for one that includes it, then for
one that overlaps: it waits for the overlap and reads the rest. Everybody receives the same entry objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from broker.entry_cache.decisions import Op
from broker.entry_cache.entry_cache import EntryCache
from broker.entry_cache.reader import Reader
from broker.errors import BrokerError
from broker.model.entry import Entry

EntriesRead = Callable[[list[Entry], BrokerError | None], None]
"""(the whole range in order, None), or ([], why not)"""

ReadRange = Callable[[Reader, int, int, int, Callable[[], int], EntriesRead], None]
"""(who reads, ledger id, first, last, how many readers are to come: asked when the entries have arrived, done)"""


class PendingReadStats:
    """Pulsar's counters, in entries."""

    __slots__ = ("matched", "matched_included", "missed", "not_read", "overlapping", "read")

    def __init__(self) -> None:
        self.read = 0
        """Asked of storage."""
        self.not_read = 0
        """Received from a read that was under way."""
        self.matched = 0
        self.matched_included = 0
        self.missed = 0
        self.overlapping = {"left": 0, "right": 0, "both": 0}
        """Received from a read that lacked something on that side."""


class _RunningRead:
    __slots__ = ("first", "last", "waiters")

    def __init__(self, reader: Reader, first: int, last: int, done: EntriesRead) -> None:
        self.first = first
        self.last = last
        self.waiters: list[tuple[Reader, int, int, EntriesRead]] = [(reader, first, last, done)]


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
    __slots__ = ("_cache", "_read_range", "_read_storage", "_running", "stats")

    def __init__(
        self, read_storage: ReadRange, cache: EntryCache, read_range: ReadRange | None = None
    ) -> None:
        """`read_storage` never completes inside its call. `read_range` reads what an overlap leaves over;
        it looks in the cache first and then comes back here, which is also what happens without it."""
        self._read_storage = read_storage
        self._read_range: Final = read_range or self.read
        self._cache = cache
        self._running: dict[int, dict[tuple[int, int], _RunningRead]] = {}
        self.stats = PendingReadStats()

    def read(
        self,
        reader: Reader,
        ledger_id: int,
        first: int,
        last: int,
        expected_reads: Callable[[], int],
        done: EntriesRead,
    ) -> None:
        """Entries `first` to `last`, both included. The first who asks for a storage read says for how many
        readers it fills the cache; `done` is called once, never inside this call unless `read_range` does."""
        running = self._running.setdefault(ledger_id, {})
        found = running.get((first, last))
        if found is not None:
            self.stats.matched += last - first + 1
            self._join(reader, found, ledger_id, first, last, done)
            return
        for candidate in running.values():
            if candidate.first <= first and last <= candidate.last:
                self.stats.matched_included += last - first + 1
                self._join(reader, candidate, ledger_id, first, last, done)
                return
        overlap = _best_overlap(running.values(), first, last)
        if overlap is None:
            self._start(reader, ledger_id, first, last, expected_reads, done)
        else:
            self._read_around(reader, overlap, ledger_id, first, last, expected_reads, done)

    def invalidate_ledger(self, ledger_id: int) -> None:
        """Nobody joins the reads under way any more; they still serve those who wait."""
        self._running.pop(ledger_id, None)

    def clear(self) -> None:
        self._running.clear()

    def _join(
        self,
        reader: Reader,
        running: _RunningRead,
        ledger_id: int,
        first: int,
        last: int,
        done: EntriesRead,
    ) -> None:
        self.stats.not_read += last - first + 1
        self._cache.note_asked(Op.COALESCED, reader, ledger_id, first, last - first + 1)
        running.waiters.append((reader, first, last, done))

    def _start(
        self,
        reader: Reader,
        ledger_id: int,
        first: int,
        last: int,
        expected_reads: Callable[[], int],
        done: EntriesRead,
    ) -> None:
        self.stats.read += last - first + 1
        self.stats.missed += last - first + 1
        started = _RunningRead(reader, first, last, done)
        self._running[ledger_id][first, last] = started

        def arrived(entries: list[Entry], error: BrokerError | None) -> None:
            running = self._running.get(ledger_id)
            if running is not None and running.get((first, last)) is started:
                del running[first, last]
                if not running:
                    del self._running[ledger_id]
            self._deliver(started, ledger_id, entries, error)

        self._read_storage(reader, ledger_id, first, last, expected_reads, arrived)

    def _deliver(
        self, ended: _RunningRead, ledger_id: int, entries: list[Entry], error: BrokerError | None
    ) -> None:
        for number, (reader, first, last, done) in enumerate(ended.waiters):
            if error is not None:
                if number:
                    self._cache.note_asked(Op.FAILED, reader, ledger_id, first, last - first + 1)
                done([], error)
                continue
            wanted = entries[first - ended.first : last - ended.first + 1]
            if number:
                self._cache.count_coalesced(reader, len(wanted), sum([entry.size for entry in wanted]))
            done(wanted, None)

    def _read_around(
        self,
        reader: Reader,
        overlap: _RunningRead,
        ledger_id: int,
        first: int,
        last: int,
        expected_reads: Callable[[], int],
        done: EntriesRead,
    ) -> None:
        """Wait for the overlap and read what it lacks, the left side first."""
        lacks_left, lacks_right = first < overlap.first, last > overlap.last
        middle_first, middle_last = max(first, overlap.first), min(last, overlap.last)
        side = "both" if lacks_left and lacks_right else "left" if lacks_left else "right"
        self.stats.overlapping[side] += middle_last - middle_first + 1
        joined = _Joined(1 + lacks_left + lacks_right, done)
        self._join(reader, overlap, ledger_id, middle_first, middle_last, joined.part(int(lacks_left)))
        if lacks_left:
            self._read_range(reader, ledger_id, first, overlap.first - 1, expected_reads, joined.part(0))
        if lacks_right:
            self._read_range(
                reader, ledger_id, overlap.last + 1, last, expected_reads, joined.part(1 + int(lacks_left))
            )


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
