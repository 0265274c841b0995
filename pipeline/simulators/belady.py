"""Belady's MIN: evicts what will be asked for last, so no policy that must admit every miss can do better.

With objects of different sizes it is no longer the optimum, only a good bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from pipeline.simulators.cache import Cache


class Belady(Cache):
    def __init__(self, capacity: int, next_accesses: Iterable[int]) -> None:
        """`next_accesses`: for each request to come, when its object is asked for next; any large number for never."""
        super().__init__(capacity)
        self._next_accesses = iter(next_accesses)
        self._used = 0
        self._sizes: dict[int, int] = {}
        self._next: dict[int, int] = {}
        self._latest_first: list[tuple[int, int]] = []
        """(minus next access, key); entries that no longer agree with `_next` are skipped."""

    @property
    def used(self) -> int:
        return self._used

    def access(self, key: int, size: int = 1) -> bool:
        following = next(self._next_accesses)
        hit = key in self._sizes
        if not hit:
            if size > self.capacity:
                return False
            while self._used + size > self.capacity:
                self._evict()
            self._sizes[key] = size
            self._used += size
        self._next[key] = following
        heappush(self._latest_first, (-following, key))
        return hit

    def _evict(self) -> None:
        while True:
            negative, key = heappop(self._latest_first)
            if self._next.get(key) == -negative:
                break
        del self._next[key]
        self._used -= self._sizes.pop(key)
