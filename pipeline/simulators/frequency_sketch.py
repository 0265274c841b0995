"""About how often a key was counted: a Bloom filter with counters, for W-TinyLFU's comparisons.

Ten counters per key, all of them incremented; the estimate is the smallest. Built like the filter of the
simulator that the golden numbers come from, down to the hash, because collisions decide some comparisons.
"""

from __future__ import annotations

from math import ceil, log

from pipeline.simulators.hashing import xxh64

_MASK_32 = (1 << 32) - 1
ERROR_RATE = 0.001
COUNTERS_PER_KEY = -log(ERROR_RATE) / 0.480453013918201
HASHES = ceil(0.693147180559945 * COUNTERS_PER_KEY)
COUNTERS_MAX = (1 << 31) - 1
SEEDS = (0x12345678, 0x12344321)


def counters_for(keys: int) -> int:
    """How many counters a sketch for so many keys has."""
    counters = min(ceil(COUNTERS_PER_KEY * keys), COUNTERS_MAX)
    return counters if counters >= HASHES else 2 * HASHES


class FrequencySketch:
    """Only counters above zero take memory, so a sketch for a capacity in bytes is as small as its trace."""

    def __init__(self, keys: int) -> None:
        self._counters = counters_for(keys)
        self._counts: dict[int, int] = {}
        self._cells: dict[int, tuple[int, ...]] = {}

    def add(self, key: int) -> None:
        counts = self._counts
        for cell in self._cells_of(key):
            counts[cell] = counts.get(cell, 0) + 1

    def estimate(self, key: int) -> int:
        return min(self._counts.get(cell, 0) for cell in self._cells_of(key))

    def halve(self) -> None:
        self._counts = {cell: count >> 1 for cell, count in self._counts.items() if count > 1}

    def _cells_of(self, key: int) -> tuple[int, ...]:
        cells = self._cells.get(key)
        if cells is None:
            start, step = (xxh64(key, seed) & _MASK_32 for seed in SEEDS)
            cells = tuple(((start + i * step) & _MASK_32) % self._counters for i in range(HASHES))
            self._cells[key] = cells
        return cells
