"""S3-FIFO: a small queue that new objects must survive, a main queue with a two-bit clock, a ghost of the rejected.

Follows the simulator that the golden numbers come from, which differs from the paper in one point: until the
first eviction, new objects go to main once the small queue is full. An object that is larger than the small
queue is never admitted, one of exactly its size only by way of the ghost.
"""

from __future__ import annotations

from pipeline.simulators.cache import Cache
from pipeline.simulators.sized_queue import SizedQueue

SMALL_RATIO = 0.10
GHOST_RATIO = 0.90
HITS_TO_MAIN = 2
"""An object leaves the small queue for main after this many hits, with its count set back to none."""
HITS_MAX = 3
"""What an object in main can save up for, in turns."""


class S3FIFO(Cache):
    capacity_min = 10

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._small_capacity = int(capacity * SMALL_RATIO)
        self._main_capacity = capacity - self._small_capacity
        self._ghost_capacity = int(capacity * GHOST_RATIO)
        self._small = SizedQueue()
        self._main = SizedQueue()
        self._ghost = SizedQueue()
        self._hits: dict[int, int] = {}
        self._has_evicted = False

    @property
    def used(self) -> int:
        return self._small.used + self._main.used

    def access(self, key: int, size: int = 1) -> bool:
        if key in self._hits:
            self._hits[key] += 1
            return True
        was_ghost = self._ghost.remove(key) > 0
        if size <= self._small_capacity:
            while self.used + size > self.capacity:
                self._evict()
            self._insert(key, size, was_ghost)
        return False

    def _insert(self, key: int, size: int, was_ghost: bool) -> None:
        if was_ghost:
            self._main.push(key, size)
        elif size == self._small_capacity:
            return
        elif not self._has_evicted and self._small.used >= self._small_capacity:
            self._main.push(key, size)
        else:
            self._small.push(key, size)
        self._hits[key] = 0

    def _evict(self) -> None:
        self._has_evicted = True
        if self._main.used > self._main_capacity or not self._small:
            self._evict_from_main()
        else:
            self._evict_from_small()

    def _evict_from_small(self) -> None:
        """One object leaves for the ghost; those before it that were asked for move to main."""
        while self._small:
            key, size = self._small.pop_oldest()
            if self._hits[key] < HITS_TO_MAIN:
                del self._hits[key]
                self._remember(key, size)
                return
            self._main.push(key, size)
            self._hits[key] = 0

    def _evict_from_main(self) -> None:
        while True:
            key = self._main.oldest()
            if not self._hits[key]:
                break
            self._hits[key] = min(self._hits[key], HITS_MAX) - 1
            self._main.renew(key)
        self._main.pop_oldest()
        del self._hits[key]

    def _remember(self, key: int, size: int) -> None:
        if size > self._ghost_capacity or key in self._ghost:
            return
        while self._ghost.used + size > self._ghost_capacity:
            self._ghost.pop_oldest()
        self._ghost.push(key, size)
