"""The one queue that decides in which order cached entries leave the broker (PIP-430, removal queue).

Every entry cache appends here when it inserts, and only here are entries removed for age or for lack of
room. A pass looks at heads: an entry that may stay goes back to the tail with a new time, one that may
not leaves its cache, and the first one that no rule asks to leave ends the pass. An entry that was
invalidated leaves its slot behind; the slot is dropped when it comes to the head.

No clock and no I/O: the caller says what time it is and receives what was removed. A pass can be cut
into slices by the number of slots it may visit; slices of one pass remove what the whole would have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from broker.entry_cache.policies.policy import (
    EXPECTED_READS,
    NO_LIMIT,
    NOT_COUNTED,
    RECENTLY_ACCESSED,
    MakeRoom,
    Removed,
    SizePass,
    positive,
)
from broker.entry_cache.policies.profile import Profile
from broker.entry_cache.settings import EntryCacheSettings
from broker.model.entry import Entry


@dataclass(slots=True)
class QueuePass:
    """A size pass that has begun."""

    bytes_to_free: int
    protected_visits: int
    """How many more visited slots may be put back; the profile decides."""


class Pip430:
    """The policy that Apache ships. A `Policy`."""

    __slots__ = (
        "_extend_recently_accessed",
        "_profile",
        "_requeues_max",
        "_slots",
        "admit",
        "by_position",
        "handed_over",
        "make_room",
        "name",
        "requeues",
        "watched",
    )

    def __init__(self, profile: Profile, settings: EntryCacheSettings) -> None:
        self.name = profile.name
        self._profile = profile
        self._slots: deque[Entry] = deque()
        self.admit = self._slots.extend
        self.handed_over = profile.handed_over
        self.make_room: MakeRoom | None = None
        self.by_position = False
        self.requeues = {EXPECTED_READS: 0, RECENTLY_ACCESSED: 0}
        """An entry that was read since the last visit counts as that, expected reads or not."""
        self.watched = False
        self.configure(settings)

    def configure(self, settings: EntryCacheSettings) -> None:
        protects = self._profile.protects
        self._requeues_max = settings.requeues_max if protects else 0
        self._extend_recently_accessed = protects and settings.extend_recently_accessed

    def initial_count(self, expected_reads: int) -> int:
        return expected_reads if expected_reads >= self._profile.counts_from else NOT_COUNTED

    def caches_storage_reads(self, expected_reads: int) -> bool:
        return expected_reads >= self._profile.counts_from

    def offered_again(self, present: Entry, count: int) -> bool:
        if self._profile.duplicate_renews_count:
            present.expected_reads = count
        return self._profile.duplicate_renews_count

    def count_of(self, entry: Entry) -> int | None:
        """The expected reads as the release counts them, possibly below zero; none = not counted."""
        return self._profile.count_of(entry)

    def put_back(self, reader: int, entries: Iterable[Entry]) -> None:
        self._profile.put_back(entries)

    def kept_back(self, reader: int, entries: Iterable[Entry]) -> None:
        """Its read is still counted, since it was not handed over."""

    def taken_again(self, reader: int, entry: Entry) -> None:
        """The hand-over will be counted."""

    def __len__(self) -> int:
        """Slots, those of invalidated entries included."""
        return len(self._slots)

    def __iter__(self) -> Iterator[Entry]:
        """Head first, invalidated entries included."""
        return iter(self._slots)

    def remove_expired(self, threshold_ns: int, now_ns: int, visits_max: int = NO_LIMIT) -> Removed:
        """Remove what joined strictly before `threshold_ns`, except what may stay.

        The next call goes on where a slice ended, since what was put back stands at the tail.
        """
        return self._pass(threshold_ns, NO_LIMIT, NO_LIMIT, now_ns, visits_max)

    def begin_size_pass(self, bytes_to_free: int) -> QueuePass:
        one_lap = len(self._slots) if self._profile.one_protected_lap else NO_LIMIT
        return QueuePass(positive(bytes_to_free), one_lap)

    def free(self, size_pass: SizePass, now_ns: int, visits_max: int = NO_LIMIT) -> Removed:
        """Remove heads until the pass has freed its bytes or the queue is empty.

        What may stay is put back and met again in the same pass, so protection is an order, not a
        guarantee: 4.2 uses up the extensions lap by lap, 5.0 protects during the first lap only.
        """
        assert isinstance(size_pass, QueuePass)
        removed = self._pass(
            NO_LIMIT, size_pass.bytes_to_free, size_pass.protected_visits, now_ns, visits_max
        )
        size_pass.bytes_to_free -= removed.size_bytes
        if size_pass.protected_visits != NO_LIMIT:
            size_pass.protected_visits = max(0, size_pass.protected_visits - removed.visits)
        return removed

    def abandon(self, size_pass: SizePass) -> None:
        """Nothing is aside: every slot stands in the queue."""

    def _pass(
        self, threshold_ns: int, bytes_to_free: int, protected_visits: int, now_ns: int, visits_max: int
    ) -> Removed:
        slots = self._slots
        pop = slots.popleft
        removed: list[Entry] = []
        requeued: dict[str, list[Entry]] | None = (
            {name: [] for name in self.requeues} if self.watched else None
        )
        size_bytes = visits = requeued_accessed = requeued_expected = 0
        extend_accessed, requeues_max = self._extend_recently_accessed, self._requeues_max
        done = True
        while slots:
            if visits == visits_max:
                done = False
                break
            entry = slots[0]
            if not entry.cached:  # Invalidated by somebody else; no rule may keep its slot.
                pop()
                entry.holder = None
                visits += 1
                continue
            if entry.queued_at_ns >= threshold_ns or size_bytes >= bytes_to_free:
                break
            pop()
            if visits < protected_visits and (
                (accessed := extend_accessed and entry.accessed)
                or (entry.expected_reads > 0 and entry.requeue_count < requeues_max)
            ):
                if accessed:
                    requeued_accessed += 1
                else:
                    requeued_expected += 1
                if requeued is not None:
                    requeued[RECENTLY_ACCESSED if accessed else EXPECTED_READS].append(entry)
                entry.queued_at_ns = now_ns
                entry.accessed = False
                entry.requeue_count += 1
                slots.append(entry)
            else:
                size = entry.size
                holder = entry.holder
                assert holder is not None
                del holder.entries[entry.entry_id]
                holder.size_bytes -= size
                entry.holder = None
                entry.cached = False
                size_bytes += size
                removed.append(entry)
            visits += 1
        self.requeues[RECENTLY_ACCESSED] += requeued_accessed
        self.requeues[EXPECTED_READS] += requeued_expected
        return Removed(removed, size_bytes, visits, done, requeued or {})

    def count_wanted(self) -> tuple[int, int]:
        """(entries, bytes) that no rule could remove at once: expected reads left, or never counted.

        A diagnosis: it looks at every slot and drops those of invalidated entries on the way.
        """
        self.drop_invalidated()
        wanted = [
            entry.size
            for entry in self._slots
            if entry.expected_reads > 0 or entry.expected_reads == NOT_COUNTED
        ]
        return len(wanted), sum(wanted)

    def drop_invalidated(self) -> None:
        """Let go of the slots of invalidated entries, wherever they stand; their bytes become free."""
        kept = []
        for entry in self._slots:
            if entry.cached:
                kept.append(entry)
            else:
                entry.holder = None
        self._slots.clear()
        self._slots.extend(kept)
