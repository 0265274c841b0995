"""EntryCache: the cached entries of one managed ledger (PIP-430, RangeEntryCacheImpl).

Inserting and reading are the hot path of the broker: both work on runs of consecutive entries of one ledger and count
once for each run. One `Entry` object serves all: the object that is inserted is the one that readers get and that
stands in the removal queue, so nothing is copied or parsed twice.

Entries leave through the passes of the policy, which take them out of the `RangeCache`s without a call to this object,
or through the invalidations here. The managed ledger calls all of this; `EntryCacheManager` makes the object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from entry_cache.active_cursors import ActiveCursors
from entry_cache.cache_stats import NO_READS, ReadStats, Reason
from entry_cache.eviction import Eviction
from entry_cache.expected_reads import ReadCounts
from entry_cache.listener import CacheListener, HitKind, Obstacle, StorageRead
from entry_cache.policy import NO_LIMIT, Removed
from entry_cache.range_cache import RangeCache
from entry_cache.reader import LOOKS_ONLY, Reader
from entry_cache.runs import runs_of
from foundation.model.entry import Entry
from foundation.model.position import EARLIEST, LATEST, Position

_NO_LEDGERS: Final[dict[int, RangeCache]] = {}
_NO_READERS: Final[dict[str, Reader]] = {}
"""Of every cache without a cached entry since it was opened, and without a reader. Nothing is ever put in."""


class EntryCache:
    """Holds a `RangeCache` for each ledger of the managed ledger that has cached entries."""

    __slots__ = (
        "_clock",
        "_counts",
        "_first_reader",
        "_last_number",
        "_readers",
        "cursors",
        "eviction",
        "ledgers",
        "listener",
        "name",
        "reads",
    )

    def __init__(
        self,
        name: str,
        eviction: Eviction,
        counts: ReadCounts,
        listener: CacheListener,
        clock: Callable[[], int],
    ) -> None:
        """Made by `EntryCacheManager.open`. `clock` says the time of invalidations, in monotonic nanoseconds."""
        self.name = name
        """The managed ledger's name."""
        self.listener = listener
        """Hears of everything here; the managed ledger reports to it what the cache cannot see."""
        self.cursors: ActiveCursors | None = None
        """The log's active cursors; see `attach_cursors`."""
        self.reads = NO_READS
        """Reads of all cursors, those that were deleted included, and reads of no cursor; Pulsar's metrics have all."""
        self.eviction = eviction
        """The totals and limits of all caches, which inserts report to."""
        self._counts = counts
        self._clock = clock
        self.ledgers = _NO_LEDGERS
        """By id, the ledgers that have cached entries, or had some a short while ago. Others may read it."""
        # Most logs have one reader, and a dict for it would take 184 bytes.
        self._first_reader: Reader | None = None
        self._readers = _NO_READERS
        self._last_number = 0

    # Cursors

    def attach_cursors(
        self,
        cursors: ActiveCursors,
        now_ns: int = 0,
        *,
        counts_reads: bool = False,
        by_mark_delete: bool = False,
    ) -> None:
        """Takes the active cursors, and tells listeners their rules (`CacheListener.cursors_attached`)."""
        self.cursors = cursors
        self.listener.cursors_attached(
            self, cursors, now_ns, counts_reads=counts_reads, by_mark_delete=by_mark_delete
        )

    def reader(self, name: str) -> Reader:
        """Returns the reader of that name; a cursor that is made anew continues the counts of the old one."""
        reader = self._known_reader(name)
        if reader is None:
            self._last_number += 1
            reader = Reader(name, self._last_number)
            if self._first_reader is None:
                self._first_reader = reader
            elif self._readers is _NO_READERS:
                self._readers = {name: reader}
            else:
                self._readers[name] = reader
            self.listener.reader_made(self, reader)
        return reader

    def _known_reader(self, name: str) -> Reader | None:
        first = self._first_reader
        return first if first is not None and first.name == name else self._readers.get(name)

    def forget_reader(self, name: str) -> None:
        """Forgets a deleted cursor; its number is not given to another."""
        if self._first_reader is not None and self._first_reader.name == name:
            self._first_reader = None
        else:
            self._readers.pop(name, None)

    @property
    def cursor_reads(self) -> ReadStats:
        """The reads of cursors alone: a look at a message says nothing of how well the cache serves consumers."""
        looks = self._known_reader(LOOKS_ONLY)
        # Most topics have never been looked at, and pages ask all of them.
        return self.reads if looks is None or not looks.reads.entries else self.reads.without(looks.reads)

    # Levels

    @property
    def entries(self) -> int:
        """The number of cached entries."""
        return sum(len(ledger.entries) for ledger in self.ledgers.values())

    @property
    def size_bytes(self) -> int:
        """The bytes of all cached entries."""
        ledgers = self.ledgers.values()
        if len(ledgers) == 1:  # Nearly always; `magnetar` asks this of thousands of caches in one pass.
            (ledger,) = ledgers
            return ledger.size_bytes
        return sum([ledger.size_bytes for ledger in ledgers]) if ledgers else 0

    # Inserting

    def insert_run(self, entries: list[Entry], expected_reads: int | None, now_ns: int) -> int:
        """Caches consecutive entries of one ledger. Returns how many of them were not present before.

        `expected_reads` is the number of readers that are to come; None = not counted. Afterwards the list holds the
        objects to deliver: an entry that was present may take the place of the offered one (`ReadCounts.offered_again`).
        """
        if not entries:
            return 0
        eviction = self.eviction
        if not eviction.enabled:
            self.not_cached(entries, Obstacle.DISABLED, now_ns)
            return 0
        if eviction.bound is not None:
            return eviction.bound.insert_run(self, entries, expected_reads, now_ns)
        return self.insert_now(entries, expected_reads, now_ns)

    def insert_now(self, entries: list[Entry], expected_reads: int | None, now_ns: int) -> int:
        """Inserts a run as `insert_run` does, whatever its size. For `insert_run` and a `SizeBound`."""
        head = entries[0]
        ledger = self.ledgers.get(head.ledger_id) or self._open_ledger(head)
        if head.entry_id < ledger.lowest_id:
            ledger.lowest_id = head.entry_id
        if entries[-1].entry_id > ledger.highest_id:
            ledger.highest_id = entries[-1].entry_id
        count = self._counts.initial(expected_reads)
        held = ledger.entries
        added = todo = entries
        size_bytes = 0
        slices = False
        # Once, and once more for the rest of a run in which an entry cannot be inserted as it is.
        while True:
            for index, entry in enumerate(todo):
                entry_id = entry.entry_id
                if entry.holder is not None or entry_id in held:
                    todo = self._insertable(entries, index, held, expected_reads, now_ns)
                    added = entries[:index] + todo
                    break
                held[entry_id] = entry
                entry.cached = True
                entry.holder = ledger
                entry.inserted_at_ns = now_ns
                entry.queued_at_ns = now_ns
                entry.expected_reads = count
                entry.requeue_count = 0
                entry.accessed = False
                size_bytes += entry.size
                if type(entry.body) is memoryview:
                    slices = True
            else:
                break
        if not added:
            return 0
        ledger.size_bytes += size_bytes
        if slices:
            self.listener.slices_inserted(added)
        self.listener.inserted(self, added, size_bytes, expected_reads, now_ns)
        self.eviction.admit(added, size_bytes, now_ns)
        return len(added)

    def _insertable(
        self,
        entries: list[Entry],
        first: int,
        held: dict[int, Entry],
        expected_reads: int | None,
        now_ns: int,
    ) -> list[Entry]:
        """Returns the objects to insert for a run from the index `first` on, without those that are present."""
        count = self._counts.initial(expected_reads)
        insertable = []
        for index in range(first, len(entries)):
            entry = entries[index]
            present = held.get(entry.entry_id)
            if present is not None:
                self.eviction.stats.refused_entries += 1
                self.listener.offered_again(self, entry, expected_reads, now_ns)
                if self._counts.offered_again(present, count):
                    entries[index] = present
                continue
            if entry.holder is not None:
                # The entry was invalidated, and its slot has not reached the head yet. One object has one slot at most,
                # or a pass would take the cached entry for the invalidated one: so insert a second object.
                entry = entries[index] = entry.twin()
            insertable.append(entry)
        return insertable

    def not_cached(self, entries: Sequence[Entry], obstacle: Obstacle, now_ns: int) -> None:
        """Reports a run that does not enter the cache."""
        if entries:
            reported = obstacle if self.eviction.enabled else Obstacle.DISABLED
            self.listener.not_cached(self, entries, reported, now_ns)

    def _open_ledger(self, head: Entry) -> RangeCache:
        """Makes the range cache of another ledger, and drops those that have become empty."""
        for ledger_id in [key for key, ledger in self.ledgers.items() if not ledger.entries]:
            self._close_ledger(ledger_id)
        if self.ledgers is _NO_LEDGERS:
            self.ledgers = {}
        ledger = self.ledgers[head.ledger_id] = RangeCache(self, head.entry_id)
        self.listener.ledger_changed(self, head.ledger_id, opened=True)
        return ledger

    def _close_ledger(self, ledger_id: int) -> None:
        del self.ledgers[ledger_id]
        self.listener.ledger_changed(self, ledger_id, opened=False)

    # Reading

    def read_run(self, reader: Reader, ledger_id: int, first: int, last: int, bytes_max: int) -> list[Entry]:
        """Returns the entries from `first` on without a gap, up to `last` and to `bytes_max` bytes.

        They stay cached, count as hits, and are marked as accessed. The run has at least one entry if `first` is
        cached, because an entry larger than `bytes_max` could never be read otherwise.
        """
        ledger = self.ledgers.get(ledger_id)
        run: list[Entry] = []
        if ledger is None:
            return run
        get = ledger.entries.get
        size_bytes = 0
        for entry_id in range(first, last + 1):
            entry = get(entry_id)
            if entry is None:
                break
            size_bytes += entry.size
            if size_bytes > bytes_max and run:
                size_bytes -= entry.size
                break
            entry.accessed = True
            run.append(entry)
        if not run:
            return run
        # `_count_hits` written out: reads of single entries are as frequent as messages.
        count = len(run)
        reads, own = self.reads, reader.reads
        if own is NO_READS or reads is NO_READS:
            reads, own = self.counters(reader)
        reads.hit_entries += count
        reads.hit_bytes += size_bytes
        own.hit_entries += count
        own.hit_bytes += size_bytes
        return self.listener.run_read(self, reader, run, size_bytes)

    def get(
        self, reader: Reader, ledger_id: int, entry_id: int, kind: HitKind = HitKind.STAYS
    ) -> Entry | None:
        """Returns one entry, counted as a hit; None if it is not cached."""
        entry = self.peek(ledger_id, entry_id)
        if entry is not None:
            entry.accessed = True
            self._count_hits(reader, 1, entry.size)
            self.listener.hit(self, reader, (ledger_id, entry_id, 1, entry.size), kind)
            if kind is HitKind.REDELIVERY:
                self.listener.redelivery_read(reader, entry)
        return entry

    def get_present(self, reader: Reader, ledger_id: int, first: int, last: int) -> list[Entry]:
        """Returns all cached entries from `first` to `last`, both included, counted as hits; there may be gaps."""
        ledger = self.ledgers.get(ledger_id)
        if ledger is None:
            return []
        present = ledger.between(first, last + 1)
        for entry in present:
            entry.accessed = True
        for run in runs_of(present):
            self._count_hits(reader, run[2], run[3])
            self.listener.hit(self, reader, run, HitKind.STAYS)
        return present

    def present(self, positions: Iterable[tuple[int, int]]) -> list[Entry]:
        """Returns those entries that are cached, not counted as read."""
        return [entry for position in positions if (entry := self.peek(*position)) is not None]

    def present_between(self, ledger_id: int, first: int, end: int) -> list[Entry]:
        """Returns the cached entries from `first` up to but not including `end`, not counted as read."""
        ledger = self.ledgers.get(ledger_id)
        return [] if ledger is None else ledger.between(first, end)

    def peek(self, ledger_id: int, entry_id: int) -> Entry | None:
        """Returns one entry, not counted as read; None if it is not cached."""
        ledger = self.ledgers.get(ledger_id)
        return None if ledger is None else ledger.entries.get(entry_id)

    def _count_hits(self, reader: Reader, count: int, size_bytes: int) -> None:
        for reads in self.counters(reader):
            reads.count_hits(count, size_bytes)

    def counters(self, reader: Reader) -> tuple[ReadStats, ReadStats]:
        """Returns the counts of the cache and of the reader, to be changed; made by the first use."""
        if reader.reads is NO_READS:
            reader.reads = ReadStats()
        if self.reads is NO_READS:
            self.reads = ReadStats()
        return self.reads, reader.reads

    def count_arrived(self, read: StorageRead, reader: Reader, entries: Sequence[Entry]) -> None:
        """Counts a run, at least one entry, that came from storage to this reader: as a miss, or as coalesced."""
        size_bytes = sum([entry.size for entry in entries])
        for reads in self.counters(reader):
            reads.count_arrived(read is StorageRead.COALESCED, len(entries), size_bytes)
        self.listener.arrived(read, self, reader, entries, size_bytes)

    # Invalidating

    def invalidate_ledger(self, ledger_id: int) -> Removed:
        """Removes all entries of one ledger: it was deleted, or could not be read."""
        now_ns = self._clock()
        self.listener.invalidating(self, Position(ledger_id, 0), now_ns, whole_ledger=True)
        first, end = Position(ledger_id, -1), Position(ledger_id, NO_LIMIT)
        return self.invalidate_range(first, end, Reason.LEDGER, now_ns)

    def invalidate_before(self, position: Position) -> Removed:
        """Removes every entry before `position`, in all ledgers."""
        now_ns = self._clock()
        if self.ledgers:
            self.listener.invalidating(self, position, now_ns, whole_ledger=False)
        return self.invalidate_range(EARLIEST, position, Reason.INVALIDATE, now_ns)

    def clear(self) -> Removed:
        """Removes every entry."""
        return self.invalidate_before(LATEST)

    def invalidate_range(self, first: Position, end: Position, reason: Reason, now_ns: int) -> Removed:
        """Removes the entries from `first` up to but not including `end`.

        Their slots in the queue stay until a pass meets them: taking them out of the middle would cost a walk.
        """
        removed = Removed()
        ledger_ids = sorted([key for key in self.ledgers if first.ledger_id <= key <= end.ledger_id])
        for ledger_id in ledger_ids:
            first_id = first.entry_id if ledger_id == first.ledger_id else -1
            end_id = end.entry_id if ledger_id == end.ledger_id else NO_LIMIT
            popped = self.ledgers[ledger_id].pop_range(first_id, end_id)
            removed.size_bytes += sum([entry.size for entry in popped])
            removed.entries += popped
        self.eviction.dismiss(removed, reason, now_ns)
        for ledger_id in ledger_ids:
            if not self.ledgers[ledger_id].entries:
                self._close_ledger(ledger_id)
        return removed
