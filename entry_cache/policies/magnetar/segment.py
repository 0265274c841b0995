"""CacheSegment: entries of one ledger that were cached within a short while, and the claim of readers on them.

The policy `magnetar` judges and moves segments instead of entries, so a pass visits a fraction of the slots.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from entry_cache.expected_reads import has_expected_reads
from entry_cache.policies.magnetar.reader_view import ReaderView
from entry_cache.range_cache import RangeCache
from foundation.model.entry import Entry
from foundation.model.position import Position

STOPPED_US: Final = 1 << 60
"""The time until a cursor that has stopped reads on: later than any other."""


class Claim(IntEnum):
    """How sure it is that a segment will be read. A size pass removes lower claims first."""

    NONE = 0
    """No reader is known to come."""

    MAY_RETURN = 1
    """A cursor has read past it without acknowledging all of it."""

    EXPECTED = 2
    """A cursor or a redelivery will come to it."""


class CacheSegment:
    """The unit of the policy's queue. It may be empty in the queue, until a pass comes to it."""

    __slots__ = ("born_ns", "entries", "holder", "queued_at_ns", "requeues")

    def __init__(self, holder: RangeCache, entries: list[Entry], now_ns: int) -> None:
        """Takes over the list of entries, which were cached at `now_ns`."""
        self.holder = holder
        """The range cache of all its entries."""
        self.entries = entries
        """The entries of one ledger, ascending; some may have been invalidated."""
        self.born_ns = now_ns
        """When its first entry was cached."""
        self.queued_at_ns = now_ns
        """When it was cached, or requeued the last time."""
        self.requeues = 0
        """How often it was requeued although no reader was sure to come."""

    @property
    def last(self) -> tuple[int, int]:
        """The position of its last entry: a reader of the segment comes to it."""
        # The last entry decides for the whole segment: while a cursor is anywhere in it, its end is still to be
        # read.
        entry = self.entries[-1]
        return entry.ledger_id, entry.entry_id

    def claim(self, view: ReaderView, now_ns: int, patience_ns: int) -> Claim:
        """Returns the strongest claim on its last entry, without regard to redeliveries."""
        last = self.last
        if view.is_expected(last):
            return Claim.EXPECTED
        # A stopped cursor protects what it was about to read, but only for `patience_ns` after the insertion.
        # Otherwise one dead consumer would fill the cache with its backlog.
        if view.has_stopped_before(last) and now_ns - self.born_ns <= patience_ns:
            return Claim.EXPECTED
        return Claim.MAY_RETURN if view.may_return_to(last) else Claim.NONE

    @property
    def visits(self) -> int:
        """The cost of a look at it, in visits to single entries."""
        return 10 + len(self.entries) // 4

    def waits_for_redelivery(self) -> bool:
        """Returns True if a redelivery waits for any of its entries."""
        # Under this policy `expected_reads` counts redeliveries alone (`Redeliveries`).
        return any(has_expected_reads(entry) for entry in self.entries)

    def due_us(self, view: ReaderView) -> int:
        """Returns the microseconds until its end is likely to be read.

        0 for a redelivery; STOPPED_US if only a cursor that has stopped comes.
        """
        due_us = view.due_us(self.last)
        if due_us is not None:
            return min(due_us, STOPPED_US)
        # A redelivery is due at once: a negative acknowledgement is delivered again within its short delay.
        return 0 if self.waits_for_redelivery() else STOPPED_US

    def cut(self, size_bytes: int, *, from_end: bool) -> list[Entry]:
        """Takes out as many entries as have so many bytes, or all, from the front or the end, and returns them."""
        entries = self.entries
        count = found = 0
        for entry in reversed(entries) if from_end else entries:
            if found >= size_bytes:
                break
            count += 1
            found += entry.size
        if count == len(entries):
            self.entries = []
            return entries
        at = len(entries) - count if from_end else count
        first, last = entries[:at], entries[at:]
        self.entries, taken = (first, last) if from_end else (last, first)
        return taken

    def split_before(self, position: Position) -> CacheSegment | None:
        """Cuts off the entries before the position as another segment; None if that is none of them, or all."""
        entries = self.entries
        # A position in another ledger lies before or after the whole segment, so no cut is needed.
        if position.ledger_id != entries[0].ledger_id:
            return None
        count = sum(1 for entry in entries if entry.entry_id < position.entry_id)
        if not 0 < count < len(entries):
            return None
        self.entries = entries[count:]
        return self._other(entries[:count])

    def split_off_others(self) -> CacheSegment | None:
        """Keeps the entries that wait for a redelivery, and returns the others as another segment; None if all wait.

        To be called only if at least one entry waits.
        """
        others = [entry for entry in self.entries if not has_expected_reads(entry)]
        if not others:
            return None
        self.entries = [entry for entry in self.entries if has_expected_reads(entry)]
        return self._other(others)

    def _other(self, entries: list[Entry]) -> CacheSegment:
        # The part keeps time and requeues of the whole; as a new segment it would get another time to live.
        other = CacheSegment(self.holder, entries, self.born_ns)
        other.queued_at_ns, other.requeues = self.queued_at_ns, self.requeues
        return other

    def forget_invalidated(self) -> list[Entry]:
        """Drops the slots of invalidated entries, and returns these entries."""
        gone = [entry for entry in self.entries if not entry.cached]
        if gone:
            self.entries = [entry for entry in self.entries if entry.cached]
            for entry in gone:
                # With `holder` None the same object may be inserted again; see `EntryCache._insertable`.
                entry.holder = None
        return gone
