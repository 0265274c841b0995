"""Segment: a run of one ledger's entries that were cached within a short while, and who will still read it.

The policy `magnetar` judges and moves segments instead of entries, which makes a visit cost a fraction of an entry.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from broker.entry_cache.range_cache import RangeCache
from broker.entry_cache.reader_view import ReaderView
from broker.model.entry import Entry
from broker.model.position import Position

STOPPED_US: Final = 1 << 60


class Claim(IntEnum):
    """Who will read a segment. A pass for want of room takes the lower ones first."""

    NOBODY = 0
    MAY_RETURN = 1
    """Somebody has read past it without acknowledging all of it."""

    EXPECTED = 2


class Segment:
    """Never empty while it stands in the queue of the policy."""

    __slots__ = ("born_ns", "entries", "extensions", "holder", "queued_at_ns")

    def __init__(self, holder: RangeCache, entries: list[Entry], now_ns: int) -> None:
        self.holder = holder
        self.entries = entries
        """Of one ledger, ascending; some may have been invalidated."""
        self.born_ns = now_ns
        self.queued_at_ns = now_ns
        """When it was cached, or got another while."""
        self.extensions = 0
        """How many of these it got although nobody was sure to come."""

    @property
    def last(self) -> tuple[int, int]:
        entry = self.entries[-1]
        return entry.ledger_id, entry.entry_id

    def claim(self, view: ReaderView, now_ns: int, patience_ns: int) -> Claim:
        """The strongest claim on any of its entries that no replay waits for."""
        last = self.last
        if view.is_expected(last):
            return Claim.EXPECTED
        if view.has_stopped_before(last) and now_ns - self.born_ns <= patience_ns:
            return Claim.EXPECTED
        return Claim.MAY_RETURN if view.may_return_to(last) else Claim.NOBODY

    @property
    def visits(self) -> int:
        """A look at it costs as much as looking at so many single entries."""
        return 10 + len(self.entries) // 4

    def awaited_by_replay(self) -> bool:
        return any(entry.expected_reads > 0 for entry in self.entries)

    def due_us(self, view: ReaderView) -> int:
        """In how many microseconds its end is likely to be read: 0 for a replay, and for a cursor that has stopped
        later than any."""
        due_us = view.due_us(self.last)
        if due_us is not None:
            return min(due_us, STOPPED_US)
        return 0 if self.awaited_by_replay() else STOPPED_US

    def give_up(self, size_bytes: int, *, from_end: bool) -> list[Entry]:
        """As many of its entries as have so many bytes, or all: its first, or its last."""
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
        self.entries, given = (first, last) if from_end else (last, first)
        return given

    def split_before(self, position: Position) -> Segment | None:
        """Cut off what stands before the position; None if that is nothing, or all."""
        entries = self.entries
        if position.ledger_id != entries[0].ledger_id:
            return None
        count = sum(1 for entry in entries if entry.entry_id < position.entry_id)
        if not 0 < count < len(entries):
            return None
        self.entries = entries[count:]
        return self._other(entries[:count])

    def split_off_unawaited(self) -> Segment | None:
        """Leave only entries that a replay waits for; the others, None if there are none. Call when one waits."""
        others = [entry for entry in self.entries if entry.expected_reads <= 0]
        if not others:
            return None
        self.entries = [entry for entry in self.entries if entry.expected_reads > 0]
        return self._other(others)

    def _other(self, entries: list[Entry]) -> Segment:
        other = Segment(self.holder, entries, self.born_ns)
        other.queued_at_ns, other.extensions = self.queued_at_ns, self.extensions
        return other

    def forget_invalidated(self) -> list[Entry]:
        """Let go of the slots of entries that were invalidated, and answer these."""
        gone = [entry for entry in self.entries if not entry.cached]
        if gone:
            self.entries = [entry for entry in self.entries if entry.cached]
            for entry in gone:
                entry.holder = None
        return gone
