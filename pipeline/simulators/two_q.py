"""2Q: a FIFO for what is new, a ghost of what left it, and an LRU for what came back while it was a ghost."""

from __future__ import annotations

from pipeline.simulators.cache import Cache
from pipeline.simulators.lru import LRU
from pipeline.simulators.sized_queue import SizedQueue

NEW_RATIO = 0.25
GHOST_RATIO = 0.5


class TwoQ(Cache):
    capacity_min = 4

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._new_capacity = int(capacity * NEW_RATIO)
        self._ghost_capacity = int(capacity * GHOST_RATIO)
        self._new = SizedQueue()
        self._ghost = SizedQueue()
        self._main = LRU(capacity - self._new_capacity)

    @property
    def used(self) -> int:
        return self._new.used + self._main.used

    def access(self, key: int, size: int = 1) -> bool:
        if key in self._new:
            return True
        if key in self._main:
            return self._main.access(key, size)
        was_ghost = self._ghost.remove(key) > 0
        if size <= self._new_capacity:
            while self.used + size > self.capacity:
                self._evict()
            if was_ghost:
                self._main.access(key, size)
            else:
                self._new.push(key, size)
        return False

    def _evict(self) -> None:
        """What is new may fill the whole cache until main has something of its own."""
        if self._main.used and self._new.used <= self._new_capacity:
            self._main.evict()
            return
        key, size = self._new.pop_oldest()
        while self._ghost.used + size > self._ghost_capacity:
            self._ghost.pop_oldest()
        self._ghost.push(key, size)
