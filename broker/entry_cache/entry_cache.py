"""EntryCache: the cached entries of one managed ledger, by ledger and entry id.

Inserting and taking are the hot path of the broker: they work on runs of consecutive entries and count
per run. Entries leave through the broker's removal queue or through one of the invalidations here.
There is one object per entry: what is inserted is what readers get, so nothing is copied or parsed twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from broker.entry_cache.active_cursors import ActiveCursors
from broker.entry_cache.cache_stats import CacheStats, PendingReadStats, ReadStats, Reason
from broker.entry_cache.decisions import (
    BY_MARK_DELETE,
    COUNTS_READS,
    HIT_AGAIN,
    HIT_MOVES,
    HIT_STAYS,
    REASONS,
    Decisions,
    Obstacle,
    Op,
)
from broker.entry_cache.policies.policy import NO_LIMIT, Policy, Removed
from broker.entry_cache.range_cache import RangeCache
from broker.entry_cache.reader import Reader
from broker.entry_cache.runs import runs_of
from broker.entry_cache.settings import EntryCacheSettings
from broker.model.entry import Entry
from broker.model.position import EARLIEST, LATEST, Position

PORTIONS: Final = 4
"""A run that is larger than the cache is taken in by parts of it, each of this part of the cache at most."""


class CacheOwner(Protocol):
    """What a cache needs of the manager of all: caches hold the entries, their owner counts and evicts.

    Here and not with the manager, which makes the caches and therefore stands above them.
    """

    enabled: bool
    settings: EntryCacheSettings
    stats: CacheStats
    policy: Policy
    decisions: Decisions

    def ledger_opened(self, ledger_id: int, cache: EntryCache) -> None:
        """The cache holds entries of another ledger from now on."""
        ...

    def ledger_closed(self, ledger_id: int) -> None:
        """It holds none of that ledger any more."""
        ...

    def is_full(self, size_bytes: int) -> bool:
        """Whether so many bytes more have no room, for a policy that is strict about it."""
        ...

    def admit(self, entries: list[Entry], size_bytes: int, now_ns: int, *, slices: bool) -> None:
        """A cache has just taken in entries, at least one; whether any may be a slice of a buffer."""
        ...

    def dismiss(self, removed: Removed, reason: Reason) -> None:
        """A cache has invalidated entries; their slots stay in the removal queue."""
        ...


class EntryCache:
    __slots__ = (
        "_last_number",
        "_ledgers",
        "_owner",
        "_readers",
        "evicted_entries",
        "name",
        "readers",
        "reads",
    )

    def __init__(self, owner: CacheOwner, name: str) -> None:
        """Opened through `EntryCacheManager.open`."""
        self.name = name
        self.reads = ReadStats()
        """Of all readers, those that have gone included."""
        self.evicted_entries = [0] * len(REASONS)
        """By number of the reason."""
        self.readers: ActiveCursors | None = None
        """The log's cursors, for a policy that looks at them; the log says which."""
        self._readers: dict[str, Reader] = {}
        self._last_number = 0
        self._owner = owner
        self._ledgers: dict[int, RangeCache] = {}

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

    def range_caches(self) -> list[RangeCache]:
        """One per ledger that has cached entries, or had some."""
        return list(self._ledgers.values())

    @property
    def entries(self) -> int:
        return sum(len(ledger.entries) for ledger in self._ledgers.values())

    @property
    def size_bytes(self) -> int:
        ledgers = self._ledgers.values()
        if len(ledgers) == 1:  # As good as always; policies ask this of thousands of caches in one pass.
            (ledger,) = ledgers
            return ledger.size_bytes
        return sum([ledger.size_bytes for ledger in ledgers]) if ledgers else 0

    # Filling

    def insert_run(self, entries: list[Entry], expected_reads: int, now_ns: int) -> int:
        """Cache consecutive entries of one ledger; answer how many were not present before.

        `expected_reads`: how many readers are to come, -1 = not counted. The list afterwards holds the
        objects to hand to readers: where the profile lets a refused entry renew the count of the present
        one (5.0), the present one takes its place, so that the reads of both are counted in one place.
        """
        owner = self._owner
        if not entries:
            return 0
        if not owner.enabled:
            self.note_not_cached(entries, Obstacle.DISABLED, now_ns)
            return 0
        if owner.policy.make_room is not None:
            if expected_reads <= 0 and not self.readers and owner.is_full(0):
                self.note_not_cached(entries, Obstacle.FULL, now_ns)
                return 0
            room = owner.settings.size_bytes_max
            if sum([entry.size for entry in entries]) > room:
                return self._insert_in_portions(entries, room, expected_reads, now_ns)
        return self._take_in(entries, expected_reads, now_ns)

    def _take_in(self, entries: list[Entry], expected_reads: int, now_ns: int) -> int:
        owner = self._owner
        head = entries[0]
        ledger = self._ledgers.get(head.ledger_id) or self._open_ledger(head)
        if head.entry_id < ledger.lowest_id:
            ledger.lowest_id = head.entry_id
        if entries[-1].entry_id > ledger.highest_id:
            ledger.highest_id = entries[-1].entry_id
        count = owner.policy.initial_count(expected_reads)
        held = ledger.entries
        added = entries
        size_bytes = 0
        slices = False
        for index, entry in enumerate(entries):
            entry_id = entry.entry_id
            if entry.holder is not None or entry_id in held:
                added = self._insert_carefully(entries, index, ledger, expected_reads, now_ns)
                if not added:
                    return 0
                size_bytes += sum([entry.size for entry in added[index:]])
                slices = True
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
        ledger.size_bytes += size_bytes
        if owner.decisions.on:
            self._note_inserted(added, size_bytes, expected_reads, now_ns)
        owner.admit(added, size_bytes, now_ns, slices=slices)
        return len(added)

    def _insert_in_portions(self, entries: list[Entry], room: int, expected_reads: int, now_ns: int) -> int:
        """A run that is larger than the cache: a strict policy takes it in as far as there is room for each part,
        and leaves out entries that are larger by themselves."""
        inserted = 0
        first = 0
        while first < len(entries):
            end, size_bytes = first, 0
            while end < len(entries) and (size_bytes := size_bytes + entries[end].size) <= room // PORTIONS:
                end += 1
            end = max(end, first + 1)
            portion = entries[first:end]
            if portion[0].size > room:
                self.note_not_cached(portion, Obstacle.TOO_LARGE, now_ns)
            else:
                inserted += self.insert_run(portion, expected_reads, now_ns)
                entries[first:end] = portion
            first = end
        return inserted

    def _note_offer(self, entry: Entry, expected_reads: int, now_ns: int) -> None:
        decisions = self._owner.decisions
        if decisions.record is not None:
            decisions.entries(Op.OFFER, self.name, (entry,), entry.size, expected_reads, now_ns)

    def note_appended(self, entries: list[Entry], now_ns: int) -> None:
        """The log has confirmed a run, whether or not it is cached."""
        self._owner.decisions.sized(Op.APPEND, self.name, entries, 0, now_ns)

    def note_fetched(self, entries: list[Entry], expected_reads: int, now_ns: int) -> None:
        """A run has come from storage, whether or not it is cached."""
        self._owner.decisions.sized(Op.FETCHED, self.name, entries, expected_reads, now_ns)

    def note_opened(self, continue_ns: int, now_ns: int, *, counts_reads: bool, by_mark_delete: bool) -> None:
        """The log has its `readers`, as of now; for `continue_ns` see `ActiveCursors`."""
        detail = COUNTS_READS * counts_reads + BY_MARK_DELETE * by_mark_delete
        self._owner.decisions.opened(self.name, continue_ns, detail, now_ns)

    def note_not_cached(self, entries: list[Entry], obstacle: Obstacle, now_ns: int) -> None:
        """A run, confirmed or read from storage, does not enter the cache."""
        owner = self._owner
        if owner.decisions.on and entries:
            stronger = obstacle if owner.enabled else Obstacle.DISABLED
            owner.decisions.not_cached(self.name, entries, stronger, now_ns)

    def _note_inserted(self, added: list[Entry], size_bytes: int, expected_reads: int, now_ns: int) -> None:
        decisions = self._owner.decisions
        who = () if self.readers is None else self.readers.names_at_or_before(added[0].position)
        if added[-1].entry_id - added[0].entry_id == len(added) - 1:
            decisions.entries(Op.INSERT, self.name, added, size_bytes, expected_reads, now_ns, who)
            return
        for entry in added:
            decisions.entries(Op.INSERT, self.name, (entry,), entry.size, expected_reads, now_ns, who)

    def insert(self, entry: Entry, expected_reads: int, now_ns: int) -> bool:
        """Cache one entry; whether its position was free."""
        return self.insert_run([entry], expected_reads, now_ns) == 1

    def _insert_carefully(
        self, entries: list[Entry], index: int, ledger: RangeCache, expected_reads: int, now_ns: int
    ) -> list[Entry]:
        """Go on from `index`, where the first entry is present or has a slot in the queue already."""
        held = ledger.entries
        count = self._owner.policy.initial_count(expected_reads)
        added = entries[:index]
        for place in range(index, len(entries)):
            entry = entries[place]
            present = held.get(entry.entry_id)
            if present is not None:
                self._owner.stats.refused_entries += 1
                self._note_offer(entry, expected_reads, now_ns)
                if self._owner.policy.offered_again(present, count):
                    entries[place] = present
                continue
            if entry.holder is not None:  # One object, one slot: its old slot has yet to reach the head.
                entry = entries[place] = _twin(entry)
            held[entry.entry_id] = entry
            entry.cached = True
            entry.holder = ledger
            entry.inserted_at_ns = now_ns
            entry.queued_at_ns = now_ns
            entry.expected_reads = count
            entry.requeue_count = 0
            entry.accessed = False
            added.append(entry)
        return added

    def _open_ledger(self, head: Entry) -> RangeCache:
        for ledger_id in [key for key, ledger in self._ledgers.items() if not ledger.entries]:
            self._forget_ledger(ledger_id)
        ledger = self._ledgers[head.ledger_id] = RangeCache(self, head.entry_id)
        self._owner.ledger_opened(head.ledger_id, self)
        return ledger

    def _forget_ledger(self, ledger_id: int) -> None:
        del self._ledgers[ledger_id]
        self._owner.ledger_closed(ledger_id)

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
        if taken:
            self._count_hits(reader, ledger_id, first, len(taken), size_bytes, HIT_MOVES)
        return taken

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
            self._owner.policy.taken_again(entry)
        return entry

    def wait_no_longer(self, positions: Iterable[tuple[int, int]]) -> None:
        """Replays that waited for these entries will not ask for them."""
        cached = [entry for position in positions if (entry := self.peek(*position)) is not None]
        for entry in cached:
            self._owner.policy.taken_again(entry)
        if self._owner.decisions.record is not None:
            self._owner.decisions.counted(Op.GIVEN_UP, cached)

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
    ) -> None:
        reads, own = self.reads, reader.reads
        reads.hit_entries += count
        reads.hit_bytes += size_bytes
        own.hit_entries += count
        own.hit_bytes += size_bytes
        decisions = self._owner.decisions
        if decisions.on:
            decisions.read(Op.HIT, self.name, reader, ledger_id, first, count, size_bytes, detail)

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
        self._owner.decisions.place(Op.INVALIDATE, self.name, 0, ledger_id, 0, 1)
        return self._invalidate(EARLIEST, LATEST, Reason.LEDGER, [ledger_id])

    def invalidate_before(self, position: Position) -> Removed:
        """Drop every entry in front of `position`, in whatever ledger."""
        if self._ledgers:
            self._owner.decisions.place(Op.INVALIDATE, self.name, 0, *position)
        return self.invalidate_range(EARLIEST, position)

    def invalidate_range(self, first: Position, end: Position) -> Removed:
        """Drop the entries from `first` up to but not including `end`."""
        ledger_ids = [key for key in self._ledgers if first.ledger_id <= key <= end.ledger_id]
        return self._invalidate(first, end, Reason.INVALIDATE, sorted(ledger_ids))

    def clear(self) -> Removed:
        return self.invalidate_before(LATEST)

    def _invalidate(self, first: Position, end: Position, reason: Reason, ledger_ids: list[int]) -> Removed:
        removed = Removed()
        for ledger_id in ledger_ids:
            ledger = self._ledgers.get(ledger_id)
            if ledger is None:
                continue
            first_id = first.entry_id if ledger_id == first.ledger_id else -1
            end_id = end.entry_id if ledger_id == end.ledger_id else NO_LIMIT
            popped = ledger.pop_range(first_id, end_id)
            size_bytes = wanted = 0
            for entry in popped:
                entry.cached = False
                size_bytes += entry.size
                wanted += entry.expected_reads > 0
            ledger.size_bytes -= size_bytes
            removed.size_bytes += size_bytes
            removed.wanted += wanted
            removed.entries += popped
            if not ledger.entries:
                self._forget_ledger(ledger_id)
        self.evicted_entries[REASONS.index(reason)] += len(removed.entries)
        self._owner.dismiss(removed, reason)
        return removed


def _twin(entry: Entry) -> Entry:
    """A second object for the same entry, sharing its bytes."""
    twin = Entry(entry.ledger_id, entry.entry_id, entry.header, entry.body, entry.messages)
    twin.facts = entry.facts
    return twin
