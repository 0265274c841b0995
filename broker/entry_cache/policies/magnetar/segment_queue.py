"""SegmentQueue: the segments of the policy `magnetar` in their order, and what is counted about their entries.

A pass for want of room goes over the queue once, its lap: what it has looked at and kept stands in front meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from broker.entry_cache.policies.magnetar.segment import Segment
from broker.entry_cache.policies.policy import Removed
from broker.entry_cache.range_cache import CachedLog, RangeCache
from broker.model.entry import Entry

SEGMENT_ENTRIES_MAX: Final = 64


class SegmentQueue:
    __slots__ = ("_front", "_open", "grain_ns", "held", "lap_left", "segments", "slots", "waiting")

    def __init__(self) -> None:
        self.segments: deque[Segment] = deque()
        """Those that no lap under way has looked at, the oldest first; some are empty."""
        self._front: list[Segment] = []
        """What the lap under way has kept: it stands before the others."""
        self.lap_left = 0
        """How many of `segments` the lap has still to look at."""
        self._open: dict[RangeCache, Segment] = {}
        """By ledger, the segment that takes in more."""
        self.grain_ns = 0
        """For how long a segment takes in entries."""
        self.held: dict[CachedLog, int] = {}
        """Bytes in slots, by log; none are left out but logs without any."""
        self.slots = 0
        self.waiting: dict[Entry, set[int]] = {}
        """The readers whose replays wait for a cached entry; while there are none no segment needs to be searched for
        them. Who waits twice claims once, and nobody takes back the claim of another."""

    def __iter__(self) -> Iterator[Segment]:
        yield from self._front
        yield from self.segments

    # Coming

    def admit(self, entries: list[Entry]) -> None:
        """Entries of one ledger, ascending."""
        self.slots += len(entries)
        head = entries[0]
        holder: RangeCache = head.holder  # type: ignore[assignment]
        self.held[holder.log] = self.held.get(holder.log, 0) + sum([entry.size for entry in entries])
        segment = self._open.get(holder)
        if (
            segment is not None
            and len(segment.entries) + len(entries) <= SEGMENT_ENTRIES_MAX
            and head.queued_at_ns - segment.born_ns < self.grain_ns
            and segment.entries
            and segment.entries[-1].entry_id < head.entry_id
        ):
            segment.entries += entries
            return
        for first in range(0, len(entries), SEGMENT_ENTRIES_MAX):
            newest = Segment(holder, entries[first : first + SEGMENT_ENTRIES_MAX], head.queued_at_ns)
            self.segments.append(newest)
        self._open[holder] = newest

    def close(self, segment: Segment) -> None:
        """It takes in no more entries."""
        if self._open.get(segment.holder) is segment:
            del self._open[segment.holder]

    # In order

    def pop_oldest(self) -> Segment:
        """Of `segments`, of which there is one at least."""
        if self.lap_left:
            self.lap_left -= 1
        return self.segments.popleft()

    def oldest(self) -> Segment | None:
        """The first of `segments` that has entries. It keeps its place."""
        while self.segments and not self.segments[0].entries:
            self.pop_oldest()
        return self.segments[0] if self.segments else None

    def begin_lap(self) -> None:
        self.lap_left = len(self.segments)

    @property
    def lap_under_way(self) -> bool:
        return self.lap_left > 0 or bool(self._front)

    def keep(self, segment: Segment) -> None:
        """The lap has looked at it."""
        self._front.append(segment)
        self.close(segment)  # What comes later is judged by itself.

    def end_lap(self) -> None:
        """What was kept stands where it stood."""
        self.segments.extendleft(reversed(self._front))
        self._front = []
        self.lap_left = 0

    # Going

    def tidy(self, segment: Segment) -> bool:
        """Drop the slots of invalidated entries; whether any entry is left."""
        for entry in segment.forget_invalidated():
            self.slots -= 1
            self._forget(segment, entry)
        if segment.entries:
            return True
        self.close(segment)
        return False

    def remove(self, segment: Segment, taken: list[Entry], removed: Removed) -> None:
        """Entries that the segment has given up, or all of its entries, leave the cache."""
        holder = segment.holder
        size_bytes = 0
        for entry in taken:
            self._forget(segment, entry)
            entry.holder = None
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
        if taken is segment.entries or not segment.entries:
            segment.entries = []
            self.close(segment)

    def _forget(self, segment: Segment, entry: Entry) -> None:
        """The entry has no slot any more."""
        if entry.expected_reads > 0:
            self.waiting.pop(entry, None)
        log = segment.holder.log
        left = self.held[log] - entry.size
        if left:
            self.held[log] = left
        else:
            del self.held[log]
