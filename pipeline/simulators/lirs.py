"""LIRS: what came back soon is hot and keeps 99 % of the cache; the rest is cold and passes through a small queue.

The stack holds hot, cold and ghost (no longer cached) objects by recency, down to the oldest hot one. A cold or
ghost object that is asked for while it is in the stack becomes hot, and the oldest hot object becomes cold.

Follows the simulator that the golden numbers come from, which differs from the paper in two points. A hit on a
cold object that has left the stack demotes hot objects as if it became hot, and then it stays cold. If that
demotion pushes the object itself out of the queue, its next request still counts as a hit.
"""

from __future__ import annotations

from pipeline.simulators.cache import Cache
from pipeline.simulators.sized_queue import SizedQueue

COLD_RATIO = 0.01
STACK_RATIO = 2
"""The stack may hold this many capacities; then the oldest ghosts are forgotten."""


class LIRS(Cache):
    capacity_min = 2

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._cold_capacity = max(1, int(capacity * COLD_RATIO))
        self._hot_capacity = capacity - self._cold_capacity
        self._stack = SizedQueue()
        self._hot: set[int] = set()
        self._hot_used = 0
        self._cold = SizedQueue()
        self._ghosts = SizedQueue()
        """Those of the stack that are not cached, by the time of their eviction."""

    @property
    def used(self) -> int:
        return self._hot_used + self._cold.used

    def access(self, key: int, size: int = 1) -> bool:
        in_stack = key in self._stack
        if in_stack:
            self._stack.renew(key)
        if key in self._cold:
            self._cold.renew(key)
        hit = True
        if key in self._hot:
            self._prune()
        elif key in self._ghosts:
            hit = False
            self._warm(key, size)
        elif in_stack:
            self._cold.remove(key)
            self._warm(key, size)
        elif key in self._cold:
            self._make_hot_room(size)
            self._stack.push(key, size)
        else:
            hit = False
            self._meet(key, size)
        self._limit_stack()
        return hit

    def _meet(self, key: int, size: int) -> None:
        """A miss on what is not even a ghost."""
        if size > min(self._hot_capacity, self._cold_capacity):
            return
        if self._hot_used + size <= self._hot_capacity:
            self._stack.push(key, size)
            self._hot.add(key)
            self._hot_used += size
            return
        self._make_cold_room(size)
        self._stack.push(key, size)
        self._cold.push(key, size)

    def _warm(self, key: int, size: int) -> None:
        """A cold or ghost object, newest in the stack, becomes hot."""
        self._make_hot_room(size)
        self._ghosts.remove(key)
        while self.used + size > self.capacity:
            self._make_cold_room(self._cold_capacity)
            self._demote()
        self._hot.add(key)
        self._hot_used += size

    def _make_hot_room(self, size: int) -> None:
        while self._hot_used + size > self._hot_capacity:
            self._demote()

    def _make_cold_room(self, size: int) -> None:
        while self._cold.used + size > self._cold_capacity:
            self._evict()

    def _demote(self) -> None:
        """The oldest hot object leaves the stack and becomes cold, if the queue can hold it."""
        self._prune()
        key, size = self._stack.pop_oldest()
        self._hot.remove(key)
        self._hot_used -= size
        if size <= self._cold_capacity:
            self._make_cold_room(size)
            self._cold.push(key, size)
        self._prune()

    def _evict(self) -> None:
        key, size = self._cold.pop_oldest()
        if key in self._stack:
            self._ghosts.push(key, size)

    def _prune(self) -> None:
        """Forget what is older than the oldest hot object; the newest of the stack always stays."""
        while len(self._stack) > 1 and (key := self._stack.oldest()) not in self._hot:
            self._ghosts.remove(key)
            self._stack.pop_oldest()

    def _limit_stack(self) -> None:
        while self._stack.used > STACK_RATIO * self.capacity and self._ghosts:
            key, _ = self._ghosts.pop_oldest()
            self._stack.remove(key)
