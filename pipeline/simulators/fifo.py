"""FIFO: what came first leaves first; a hit changes nothing."""

from __future__ import annotations

from pipeline.simulators.cache import Cache
from pipeline.simulators.sized_queue import SizedQueue


class FIFO(Cache):
    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._queue = SizedQueue()

    @property
    def used(self) -> int:
        return self._queue.used

    def access(self, key: int, size: int = 1) -> bool:
        if key in self._queue:
            return True
        if size <= self.capacity:
            while self._queue.used + size > self.capacity:
                self._queue.pop_oldest()
            self._queue.push(key, size)
        return False
