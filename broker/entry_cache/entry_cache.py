"""EntryCache: the cached entries of one managed ledger, by ledger and entry id.

Inserting and taking are the hot path of the broker: they work on runs of consecutive entries and count
per run. Entries leave through the broker's removal queue or through one of the invalidations here.
There is one object per entry: what is inserted is what readers get, so nothing is copied or parsed twice.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Protocol

from broker.entry_cache.cache_stats import CacheStats, ReadStats, Reason
from broker.entry_cache.profile import NOT_COUNTED
from broker.entry_cache.removal_queue import NO_LIMIT, Removed
from broker.entry_cache.settings import EntryCacheSettings
from broker.model.entry import Entry
from broker.model.position import EARLIEST, LATEST, Position

_entry_id = attrgetter("entry_id")


class CacheOwner(Protocol):
    """What a cache needs of the manager of all: caches hold the entries, their owner counts and evicts.

    Here and not with the manager, which makes the caches and therefore stands above them.
    """

    enabled: bool
    settings: EntryCacheSettings
    stats: CacheStats

    def admit(self, entries: list[Entry], size_bytes: int, *, slices: bool) -> None:
        """A cache has just taken in entries, at least one; whether any may be a slice of a buffer."""
        ...

    def dismiss(self, removed: Removed, reason: Reason) -> None:
        """A cache has invalidated entries; their slots stay in the removal queue."""
        ...


class RangeCache:
    """The cached entries of one ledger: the `Holder` of each."""

    __slots__ = ("entries", "lowest_id", "size_bytes")

    def __init__(self, lowest_id: int) -> None:
        self.entries: dict[int, Entry] = {}
        self.size_bytes = 0
        self.lowest_id = lowest_id
        """No entry below is present. Lets an invalidation from the front look at few ids."""

    def pop_range(self, first_id: int, end_id: int) -> list[Entry]:
        """Take out, in order, the entries from `first_id` up to but not including `end_id`."""
        held = self.entries
        if first_id <= self.lowest_id:
            first_id = self.lowest_id
            if end_id == NO_LIMIT:
                popped = sorted(held.values(), key=_entry_id)
                held.clear()
                return popped
            self.lowest_id = max(first_id, end_id)
        return [held.pop(entry_id) for entry_id in self.ids_between(first_id, end_id)]

    def ids_between(self, first_id: int, end_id: int) -> list[int]:
        """The ids that are present, ascending; costs the smaller of the range and of what is held."""
        held = self.entries
        if end_id - first_id <= len(held):
            return [entry_id for entry_id in range(first_id, end_id) if entry_id in held]
        return sorted([entry_id for entry_id in held if first_id <= entry_id < end_id])


class EntryCache:
    __slots__ = ("_counts_from", "_ledgers", "_owner", "_profile", "name", "reads")

    def __init__(self, owner: CacheOwner, name: str) -> None:
        """Opened through `EntryCacheManager.open`."""
        self.name = name
        self.reads = ReadStats()
        self._owner = owner
        self._profile = owner.settings.profile
        self._counts_from = self._profile.counts_from
        self._ledgers: dict[int, RangeCache] = {}

    @property
    def entries(self) -> int:
        return sum(len(ledger.entries) for ledger in self._ledgers.values())

    @property
    def size_bytes(self) -> int:
        return sum(ledger.size_bytes for ledger in self._ledgers.values())

    # Filling

    def insert_run(self, entries: list[Entry], expected_reads: int, now_ns: int) -> int:
        """Cache consecutive entries of one ledger; answer how many were not present before.

        `expected_reads`: how many readers are to come, -1 = not counted. The list afterwards holds the
        objects to hand to readers: where the profile lets a refused entry renew the count of the present
        one (5.0), the present one takes its place, so that the reads of both are counted in one place.
        """
        owner = self._owner
        if not (owner.enabled and entries):
            return 0
        head = entries[0]
        ledger = self._ledgers.get(head.ledger_id) or self._open_ledger(head)
        if head.entry_id < ledger.lowest_id:
            ledger.lowest_id = head.entry_id
        count = expected_reads if expected_reads >= self._counts_from else NOT_COUNTED
        held = ledger.entries
        added = entries
        size_bytes = 0
        slices = False
        for index, entry in enumerate(entries):
            entry_id = entry.entry_id
            if entry.holder is not None or entry_id in held:
                added = self._insert_carefully(entries, index, ledger, count, now_ns)
                if not added:
                    return 0
                size_bytes += sum([entry.size for entry in added[index:]])
                slices = True
                break
            held[entry_id] = entry
            entry.cached = True
            entry.holder = ledger
            entry.queued_at_ns = now_ns
            entry.expected_reads = count
            entry.requeue_count = 0
            entry.accessed = False
            size_bytes += entry.size
            if type(entry.body) is memoryview:
                slices = True
        ledger.size_bytes += size_bytes
        owner.admit(added, size_bytes, slices=slices)
        return len(added)

    def insert(self, entry: Entry, expected_reads: int, now_ns: int) -> bool:
        """Cache one entry; whether its position was free."""
        return self.insert_run([entry], expected_reads, now_ns) == 1

    def _insert_carefully(
        self, entries: list[Entry], index: int, ledger: RangeCache, count: int, now_ns: int
    ) -> list[Entry]:
        """Go on from `index`, where the first entry is present or has a slot in the queue already."""
        held = ledger.entries
        added = entries[:index]
        for place in range(index, len(entries)):
            entry = entries[place]
            present = held.get(entry.entry_id)
            if present is not None:
                self._owner.stats.refused_entries += 1
                if self._profile.duplicate_renews_count:
                    present.expected_reads = count
                    entries[place] = present
                continue
            if entry.holder is not None:  # One object, one slot: its old slot has yet to reach the head.
                entry = entries[place] = _twin(entry)
            held[entry.entry_id] = entry
            entry.cached = True
            entry.holder = ledger
            entry.queued_at_ns = now_ns
            entry.expected_reads = count
            entry.requeue_count = 0
            entry.accessed = False
            added.append(entry)
        return added

    def _open_ledger(self, head: Entry) -> RangeCache:
        for ledger_id in [key for key, ledger in self._ledgers.items() if not ledger.entries]:
            del self._ledgers[ledger_id]
        ledger = self._ledgers[head.ledger_id] = RangeCache(head.entry_id)
        return ledger

    # Reading

    def take_run(self, ledger_id: int, first: int, last: int, bytes_max: int) -> list[Entry]:
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
        reads = self.reads
        reads.hit_entries += len(taken)
        reads.hit_bytes += size_bytes
        return taken

    def get(self, ledger_id: int, entry_id: int) -> Entry | None:
        """The entry, counted as read."""
        entry = self.peek(ledger_id, entry_id)
        if entry is not None:
            entry.accessed = True
            self.reads.hit_entries += 1
            self.reads.hit_bytes += entry.size
        return entry

    def get_present(self, ledger_id: int, first: int, last: int) -> list[Entry]:
        """What is present from `first` to `last`, both included, counted as read; the range may be huge.

        The read of a range with gaps, as PIP-430's scenarios have it; the broker itself reads with `take_run`.
        """
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            return []
        present = [ledger.entries[entry_id] for entry_id in ledger.ids_between(first, last + 1)]
        for entry in present:
            entry.accessed = True
            self.reads.hit_bytes += entry.size
        self.reads.hit_entries += len(present)
        return present

    def peek(self, ledger_id: int, entry_id: int) -> Entry | None:
        """The entry, not counted as read."""
        ledger = self._ledgers.get(ledger_id)
        return None if ledger is None else ledger.entries.get(entry_id)

    def count_misses(self, entries: int, size_bytes: int) -> None:
        self.reads.miss_entries += entries
        self.reads.miss_bytes += size_bytes

    def count_coalesced(self, entries: int, size_bytes: int) -> None:
        self.reads.coalesced_entries += entries
        self.reads.coalesced_bytes += size_bytes

    # Invalidating

    def invalidate_ledger(self, ledger_id: int) -> Removed:
        return self._invalidate(EARLIEST, LATEST, Reason.LEDGER, [ledger_id])

    def invalidate_before(self, position: Position) -> Removed:
        """Drop every entry in front of `position`, in whatever ledger."""
        return self.invalidate_range(EARLIEST, position)

    def invalidate_range(self, first: Position, end: Position) -> Removed:
        """Drop the entries from `first` up to but not including `end`."""
        ledger_ids = [key for key in self._ledgers if first.ledger_id <= key <= end.ledger_id]
        return self._invalidate(first, end, Reason.INVALIDATE, sorted(ledger_ids))

    def clear(self) -> Removed:
        return self.invalidate_range(EARLIEST, LATEST)

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
                del self._ledgers[ledger_id]
        self._owner.dismiss(removed, reason)
        return removed


def _twin(entry: Entry) -> Entry:
    """A second object for the same entry, sharing its bytes."""
    twin = Entry(entry.ledger_id, entry.entry_id, entry.header, entry.body, entry.messages)
    twin.facts = entry.facts
    return twin
