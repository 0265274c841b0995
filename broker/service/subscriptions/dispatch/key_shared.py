"""Key hashes of Key_Shared and three selectors that assign them to consumers. Pure.

Law: the hash and the ranges equal Pulsar's exactly, because official clients rely on them; recorded decisions of the Java
classes are in the golden vectors `key_shared`. A selector treats consumers as opaque objects that it compares.

    AutoSplitSelector          subscriptionKeySharedUseConsistentHashing=false
    ConsistentHashingSelector  subscriptionKeySharedUseConsistentHashing=true, the default
    StickyRangesSelector       consumers that declare their ranges
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final

from foundation.model.errors import ConsumerAssignError

RANGE_SIZE: Final = 1 << 16
"""Range of hashes for auto split and sticky ranges: 1 to 65535, because 0 stands for "no hash"."""

RING_SIZE: Final = RANGE_SIZE - 1
"""Number of hashes of consistent hashing."""
RING_START: Final = 1
"""First hash of consistent hashing; the last one is 65535."""

HASHES_KEPT: Final = 1 << 16
"""Keys whose hash is remembered, about 10 MB when full: the same keys come again and again."""

_MASK: Final = 0xFFFFFFFF
Assignment = tuple[int, int, object]
"""(first hash, last hash, consumer)"""


def murmur3_32(data: bytes) -> int:
    """Returns MurmurHash3 x86_32 with seed 0. Public domain, Austin Appleby; 0 to 2^32 - 1."""
    result = 0
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        block = int.from_bytes(data[start : start + 4], "little")
        result ^= _scramble(block)
        result = (result << 13 | result >> 19) & _MASK
        result = (result * 5 + 0xE6546B64) & _MASK
    if whole < len(data):
        result ^= _scramble(int.from_bytes(data[whole:], "little"))
    result ^= len(data)
    result = (result ^ result >> 16) * 0x85EBCA6B & _MASK
    result = (result ^ result >> 13) * 0xC2B2AE35 & _MASK
    return result ^ result >> 16


def _scramble(block: int) -> int:
    block = block * 0xCC9E2D51 & _MASK
    block = (block << 15 | block >> 17) & _MASK
    return block * 0x1B873593 & _MASK


@lru_cache(HASHES_KEPT)
def sticky_key_hash(key: bytes) -> int:
    """Returns the hash of a key, 0 to 2^31 - 1: Pulsar drops the sign bit."""
    return murmur3_32(key) & 0x7FFFFFFF


def sticky_hash_of(key: bytes, range_size: int = RANGE_SIZE, range_start: int = 0) -> int:
    """Returns the hash within a selector's range, never 0. Consistent hashing uses `RING_SIZE` and `RING_START`."""
    # `or 1`: 0 stands for "no hash", so its keys join those of 1.
    return sticky_key_hash(key) % range_size + range_start or 1


class ConsistentHashingSelector:
    """Each consumer has points on a ring; a hash belongs to the next point.

    The next point is the one at or above the hash, wrapping round. Pulsar's ConsistentHashingStickyKeyConsumerSelector.

    Where points of several consumers coincide, the one that joined first owns the hash, and the next one follows when
    it leaves.
    """

    __slots__ = ("_indexes", "_owners", "_points", "_points_each")

    range_size: Final = RING_SIZE
    """Number of hashes."""
    range_start: Final = RING_START
    """First hash."""

    def __init__(self, points_each: int) -> None:
        """`points_each`: `subscriptionKeySharedConsistentHashingReplicaPoints`, how many per consumer."""
        self._points_each = points_each
        self._points: list[int] = []
        self._owners: dict[int, list[object]] = {}
        self._indexes: dict[str, list[object | None]] = {}
        # By name, the consumers of that name. Each keeps its index while it is connected: its points depend on it.

    def add(self, consumer: object, name: str) -> None:
        """Adds a consumer; its points depend on its name and on how many of that name there are."""
        places = self._indexes.setdefault(name, [])
        if None in places:
            index = places.index(None)
            # The lowest free index: a consumer that comes back gets the points, and so the keys, that it had.
            places[index] = consumer
        else:
            index = len(places)
            places.append(consumer)
        for point in self._points_of(name, index):
            owners = self._owners.setdefault(point, [])
            if not owners:
                self._points.insert(bisect_left(self._points, point), point)
            owners.append(consumer)

    def remove(self, consumer: object) -> None:
        """Removes a consumer; ignored for an unknown one."""
        name = next((name for name, places in self._indexes.items() if consumer in places), None)
        if name is None:
            return
        places = self._indexes[name]
        index = places.index(consumer)
        places[index] = None
        if all(place is None for place in places):
            del self._indexes[name]
        for point in self._points_of(name, index):
            owners = self._owners[point]
            owners.remove(consumer)
            if not owners:
                del self._owners[point]
                del self._points[bisect_left(self._points, point)]

    def select(self, sticky_hash: int) -> object | None:
        """Returns the owner of the hash, None when it has none."""
        points = self._points
        if not points:
            return None
        index = bisect_left(points, sticky_hash)
        return self._owners[points[index] if index < len(points) else points[0]][0]

    def ranges(self) -> list[Assignment]:
        """Returns all ranges with their owners, ascending; neighbours of one owner are joined."""
        found: list[Assignment] = []
        if not self._points:
            return found
        first = self.range_start
        for last in [*self._points, self.range_start + self.range_size - 1]:
            if last < first:
                continue
            owner = self.select(last)
            if found and found[-1][2] is owner:
                found[-1] = (found[-1][0], last, owner)
            else:
                found.append((first, last, owner))
            first = last + 1
        return found

    def _points_of(self, name: str, index: int) -> list[int]:
        return [
            # Pulsar's text of a point; any other text would give every key another owner than Pulsar does.
            sticky_hash_of(f"{name}\0{index}\0{replica}".encode(), self.range_size, self.range_start)
            for replica in range(self._points_each)
        ]


class AutoSplitSelector:
    """A new consumer gets the lower half of the biggest range.

    The range above takes over when it leaves. Pulsar's HashRangeAutoSplitStickyKeyConsumerSelector.
    """

    __slots__ = ("_bounds", "_owners", "range_size")

    range_start: Final = 0
    """Hashes begin at 0, which no key has."""

    def __init__(self, range_size: int = RANGE_SIZE) -> None:
        self.range_size = range_size
        """Number of hashes."""
        self._bounds: list[int] = []
        # The last hash of each range, ascending. A range begins after the one before it.
        self._owners: list[object] = []

    def add(self, consumer: object, name: str = "") -> None:
        """Adds a consumer. ConsumerAssignError when the biggest range cannot be split any more."""
        if not self._bounds:
            self._bounds.append(self.range_size)
            self._owners.append(consumer)
            return
        below = [0, *self._bounds]
        widths = [last - before for before, last in zip(below, self._bounds, strict=False)]
        width = max(widths)
        if width < 2:
            raise ConsumerAssignError("no range of key hashes is left to be split for another consumer")
        place = widths.index(width)
        # Rounded as Pulsar does; the golden vectors `key_shared` hold every bound.
        self._bounds.insert(place, self._bounds[place] - width // 2)
        self._owners.insert(place, consumer)

    def remove(self, consumer: object) -> None:
        """Removes a consumer; ignored for an unknown one."""
        if consumer not in self._owners:
            return
        place = self._owners.index(consumer)
        del self._owners[place]
        last = place == len(self._owners)
        # No range is above the last one, so the range below grows instead.
        del self._bounds[place - 1 if last and place else place]

    def select(self, sticky_hash: int) -> object | None:
        """Returns the owner of the hash, None when it has none."""
        place = bisect_left(self._bounds, sticky_hash)
        return self._owners[place] if place < len(self._owners) else None

    def ranges(self) -> list[Assignment]:
        """Returns all ranges with their owners, ascending."""
        firsts = [0, *[bound + 1 for bound in self._bounds]]
        return list(zip(firsts, self._bounds, self._owners, strict=False))


class StickyRangesSelector:
    """Each consumer declares its ranges, both ends included.

    A hash outside of all ranges waits. Pulsar's HashRangeExclusiveStickyKeyConsumerSelector.
    """

    __slots__ = ("_firsts", "_ranges", "range_size")

    range_start: Final = 0
    """Hashes begin at 0, which no key has."""

    def __init__(self, range_size: int = RANGE_SIZE) -> None:
        self.range_size = range_size
        """Number of hashes."""
        self._ranges: list[Assignment] = []
        self._firsts: list[int] = []

    def add(self, consumer: object, ranges: Sequence[tuple[int, int]]) -> None:
        """Adds a consumer. ConsumerAssignError for no range, an empty one, or one that overlaps another.

        An end above the range size is accepted, as in Pulsar.
        """
        if not ranges:
            raise ConsumerAssignError("a sticky consumer declares at least one range of key hashes")
        wanted: list[Assignment] = [(first, last, consumer) for first, last in ranges]
        # By the numbers alone: two equal ranges would else compare their consumers, which have no order.
        kept = sorted([*self._ranges, *wanted], key=lambda assignment: assignment[:2])
        for first, last, _ in wanted:
            if not 0 <= first <= last:
                raise ConsumerAssignError(f"not a range of key hashes: [{first}, {last}]")
        for before, after in pairwise(kept):
            if after[0] <= before[1]:
                raise ConsumerAssignError(
                    f"range [{after[0]}, {after[1]}] overlaps with [{before[0]}, {before[1]}]"
                )
        self._keep(kept)

    def remove(self, consumer: object) -> None:
        """Removes a consumer; ignored for an unknown one."""
        self._keep([assignment for assignment in self._ranges if assignment[2] is not consumer])

    def select(self, sticky_hash: int) -> object | None:
        """Returns the owner of the hash, None when it has none."""
        place = bisect_right(self._firsts, sticky_hash) - 1
        if place < 0 or sticky_hash > self._ranges[place][1]:
            return None
        return self._ranges[place][2]

    def ranges(self) -> list[Assignment]:
        """Returns all declared ranges with their owners, ascending."""
        return list(self._ranges)

    def _keep(self, ranges: list[Assignment]) -> None:
        self._ranges = ranges
        self._firsts = [first for first, _, _ in ranges]
