"""Segmented LRU: a hit lifts an object into the next segment; what a segment cannot hold sinks into the one below.

A new object enters the lowest segment that has room for it. Only the lowest non-empty segment evicts.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.simulators.cache import Cache
from pipeline.simulators.sized_queue import SizedQueue

SEGMENTS = 4


class SLRU(Cache):
    capacity_min = SEGMENTS

    def __init__(self, capacity: int, segment_capacities: Sequence[int] | None = None) -> None:
        """`segment_capacities`: lowest first; without them four equal ones."""
        super().__init__(capacity)
        self._capacities = tuple(segment_capacities or (capacity // SEGMENTS,) * SEGMENTS)
        self._segments = [SizedQueue() for _ in self._capacities]
        self._segment_of: dict[int, int] = {}
        self._used = 0

    @property
    def used(self) -> int:
        return self._used

    def __contains__(self, key: int) -> bool:
        return key in self._segment_of

    def access(self, key: int, size: int = 1) -> bool:
        if key in self._segment_of:
            self.hit(key)
            return True
        if self.admits(size):
            while self._used + size > self.capacity:
                self.evict()
            self.insert(key, size)
        return False

    def admits(self, size: int) -> bool:
        return size <= self._capacities[0]

    def hit(self, key: int) -> None:
        """Lift a key of the cache."""
        number = self._segment_of[key]
        if number == len(self._segments) - 1:
            self._segments[number].renew(key)
            return
        self._move(key, number, number + 1)
        while self._overflows(number := self._segment_of[key]):
            self._sink(number)

    def insert(self, key: int, size: int) -> None:
        """Take in a new key, and make room for it if no segment has any."""
        roomy = (i for i, one in enumerate(self._segments) if one.used + size <= self._capacities[i])
        number = next(roomy, None)
        if number is None:
            number = 0
            while self._used + size > self.capacity:
                self.evict()
        self._segments[number].push(key, size)
        self._segment_of[key] = number
        self._used += size

    def victim(self) -> int:
        """The key that would be evicted next."""
        return next(segment for segment in self._segments if segment).oldest()

    def evict(self) -> None:
        key, size = next(segment for segment in self._segments if segment).pop_oldest()
        del self._segment_of[key]
        self._used -= size

    def _overflows(self, number: int) -> bool:
        return self._segments[number].used > self._capacities[number]

    def _sink(self, number: int) -> None:
        if number == 0:
            self.evict()
            return
        self._move(self._segments[number].oldest(), number, number - 1)
        while self._overflows(number - 1):
            self._sink(number - 1)

    def _move(self, key: int, number: int, to: int) -> None:
        self._segments[to].push(key, self._segments[number].remove(key))
        self._segment_of[key] = to
