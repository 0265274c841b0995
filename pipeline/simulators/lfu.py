"""LFU: the fewest requests leave first, among equals the one that has had its count the longest.

A count starts at 1 with each insert: what was evicted is forgotten.
"""

from __future__ import annotations

from collections import defaultdict

from pipeline.simulators.cache import Cache
from pipeline.simulators.sized_queue import SizedQueue


class LFU(Cache):
    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._used = 0
        self._counts: dict[int, int] = {}
        self._by_count: defaultdict[int, SizedQueue] = defaultdict(SizedQueue)
        self._count_min = 1

    @property
    def used(self) -> int:
        return self._used

    def access(self, key: int, size: int = 1) -> bool:
        count = self._counts.get(key)
        if count is not None:
            self._by_count[count + 1].push(key, self._by_count[count].remove(key))
            self._counts[key] = count + 1
            if not self._by_count[count]:
                del self._by_count[count]
            return True
        if size <= self.capacity:
            while self._used + size > self.capacity:
                self._evict()
            self._by_count[1].push(key, size)
            self._counts[key] = 1
            self._count_min = 1
            self._used += size
        return False

    def _evict(self) -> None:
        while self._count_min not in self._by_count:
            self._count_min += 1
        queue = self._by_count[self._count_min]
        key, size = queue.pop_oldest()
        if not queue:
            del self._by_count[self._count_min]
        del self._counts[key]
        self._used -= size
