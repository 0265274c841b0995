"""Readahead: how much of a ledger one load brings besides what was asked for, and where it stops.

A load goes on while all of this holds: fewer entries than `dbStorage_readAheadCacheBatchSize` were read
ahead, fewer bytes than the limits, the next entry stands in the log right behind the last one, and, with
`readAheadStopsAtGap`, its id is the next one. Limits are tested before an entry is read, so the bytes may be
passed by one entry. What is cached already is not looked at. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bookie_stub.base.record import LENGTH_BYTES

LOAD_BYTES_MAX = 16 << 20
"""What one load may read ahead at most: until it is in the cache, nothing else counts it."""


class Readahead(NamedTuple):
    entries_max: int
    bytes_max: int
    stops_at_gap: bool
    """BookKeeper since 4.16. Without it, a bookie that has every n-th entry of a ledger reads ahead too."""


def readahead(entries_max: int, batch_bytes_max: int, cache_bytes: int, stops_at_gap: bool) -> Readahead:
    """`batch_bytes_max` <= 0 sets no limit of its own; half of the read cache always is one."""
    bytes_max = min(cache_bytes // 2, LOAD_BYTES_MAX)
    if batch_bytes_max > 0:
        bytes_max = min(bytes_max, batch_bytes_max)
    return Readahead(entries_max, bytes_max, stops_at_gap)


class Load:
    """One load while it grows: the entries so far, and which entry belongs to it next."""

    __slots__ = ("_ahead_bytes", "_asked", "_end", "_readahead", "_room", "entries", "first", "ids")

    def __init__(self, first: int, asked: int, room: int, limits: Readahead) -> None:
        """`asked` entries from `first` on are to be answered, the first one and what `room` bytes hold.

        In an answer an entry counts as long as its record.
        """
        self.first = first
        self.ids: list[int] = []
        self.entries: list[bytes] = []
        self._asked = asked
        self._room = room
        self._readahead = limits
        self._ahead_bytes = limits.bytes_max
        self._end = -1
        """Where the record would begin that stands right behind the last one, as a location."""

    @property
    def count_max(self) -> int:
        """More entries than these do not belong to the load in any case."""
        ahead = self._readahead.entries_max if self._readahead.bytes_max > 0 else 0
        return max(self._asked, ahead + 1)

    @property
    def bytes_left(self) -> int:
        """What the rest of the load may have, but for its last entry."""
        wanted = self._room if len(self.entries) < self._asked else 0
        return max(wanted, self._ahead_bytes)

    def takes(self, entry_id: int, location: int) -> bool:
        """Whether the load goes on with the entry that the index has next."""
        taken = len(self.ids)
        if not taken:
            return entry_id == self.first
        next_id = entry_id == self.ids[-1] + 1
        if next_id and taken < self._asked and self._room > 0:
            return True
        limits = self._readahead
        return (
            taken <= limits.entries_max
            and self._ahead_bytes > 0
            and location - LENGTH_BYTES == self._end
            and (next_id or not limits.stops_at_gap)
        )

    def take_run(self, ids: Sequence[int], locations: Sequence[int], entries: Iterable[bytes]) -> bool:
        """Take entries as they come, up to the first one that does not belong to the load: then False."""
        limits = self._readahead
        for entry_id, location, entry in zip(ids, locations, entries, strict=False):
            touches = location - LENGTH_BYTES == self._end and entry_id == self.ids[-1] + 1
            # What touches is most often all that there is to ask; whatever else is for `takes` to say.
            within = self._ahead_bytes > 0 and len(self.ids) <= limits.entries_max
            if not (touches and within) and not self.takes(entry_id, location):
                return False
            size = len(entry)
            if self.ids:
                self._ahead_bytes -= size
            self._room -= size + LENGTH_BYTES
            self._end = location + size
            self.ids.append(entry_id)
            self.entries.append(entry)
        return True
