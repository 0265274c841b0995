"""CacheFilling: the filling half of a managed ledger's cache: what enters it, and what is noted of that.

Inserting is the hot path of the broker: it works on runs of consecutive entries and counts per run. There is one
object per entry: what is inserted is what readers get, so nothing is copied or parsed twice.
"""

from __future__ import annotations

from typing import Final, Protocol

from broker.entry_cache.active_cursors import ActiveCursors
from broker.entry_cache.cache_events import BY_MARK_DELETE, COUNTS_READS, REASONS, Obstacle, Op
from broker.entry_cache.cache_stats import CacheStats, Reason
from broker.entry_cache.decisions import Decisions
from broker.entry_cache.policies.policy import NO_LIMIT, NOT_COUNTED, Policy, Removed
from broker.entry_cache.range_cache import RangeCache
from broker.entry_cache.settings import EntryCacheSettings
from broker.model.entry import Entry

PORTIONS: Final = 4
"""A run that is larger than the cache is taken in by parts of it, each of this part of the cache at most."""


class CacheOwner(Protocol):
    """What a cache needs of the manager of all: caches hold the entries, their owner counts and evicts.

    Not with the manager, which makes the caches and therefore stands above them.
    """

    enabled: bool
    settings: EntryCacheSettings
    stats: CacheStats
    policy: Policy
    decisions: Decisions

    def ledger_opened(self, ledger_id: int, cache: CacheFilling) -> None:
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

    def dismiss(self, cache: CacheFilling, removed: Removed, reason: Reason, now_ns: int) -> None:
        """A cache has invalidated entries; their slots stay in the removal queue."""
        ...


class CacheFilling:
    __slots__ = ("_ledgers", "_owner", "evicted_entries", "name", "readers")

    def __init__(self, owner: CacheOwner, name: str) -> None:
        self.name = name
        self.readers: ActiveCursors | None = None
        """The log's cursors, for a policy that looks at them; the log says which."""
        self.evicted_entries = [0] * len(REASONS)
        """By number of the reason."""
        self._owner = owner
        self._ledgers: dict[int, RangeCache] = {}

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

    def expected_from(self, ledger_id: int, now_ns: int) -> int:
        """The lowest entry id of the ledger that a reader is to come for, where the policy sees that by position;
        NO_LIMIT where it does not, or nobody comes."""
        if self.readers is None or not self._owner.policy.by_position:
            return NO_LIMIT
        return self.readers.expected_from(ledger_id, now_ns)

    def expected_back(self, entry: Entry, now_ns: int) -> tuple[str, ...]:
        """The cursors that left a short while ago and will come to a cached entry, where the policy waits for them."""
        if self.readers is None or not self._owner.policy.by_position:
            return ()
        return self.readers.names_returning(entry.position, now_ns)

    def reads_left(self, entry: Entry, now_ns: int) -> int | None:
        """How many reads of a cached entry are expected, at least 0; None where they are not counted."""
        count = entry.expected_reads
        if self.readers is not None and self._owner.policy.by_position:
            return count + self.readers.rank_at(entry.position) + len(self.expected_back(entry, now_ns))
        return None if count == NOT_COUNTED else max(0, count)

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


def _twin(entry: Entry) -> Entry:
    """A second object for the same entry, sharing its bytes."""
    twin = Entry(entry.ledger_id, entry.entry_id, entry.header, entry.body, entry.messages)
    twin.facts = entry.facts
    return twin
