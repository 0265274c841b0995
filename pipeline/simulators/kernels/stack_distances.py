"""LRU stack distances over dense ids: a Fenwick tree of sizes over the times of last requests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.simulators.kernels.compiled import IDS, SIZES, compiled, kernel
from pipeline.simulators.trace import NEVER


@kernel(IDS, SIZES)
def stack_distances(ids: NDArray[np.int32], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    requests = len(ids)
    distances = np.empty(requests, np.int64)
    tree = np.zeros(requests + 1, np.int64)
    last = np.zeros(len(sizes), np.int64)
    total = 0
    for i in range(requests):
        x = ids[i]
        size = sizes[x]
        before = last[x]
        if before == 0:
            distances[i] = NEVER
            total += size
        else:
            distances[i] = total - _sum(tree, before - 1)
            _add(tree, before, -size)
        last[x] = i + 1
        _add(tree, i + 1, size)
    return distances


@compiled
def _add(tree: NDArray[np.int64], place: int, size: int) -> None:
    while place < len(tree):
        tree[place] += size
        place += place & -place


@compiled
def _sum(tree: NDArray[np.int64], place: int) -> int:
    """Of the places 1 to `place`."""
    total = 0
    while place > 0:
        total += tree[place]
        place &= place - 1
    return total
