"""The one queue that decides in which order cached entries leave the broker (PIP-430, removal queue).

Every entry cache appends here when it inserts, and only here are entries removed for age or for lack of
room. A pass looks at heads: an entry that may stay goes back to the tail with a new time, one that may
not leaves its cache, and the first one that no rule asks to leave ends the pass. An entry that was
invalidated leaves its slot behind; the slot is dropped when it comes to the head.

No clock and no I/O: the caller says what time it is and receives what was removed. A pass can be cut
into slices by the number of slots it may visit; slices of one pass remove what the whole would have.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from broker.entry_cache.profile import Profile
from broker.model.entry import Entry

NO_LIMIT: Final = sys.maxsize


@dataclass(slots=True)
class SizePass:
    """A size pass that has begun: what is left to do."""

    bytes_to_free: int
    protected_visits: int
    """How many more visited slots may be put back; the profile decides."""


@dataclass(slots=True)
class Removed:
    """What one pass, or one slice of it, has taken out of the caches."""

    entries: list[Entry] = field(default_factory=list)
    size_bytes: int = 0
    wanted: int = 0
    """How many of the entries still had expected reads."""

    visits: int = 0
    done: bool = True
    """Whether the pass has ended; otherwise it used up its visits."""


class RemovalQueue:
    __slots__ = (
        "_profile",
        "_slots",
        "extend",
        "extend_recently_accessed",
        "requeued_accessed",
        "requeued_expected",
        "requeues_max",
    )

    def __init__(self, profile: Profile, requeues_max: int, extend_recently_accessed: bool) -> None:
        self._profile = profile
        self._slots: deque[Entry] = deque()
        self.extend = self._slots.extend
        """Call with entries that have just been put into their holder, `queued_at_ns` set."""
        self.requeues_max = requeues_max
        self.extend_recently_accessed = extend_recently_accessed
        self.requeued_expected = 0
        """Times an entry went back to the tail for its expected reads alone."""
        self.requeued_accessed = 0
        """Times an entry went back because it had been read since the last visit, expected reads or not."""

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

    def begin_size_pass(self, bytes_to_free: int) -> SizePass:
        if bytes_to_free <= 0:
            raise ValueError(f"bytes to free must be positive: {bytes_to_free}")
        return SizePass(bytes_to_free, len(self._slots) if self._profile.one_protected_lap else NO_LIMIT)

    def free(self, size_pass: SizePass, now_ns: int, visits_max: int = NO_LIMIT) -> Removed:
        """Remove heads until the pass has freed its bytes or the queue is empty.

        What may stay is put back and met again in the same pass, so protection is an order, not a
        guarantee: 4.2 uses up the extensions lap by lap, 5.0 protects during the first lap only.
        """
        removed = self._pass(
            NO_LIMIT, size_pass.bytes_to_free, size_pass.protected_visits, now_ns, visits_max
        )
        size_pass.bytes_to_free -= removed.size_bytes
        if size_pass.protected_visits != NO_LIMIT:
            size_pass.protected_visits = max(0, size_pass.protected_visits - removed.visits)
        return removed

    def _pass(
        self, threshold_ns: int, bytes_to_free: int, protected_visits: int, now_ns: int, visits_max: int
    ) -> Removed:
        slots = self._slots
        pop = slots.popleft
        removed: list[Entry] = []
        size_bytes = wanted = visits = requeued_accessed = requeued_expected = 0
        extend_accessed, requeues_max = self.extend_recently_accessed, self.requeues_max
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
                if entry.expected_reads > 0:
                    wanted += 1
                removed.append(entry)
            visits += 1
        self.requeued_accessed += requeued_accessed
        self.requeued_expected += requeued_expected
        return Removed(removed, size_bytes, wanted, visits, done)

    def count_wanted(self) -> tuple[int, int]:
        """(entries, bytes) that no rule could remove at once: expected reads left, or never counted.

        A diagnosis: it looks at every slot and drops those of invalidated entries on the way.
        """
        self.drop_invalidated()
        wanted = [
            entry.size for entry in self._slots if entry.expected_reads > 0 or entry.expected_reads == -1
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
