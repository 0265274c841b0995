"""LRU: what was not asked for the longest leaves first."""

from __future__ import annotations

from pipeline.simulators.cache import Cache
from pipeline.simulators.sized_queue import SizedQueue


class LRU(Cache):
    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._queue = SizedQueue()

    def __contains__(self, key: int) -> bool:
        return key in self._queue

    @property
    def used(self) -> int:
        return self._queue.used

    def access(self, key: int, size: int = 1) -> bool:
        if key in self._queue:
            self._queue.renew(key)
            return True
        if size <= self.capacity:
            while self._queue.used + size > self.capacity:
                self.evict()
            self._queue.push(key, size)
        return False

    def evict(self) -> None:
        self._queue.pop_oldest()
