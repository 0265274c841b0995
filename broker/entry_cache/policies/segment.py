"""Segment: a run of one ledger's entries that were cached within a short while, and who will still read it.

The policy `magnetar` judges and moves segments instead of entries, which makes a visit cost a fraction of an entry.
"""

from __future__ import annotations

from enum import IntEnum

from broker.entry_cache.range_cache import RangeCache
from broker.entry_cache.reader_view import ReaderView, distance
from broker.model.entry import Entry
from broker.model.position import Position


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
    def last(self) -> Position:
        entry = self.entries[-1]
        return Position(entry.ledger_id, entry.entry_id)

    def claim(self, view: ReaderView, now_ns: int, patience_ns: int) -> Claim:
        """The strongest claim on any of its entries that no replay waits for."""
        last = self.last
        if view.nearest(last) is not None:
            return Claim.EXPECTED
        if view.has_stopped_before(last) and now_ns - self.born_ns <= patience_ns:
            return Claim.EXPECTED
        return Claim.MAY_RETURN if view.may_return_to(last) else Claim.NOBODY

    def awaited_by_replay(self) -> bool:
        return any(entry.expected_reads > 0 for entry in self.entries)

    def distance(self, view: ReaderView) -> int:
        """How far its end is from the reader that comes first; one that has stopped is farther than any."""
        nearest = view.nearest(self.last)
        return 1 << 62 if nearest is None else distance(nearest, self.last)

    def split_before(self, position: Position) -> Segment | None:
        """Cut off what stands before the position; None if that is nothing, or all."""
        entries = self.entries
        if position.ledger_id != entries[0].ledger_id:
            return None
        count = sum(1 for entry in entries if entry.entry_id < position.entry_id)
        if not 0 < count < len(entries):
            return None
        front = Segment(self.holder, entries[:count], self.born_ns)
        front.queued_at_ns, front.extensions = self.queued_at_ns, self.extensions
        self.entries = entries[count:]
        return front

    def forget_invalidated(self) -> int:
        """Let go of the slots of entries that were invalidated; how many these were."""
        live = [entry for entry in self.entries if entry.cached]
        gone = len(self.entries) - len(live)
        if gone:
            for entry in self.entries:
                if not entry.cached:
                    entry.holder = None
            self.entries = live
        return gone
