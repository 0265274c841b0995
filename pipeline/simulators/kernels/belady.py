"""Belady over dense ids: the next accesses of cached objects as a set of numbers of which the largest is taken.

The set is a bit per request with summaries above it, 64 bits to one: a few steps for each change and for each
search, where a heap takes more the more it holds. Numbers that have passed stay in the set; they are never the
largest while anything is cached that is asked for again. Objects that are not asked for again leave first.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from pipeline.simulators.kernels.compiled import CAPACITY, IDS, SIZES, compiled, kernel

NEXT_ACCESSES = types.Array(types.int64, 1, "C", readonly=True)
BITS = 64
LEVELS_MAX = 6
"""64 ** 6 requests are more than there are."""


@kernel(IDS, SIZES, CAPACITY, NEXT_ACCESSES)
def belady(
    ids: NDArray[np.int32], sizes: NDArray[np.int64], capacity: int, next_accesses: NDArray[np.int64]
) -> NDArray[np.bool_]:
    requests = len(ids)
    hits = np.empty(requests, np.bool_)
    cached = np.zeros(len(sizes), np.uint8)
    starts = _level_starts(requests)
    words = np.zeros(starts[-1], np.uint64)
    leaving = np.empty(len(sizes), np.int32)
    leaving_count = used = 0
    for i in range(requests):
        x = ids[i]
        hits[i] = cached[x]
        if not cached[x]:
            size = sizes[x]
            if size > capacity:
                continue
            while used + size > capacity:
                if leaving_count:
                    leaving_count -= 1
                    victim = leaving[leaving_count]
                else:
                    latest = _largest(words, starts)
                    _clear(words, starts, latest)
                    victim = ids[latest]
                cached[victim] = 0
                used -= sizes[victim]
            cached[x] = 1
            used += size
        following = next_accesses[i]
        if following < requests:
            _set(words, starts, following)
        else:
            leaving[leaving_count] = x
            leaving_count += 1
    return hits


@compiled
def _level_starts(numbers: int) -> NDArray[np.int64]:
    """Where each level's words begin, the numbers' own first, and after them the end."""
    starts = np.zeros(LEVELS_MAX + 2, np.int64)
    level = 0
    words = numbers
    while words > 1 or level == 0:
        words = (words + BITS - 1) // BITS
        starts[level + 1] = starts[level] + words
        level += 1
    return starts[: level + 1]


@compiled
def _set(words: NDArray[np.uint64], starts: NDArray[np.int64], number: int) -> None:
    for level in range(len(starts) - 1):
        place = starts[level] + number // BITS
        before = words[place]
        words[place] = before | np.uint64(1) << np.uint64(number % BITS)
        if before:
            return
        number //= BITS


@compiled
def _clear(words: NDArray[np.uint64], starts: NDArray[np.int64], number: int) -> None:
    for level in range(len(starts) - 1):
        place = starts[level] + number // BITS
        words[place] &= ~(np.uint64(1) << np.uint64(number % BITS))
        if words[place]:
            return
        number //= BITS


@compiled
def _largest(words: NDArray[np.uint64], starts: NDArray[np.int64]) -> int:
    number = 0
    for level in range(len(starts) - 2, -1, -1):
        number = number * BITS + _highest_bit(words[starts[level] + number])
    return number


@compiled
def _highest_bit(word: np.uint64) -> int:
    bit = 0
    for step in (32, 16, 8, 4, 2, 1):
        if word >> np.uint64(step):
            word >>= np.uint64(step)
            bit += step
    return bit
