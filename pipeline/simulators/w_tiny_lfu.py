"""W-TinyLFU: a small LRU window, and a main cache that admits what leaves it if it was asked for more often.

The window has 1 % of the capacity, main is an SLRU of one part new and four parts proven. What was asked for how
often is a sketch that is halved now and then, so that old fame fades. Follows the simulator that the golden
numbers come from: hits in the window are not counted, and an object is counted again when it leaves the window.
"""

from __future__ import annotations

from pipeline.simulators.cache import Cache
from pipeline.simulators.frequency_sketch import FrequencySketch
from pipeline.simulators.sized_queue import SizedQueue
from pipeline.simulators.slru import SLRU

WINDOW_RATIO = 0.01
MAIN_SHARES = (1 / 5, 4 / 5)
SAMPLE = 32
"""The sketch is halved after this many main hits per unit of main's capacity."""


class WTinyLFU(Cache):
    capacity_min = 100

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._window_capacity = int(capacity * WINDOW_RATIO)
        main_capacity = capacity - self._window_capacity
        self._window = SizedQueue()
        self._main = SLRU(main_capacity, [int(share * main_capacity) for share in MAIN_SHARES])
        self._sketch = FrequencySketch(main_capacity)
        self._main_hits = 0

    @property
    def used(self) -> int:
        return self._window.used + self._main.used

    def access(self, key: int, size: int = 1) -> bool:
        if key in self._window:
            self._window.renew(key)
            return True
        if key in self._main:
            self._main.hit(key)
            self._count_main_hit(key)
            return True
        if size <= self._window_capacity and self._main.admits(size):
            while self.used + size > self.capacity:
                self._evict()
            self._window.push(key, size)
            self._sketch.add(key)
        return False

    def _count_main_hit(self, key: int) -> None:
        self._sketch.add(key)
        self._main_hits += 1
        if self._main_hits == SAMPLE * self._main.capacity:
            self._main_hits = 0
            self._sketch.halve()

    def _evict(self) -> None:
        """The window's oldest go to main until one object, of them or of main, has had to leave."""
        evicted = False
        while not evicted:
            if not self._window:
                self._main.evict()
                return
            key, size = self._window.pop_oldest()
            if self._main.used + size > self._main.capacity:
                evicted = True
                if self._sketch.estimate(key) > self._sketch.estimate(self._main.victim()):
                    self._main.evict()
                    self._main.insert(key, size)
            else:
                self._main.insert(key, size)
            self._sketch.add(key)
