"""SegmentQueue: the segments of the policy `magnetar` in their order, and counts of their entries.

A size pass scans the queue once. Segments that it has looked at and kept stand in a second list meanwhile, before the
others, and `end_scan` puts them back where they stood.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from entry_cache.expected_reads import has_expected_reads
from entry_cache.policies.magnetar.segment import CacheSegment
from entry_cache.policy import Removed
from entry_cache.range_cache import CachedLog, RangeCache
from foundation.model.entry import Entry

SEGMENT_ENTRIES_MAX: Final = 64
"""The most entries of one segment."""


class SegmentQueue:
    """All segments of all ledgers, the oldest first."""

    def __init__(self, waiting: dict[Entry, set[int]]) -> None:
        """`waiting` is that of `Redeliveries`: removed entries are taken out of it here."""
        self.segments: deque[CacheSegment] = deque()
        """The segments that the running scan has not looked at, the oldest first; some are empty."""
        self._front: list[CacheSegment] = []
        """The segments that the running scan has kept; they stand before the others."""
        self.scan_left = 0
        """How many of `segments` the running scan has still to look at."""
        self._open: dict[RangeCache, CacheSegment] = {}
        """By ledger, the segment that takes in more entries."""
        self.grain_ns = 0
        """For how long a segment takes in entries."""
        self.held: dict[CachedLog, int] = {}
        """By log, the bytes in its slots; logs without any are left out."""
        self.slots = 0
        """Slots of all segments, those of invalidated entries included."""
        self.waiting = waiting
        """By cached entry, the numbers of the readers that wait for it."""

    def __iter__(self) -> Iterator[CacheSegment]:
        yield from self._front
        yield from self.segments

    def admit(self, entries: list[Entry]) -> None:
        """Appends entries of one ledger, ascending, to its open segment or to new ones."""
        self.slots += len(entries)
        head = entries[0]
        holder: RangeCache = head.holder  # type: ignore[assignment]
        self.held[holder.log] = self.held.get(holder.log, 0) + sum([entry.size for entry in entries])
        segment = self._open.get(holder)
        if (
            segment is not None
            and len(segment.entries) + len(entries) <= SEGMENT_ENTRIES_MAX
            # Entries of a long time in one segment would be removed together, long before the time of the last
            # is over.
            and head.queued_at_ns - segment.born_ns < self.grain_ns
            and segment.entries
            # Ids must ascend within a segment. A catch-up read inserts lower ids than those at the tail, so it
            # begins another segment.
            and segment.entries[-1].entry_id < head.entry_id
        ):
            segment.entries += entries
            return
        # A long catch-up read is cut up, so that a size pass can free part of it.
        for first in range(0, len(entries), SEGMENT_ENTRIES_MAX):
            newest = CacheSegment(holder, entries[first : first + SEGMENT_ENTRIES_MAX], head.queued_at_ns)
            self.segments.append(newest)
        self._open[holder] = newest

    def close(self, segment: CacheSegment) -> None:
        """Ends a segment: later entries of its ledger get another one, which is judged by itself."""
        if self._open.get(segment.holder) is segment:
            del self._open[segment.holder]

    # In order

    def pop_oldest(self) -> CacheSegment:
        """Takes out the first of `segments`, which must not be empty."""
        # A segment taken out while a scan runs is one less for the scan, even if `evict_now` took it.
        if self.scan_left:
            self.scan_left -= 1
        return self.segments.popleft()

    def oldest(self) -> CacheSegment | None:
        """Returns the first of `segments` that has entries, which keeps its place; None if none has."""
        # Empty segments stay in the queue until they are met here: taking one out of the middle of a deque
        # would cost a walk.
        while self.segments and not self.segments[0].entries:
            self.pop_oldest()
        return self.segments[0] if self.segments else None

    def begin_scan(self) -> None:
        """Begins a scan over all segments that are queued now."""
        self.scan_left = len(self.segments)

    @property
    def scan_runs(self) -> bool:
        """True from the first check of a scan to its end."""
        return self.scan_left > 0 or bool(self._front)

    def keep(self, segment: CacheSegment) -> None:
        """Puts a segment that the scan has looked at before the others."""
        self._front.append(segment)
        # A kept segment stands among the victims. Entries added to it later would be removed with a claim that
        # was never theirs.
        self.close(segment)

    def end_scan(self) -> None:
        """Puts the kept segments back where they stood."""
        # `extendleft` reverses, so reverse first: the segments must stand oldest first again.
        self.segments.extendleft(reversed(self._front))
        self._front = []
        self.scan_left = 0

    # Removing

    def tidy(self, segment: CacheSegment) -> bool:
        """Drops the slots of invalidated entries. Returns True if the segment has entries left."""
        for entry in segment.forget_invalidated():
            self.slots -= 1
            self._forget(segment, entry)
        if segment.entries:
            return True
        self.close(segment)
        return False

    def remove(self, segment: CacheSegment, taken: list[Entry], removed: Removed) -> None:
        """Removes entries that were cut from the segment, or all of its entries, from the cache."""
        holder = segment.holder
        size_bytes = 0
        for entry in taken:
            self._forget(segment, entry)
            entry.holder = None
            # Its bytes left the range cache with the invalidation; subtracting them twice would make the size
            # negative.
            if not entry.cached:  # Invalidated since the pass looked at its segment.
                continue
            del holder.entries[entry.entry_id]
            entry.cached = False
            size_bytes += entry.size
            removed.entries.append(entry)
        holder.size_bytes -= size_bytes
        removed.size_bytes += size_bytes
        removed.visits += len(taken)
        self.slots -= len(taken)
        # A new list, because `taken` may be that very list and is still needed by the caller.
        if taken is segment.entries or not segment.entries:
            segment.entries = []
            self.close(segment)

    def _forget(self, segment: CacheSegment, entry: Entry) -> None:
        """Takes an entry without a slot out of all counts."""
        # Looking into `waiting` for each removed entry would cost more than this test of its count.
        if has_expected_reads(entry):
            self.waiting.pop(entry, None)
        log = segment.holder.log
        left = self.held[log] - entry.size
        if left:
            self.held[log] = left
        else:
            # Zero is deleted: the equal share divides the size by the number of logs in `held`.
            del self.held[log]
