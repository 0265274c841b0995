"""Bucket: delayed entries by delivery time, in packed arrays, and the bytes in which a ledger keeps them.

A bucket takes entries until it is full, is then stored, and from there on only loses entries: those that are due. Its
entries stand in segments, each sorted by time; a segment has 16 bytes per entry. Segments are short, because a new
entry is inserted at its place and moves all later ones.

One segment is one entry of the bucket's ledger. All numbers are little-endian:

    4 bytes    "MDS1"
    uint32     L, number of ledgers
    uint32     N, number of delayed entries
    L * int64  ledger ids
    N * int64  delivery times, ms since 1970, ascending
    N * int64  places, in the order of the times: place = (index of the ledger << 40) | entry id
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from foundation.model.position import EARLIEST, Position, PositionKey

_MAGIC: Final = b"MDS1"
_HEAD: Final = struct.Struct("<4sII")
_ENTRY_BITS: Final = 40
"""Bits of a place for the entry id. A ledger of 2^40 entries would take years to write."""
_ENTRY_MASK: Final = (1 << _ENTRY_BITS) - 1
BYTES_PER_ENTRY: Final = 16
"""Memory of one delayed entry in a segment."""


class BrokenSegment(ValueError):
    """The bytes are no segment of this format."""


class BucketSegment:
    """Delayed entries sorted by delivery time."""

    __slots__ = ("_ledger_ids", "_numbers", "_places", "_times")

    def __init__(self) -> None:
        self._times = array("q")
        self._places = array("q")
        self._ledger_ids: list[int] = []
        self._numbers: dict[int, int] = {}
        """The index of each ledger in `_ledger_ids`."""

    def __len__(self) -> int:
        return len(self._times)

    @property
    def first_due_ms(self) -> int:
        """The earliest delivery time; the segment must not be empty."""
        return self._times[0]

    def add(self, ledger_id: int, entry_id: int, deliver_at_ms: int) -> None:
        """Inserts an entry after those of the same time."""
        number = self._numbers.get(ledger_id)
        if number is None:
            number = self._numbers[ledger_id] = len(self._ledger_ids)
            self._ledger_ids.append(ledger_id)
        place = number << _ENTRY_BITS | entry_id
        times = self._times
        # A fixed delay brings ascending times, so the end is the place nearly always.
        if not times or deliver_at_ms >= times[-1]:
            times.append(deliver_at_ms)
            self._places.append(place)
            return
        at = bisect_right(times, deliver_at_ms)
        times.insert(at, deliver_at_ms)
        self._places.insert(at, place)

    @property
    def last(self) -> Position:
        """The highest position; the segment must not be empty."""
        ids = self._ledger_ids
        # Dispatchers read ledgers in order nearly always, and places then compare as positions do.
        place = max(self._places) if ids == sorted(ids) else max(self._places, key=self._key)
        return Position(*self._key(place))

    def take_due(self, cutoff_ms: int, count_max: int) -> list[PositionKey]:
        """Removes the first entries whose time is at or before the cutoff, and returns them."""
        count = min(bisect_right(self._times, cutoff_ms), count_max)
        if not count:
            return []
        due = [self._key(place) for place in self._places[:count]]
        del self._times[:count]
        del self._places[:count]
        return due

    def items(self) -> Iterator[tuple[int, int, int]]:
        """Yields (ledger id, entry id, delivery time) by time."""
        for time_ms, place in zip(self._times, self._places, strict=True):
            yield *self._key(place), time_ms

    def _key(self, place: int) -> PositionKey:
        return self._ledger_ids[place >> _ENTRY_BITS], place & _ENTRY_MASK

    def encode(self) -> bytes:
        """Returns the stored form."""
        arrays = [array("q", self._ledger_ids), array("q", self._times), array("q", self._places)]
        if sys.byteorder == "big":
            for one in arrays:
                one.byteswap()
        head = _HEAD.pack(_MAGIC, len(self._ledger_ids), len(self._times))
        return head + b"".join(one.tobytes() for one in arrays)

    @classmethod
    def decode(cls, stored: bytes | memoryview) -> BucketSegment:
        """Reads the stored form. Raises BrokenSegment."""
        try:
            magic, ledgers, entries = _HEAD.unpack_from(stored)
        except struct.error as error:
            raise BrokenSegment(f"a segment of {len(stored)} bytes has no head") from error
        if magic != _MAGIC or len(stored) != _HEAD.size + 8 * ledgers + BYTES_PER_ENTRY * entries:
            raise BrokenSegment(f"a segment of {len(stored)} bytes does not have the length of its head")
        numbers = array("q", bytes(stored[_HEAD.size :]))
        if sys.byteorder == "big":
            numbers.byteswap()
        segment = cls()
        segment._ledger_ids = list(numbers[:ledgers])
        segment._numbers = {ledger_id: number for number, ledger_id in enumerate(segment._ledger_ids)}
        segment._times = numbers[ledgers : ledgers + entries]
        segment._places = numbers[ledgers + entries :]
        if entries and not 0 <= min(segment._places) <= max(segment._places) < ledgers << _ENTRY_BITS:
            raise BrokenSegment(f"a segment names a ledger outside of its table of {ledgers}")
        return segment


class Bucket:
    """Delayed entries that are stored together."""

    __slots__ = ("_segment_size", "count", "last", "ledger_id", "segments")

    def __init__(self, segment_size: int) -> None:
        """`segment_size`: entries at which the next segment begins."""
        self.segments: list[BucketSegment] = []
        """Segments with entries."""
        self.count = 0
        """Entries of all segments."""
        self.ledger_id: int | None = None
        """The ledger that keeps the bucket; None while it is in memory alone."""
        self.last: Position = EARLIEST
        """The highest position that the bucket ever had."""
        self._segment_size = segment_size

    @classmethod
    def restore(cls, segments: list[BucketSegment], ledger_id: int) -> Bucket:
        """Returns a bucket as it was stored in that ledger."""
        bucket = cls(0)
        bucket.segments = [segment for segment in segments if len(segment)]
        bucket.count = sum(map(len, segments))
        bucket.ledger_id = ledger_id
        bucket.last = max((segment.last for segment in bucket.segments), default=EARLIEST)
        return bucket

    def add(self, ledger_id: int, entry_id: int, deliver_at_ms: int) -> None:
        """Inserts an entry; only before the bucket is stored."""
        if not self.segments or len(self.segments[-1]) >= self._segment_size:
            self.segments.append(BucketSegment())
        self.segments[-1].add(ledger_id, entry_id, deliver_at_ms)
        self.count += 1
        if (ledger_id, entry_id) > self.last:
            self.last = Position(ledger_id, entry_id)

    def take_due(self, cutoff_ms: int, count_max: int) -> list[PositionKey]:
        """Removes entries whose time is at or before the cutoff, `count_max` at most, and returns them."""
        due: list[PositionKey] = []
        for segment in self.segments:
            if len(due) >= count_max:
                break
            due += segment.take_due(cutoff_ms, count_max - len(due))
        if due:
            self.count -= len(due)
            self.segments = [segment for segment in self.segments if len(segment)]
        return due

    def clear(self) -> None:
        """Drops all entries."""
        self.segments.clear()
        self.count = 0
