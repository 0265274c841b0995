"""Clock with one bit: FIFO, but an object that was asked for gets one more turn as the newest, bit cleared."""

from __future__ import annotations

from pipeline.simulators.cache import Cache
from pipeline.simulators.sized_queue import SizedQueue


class Clock(Cache):
    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._queue = SizedQueue()
        self._visited: set[int] = set()

    @property
    def used(self) -> int:
        return self._queue.used

    def access(self, key: int, size: int = 1) -> bool:
        if key in self._queue:
            self._visited.add(key)
            return True
        if size <= self.capacity:
            while self._queue.used + size > self.capacity:
                self._evict()
            self._queue.push(key, size)
        return False

    def _evict(self) -> None:
        while (key := self._queue.oldest()) in self._visited:
            self._visited.remove(key)
            self._queue.renew(key)
        self._queue.pop_oldest()
