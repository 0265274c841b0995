"""EntryCache: the cached entries of one managed ledger, by ledger and entry id: who reads them, and how they leave.

Filling it stands in `CacheFilling`. Taking is the hot path of the broker: it works on runs of consecutive entries and
counts per run. Entries leave through the broker's removal queue or through one of the invalidations here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from broker.entry_cache.cache_events import HIT_AGAIN, HIT_MOVES, HIT_STAYS, REASONS, Op, Row
from broker.entry_cache.cache_filling import CacheFilling, CacheOwner
from broker.entry_cache.cache_stats import PendingReadStats, ReadStats, Reason
from broker.entry_cache.policies.policy import NO_LIMIT, Removed
from broker.entry_cache.reader import Reader
from broker.entry_cache.runs import runs_of
from broker.model.entry import Entry
from broker.model.position import EARLIEST, LATEST, Position


class EntryCache(CacheFilling):
    __slots__ = ("_last_number", "_readers", "reads")

    def __init__(self, owner: CacheOwner, name: str) -> None:
        """Opened through `EntryCacheManager.open`."""
        super().__init__(owner, name)
        self.reads = ReadStats()
        """Of all readers, those that have gone included."""
        self._readers: dict[str, Reader] = {}
        self._last_number = 0

    def reader(self, name: str) -> Reader:
        """The reader of that name; a cursor that is made anew goes on with the numbers of the old one."""
        reader = self._readers.get(name)
        if reader is None:
            self._last_number += 1
            reader = self._readers[name] = Reader(name, self._last_number)
            self._owner.decisions.reader_made(self.name, reader.number, name)
        return reader

    def forget_reader(self, name: str) -> None:
        """The cursor is gone for good. Its number is not given to another."""
        self._readers.pop(name, None)

    @property
    def pending_reads(self) -> PendingReadStats:
        """Those of the broker: nobody asks for them by log."""
        return self._owner.stats.pending_reads

    # Reading

    def take_run(self, reader: Reader, ledger_id: int, first: int, last: int, bytes_max: int) -> list[Entry]:
        """The entries present from `first` on, without a gap, up to `last` and to `bytes_max` bytes.

        At least one is taken whatever its size, if `first` is present. They count as read.
        """
        ledger = self._ledgers.get(ledger_id)
        taken: list[Entry] = []
        if ledger is None:
            return taken
        get = ledger.entries.get
        size_bytes = 0
        for entry_id in range(first, last + 1):
            entry = get(entry_id)
            if entry is None:
                break
            size_bytes += entry.size
            if size_bytes > bytes_max and taken:
                size_bytes -= entry.size
                break
            entry.accessed = True
            taken.append(entry)
        if not taken:
            return taken
        row = self._count_hits(reader, ledger_id, first, len(taken), size_bytes, HIT_MOVES)
        return taken if row is None else self._owner.decisions.taken(taken, row)

    def get(self, reader: Reader, ledger_id: int, entry_id: int, detail: int = HIT_STAYS) -> Entry | None:
        """The entry, counted as read."""
        entry = self.peek(ledger_id, entry_id)
        if entry is not None:
            entry.accessed = True
            self._count_hits(reader, ledger_id, entry_id, 1, entry.size, detail)
        return entry

    def get_again(self, reader: Reader, ledger_id: int, entry_id: int) -> Entry | None:
        """The entry, counted as read, for a replay that has waited for it."""
        entry = self.get(reader, ledger_id, entry_id, HIT_AGAIN)
        if entry is not None:
            self._owner.policy.taken_again(reader.number, entry)
        return entry

    def wait_no_longer(self, reader: Reader, positions: Iterable[tuple[int, int]]) -> None:
        """The reader's replays that waited for these entries will not ask for them."""
        cached = self.present(positions)
        for entry in cached:
            self._owner.policy.taken_again(reader.number, entry)
        if self._owner.decisions.record is not None:
            self._owner.decisions.counted(Op.GIVEN_UP, cached, reader.number)

    def get_present(self, reader: Reader, ledger_id: int, first: int, last: int) -> list[Entry]:
        """What is present from `first` to `last`, both included, counted as read; the range may be huge."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            return []
        present = [ledger.entries[entry_id] for entry_id in ledger.ids_between(first, last + 1)]
        for entry in present:
            entry.accessed = True
        for _, run_first, count, size_bytes in runs_of(present):
            self._count_hits(reader, ledger_id, run_first, count, size_bytes, HIT_STAYS)
        return present

    def _count_hits(
        self, reader: Reader, ledger_id: int, first: int, count: int, size_bytes: int, detail: int
    ) -> Row | None:
        """The event, if it was noted."""
        reads, own = self.reads, reader.reads
        reads.hit_entries += count
        reads.hit_bytes += size_bytes
        own.hit_entries += count
        own.hit_bytes += size_bytes
        decisions = self._owner.decisions
        if not decisions.on:
            return None
        return decisions.read(Op.HIT, self.name, reader, ledger_id, first, count, size_bytes, detail)

    def present(self, positions: Iterable[tuple[int, int]]) -> list[Entry]:
        """What is cached of these, not counted as read."""
        return [entry for position in positions if (entry := self.peek(*position)) is not None]

    def peek(self, ledger_id: int, entry_id: int) -> Entry | None:
        """The entry, not counted as read."""
        ledger = self._ledgers.get(ledger_id)
        return None if ledger is None else ledger.entries.get(entry_id)

    def note_asked(self, op: Op, reader: Reader, ledger_id: int, first: int, count: int) -> None:
        """MISS or COALESCED when entries are asked for, FAILED when that came to nothing."""
        decisions = self._owner.decisions
        if decisions.on:
            cached = 0 if op is Op.FAILED else self._cached_between(ledger_id, first, count)
            decisions.read(op, self.name, reader, ledger_id, first, count, 0, cached)

    def _cached_between(self, ledger_id: int, first: int, count: int) -> int:
        ledger = self._ledgers.get(ledger_id)
        return 0 if ledger is None else len(ledger.ids_between(first, first + count))

    def count_misses(self, reader: Reader, entries: Sequence[Entry]) -> None:
        """Consecutive entries, at least one, have arrived that were read from storage for this reader."""
        size_bytes = sum([entry.size for entry in entries])
        for reads in (self.reads, reader.reads):
            reads.miss_entries += len(entries)
            reads.miss_bytes += size_bytes
        self._owner.decisions.arrived(Op.MISS, self.name, reader.number, entries, size_bytes)

    def count_coalesced(self, reader: Reader, entries: Sequence[Entry]) -> None:
        """Likewise from a storage read that another reader had started."""
        size_bytes = sum([entry.size for entry in entries])
        for reads in (self.reads, reader.reads):
            reads.coalesced_entries += len(entries)
            reads.coalesced_bytes += size_bytes
        self._owner.decisions.arrived(Op.COALESCED, self.name, reader.number, entries, size_bytes)

    # Invalidating

    def invalidate_ledger(self, ledger_id: int) -> Removed:
        now_ns = self._owner.decisions.now_ns()
        self._owner.decisions.place(Op.INVALIDATE, self.name, 0, ledger_id, 0, 1, at_ns=now_ns)
        return self._invalidate(EARLIEST, LATEST, Reason.LEDGER, [ledger_id], now_ns)

    def invalidate_before(self, position: Position) -> Removed:
        """Drop every entry in front of `position`, in whatever ledger."""
        now_ns = self._owner.decisions.now_ns()
        if self._ledgers:
            self._owner.decisions.place(Op.INVALIDATE, self.name, 0, *position, at_ns=now_ns)
        return self._invalidate_range(EARLIEST, position, now_ns)

    def _invalidate_range(self, first: Position, end: Position, now_ns: int) -> Removed:
        """Drop the entries from `first` up to but not including `end`."""
        ledger_ids = [key for key in self._ledgers if first.ledger_id <= key <= end.ledger_id]
        return self._invalidate(first, end, Reason.INVALIDATE, sorted(ledger_ids), now_ns)

    def clear(self) -> Removed:
        return self.invalidate_before(LATEST)

    def _invalidate(
        self, first: Position, end: Position, reason: Reason, ledger_ids: list[int], now_ns: int
    ) -> Removed:
        removed = Removed()
        for ledger_id in ledger_ids:
            ledger = self._ledgers.get(ledger_id)
            if ledger is None:
                continue
            first_id = first.entry_id if ledger_id == first.ledger_id else -1
            end_id = end.entry_id if ledger_id == end.ledger_id else NO_LIMIT
            popped = ledger.pop_range(first_id, end_id)
            size_bytes = 0
            for entry in popped:
                entry.cached = False
                size_bytes += entry.size
            ledger.size_bytes -= size_bytes
            removed.size_bytes += size_bytes
            removed.entries += popped
        self.evicted_entries[REASONS.index(reason)] += len(removed.entries)
        self._owner.dismiss(self, removed, reason, now_ns)
        for ledger_id in ledger_ids:
            ledger = self._ledgers.get(ledger_id)
            if ledger is not None and not ledger.entries:
                self._forget_ledger(ledger_id)
        return removed
