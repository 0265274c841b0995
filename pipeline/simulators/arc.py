"""ARC: an LRU of what was asked for once, an LRU of what was asked for again, a ghost of each.

A hit in a ghost says which of the two should have been larger and moves the target between them.
Sizes may differ: then the target moves by at least one unit and the bounds hold to within one object.
"""

from __future__ import annotations

from pipeline.simulators.cache import Cache
from pipeline.simulators.sized_queue import SizedQueue


class ARC(Cache):
    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._once = SizedQueue()
        self._again = SizedQueue()
        self._once_ghost = SizedQueue()
        self._again_ghost = SizedQueue()
        self._target_once = 0.0

    @property
    def used(self) -> int:
        return self._once.used + self._again.used

    def access(self, key: int, size: int = 1) -> bool:
        if key in self._once:
            self._again.push(key, self._once.remove(key))
            return True
        if key in self._again:
            self._again.renew(key)
            return True
        if size > self.capacity:
            return False
        if key in self._once_ghost or key in self._again_ghost:
            self._come_back(key, size)
        else:
            while self.used + size > self.capacity:
                self._make_room_for_a_stranger(size)
            self._once.push(key, size)
        return False

    def _come_back(self, key: int, size: int) -> None:
        """A miss on what was evicted not long ago."""
        from_again = key in self._again_ghost
        once, again = self._once_ghost.used, self._again_ghost.used
        if from_again:
            self._target_once = max(self._target_once - max(once / again, 1), 0)
            self._again_ghost.remove(key)
        else:
            self._target_once = min(self._target_once + max(again / once, 1), self.capacity)
            self._once_ghost.remove(key)
        while self.used + size > self.capacity:
            self._replace(from_again)
        self._again.push(key, size)

    def _make_room_for_a_stranger(self, size: int) -> None:
        if self._once.used + self._once_ghost.used + size > self.capacity:
            if not self._once_ghost:
                self._once.pop_oldest()
                return
            self._once_ghost.pop_oldest()
        elif (
            self.used + self._once_ghost.used + self._again_ghost.used >= 2 * self.capacity
            and self._again_ghost
        ):
            self._again_ghost.pop_oldest()
        self._replace(False)

    def _replace(self, from_again: bool) -> None:
        """One object becomes a ghost of its own kind."""
        once = self._once.used
        over = once > self._target_once or (from_again and once == self._target_once)
        if (once and over) or not self._again:
            self._once_ghost.push(*self._once.pop_oldest())
        else:
            self._again_ghost.push(*self._again.pop_oldest())
