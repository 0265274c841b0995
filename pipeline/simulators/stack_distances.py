"""Computes exact LRU miss ratio curves.

One pass over a trace gives the misses of every capacity.

The stack distance of a request is the size of everything requested since the last request for its object, the object
included: the smallest capacity with which LRU has a hit (Mattson et al., 1970). It holds for objects of different
sizes too, as long as the capacity is not below the largest one.

libCacheSim simulates one capacity at a time, so this pass is ours.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline.machine_code import compiled
from pipeline.simulators.trace import NEVER, Trace


def stack_distances(trace: Trace) -> NDArray[np.int64]:
    """Returns the stack distance of each request, in the unit of the trace's sizes.

    The first request for an object has the distance NEVER.
    """
    return _stack_distances(trace.ids, trace.sizes)


def miss_ratios(distances: NDArray[np.int64], capacities: ArrayLike) -> NDArray[np.float64]:
    """Returns the share of requests that LRU misses at each of the capacities.

    ValueError where there are no requests.
    """
    if not len(distances):
        raise ValueError("a miss ratio needs at least one request, and the trace is empty")
    hits = np.searchsorted(np.sort(distances), np.asarray(capacities), side="right")
    return 1 - hits / len(distances)


@compiled
def _stack_distances(ids: NDArray[np.int32], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Keeps sizes in a Fenwick tree, each at its object's last request."""
    requests = len(ids)
    distances = np.empty(requests, np.int64)
    tree = np.zeros(requests + 1, np.int64)
    last = np.zeros(len(sizes), np.int64)
    total = 0
    for i in range(requests):
        x = ids[i]
        size = sizes[x]
        before = last[x]
        # Places count from 1, so 0 says that the object was not requested yet.
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
    """Adds a size at a place, which counts from 1."""
    while place < len(tree):
        tree[place] += size
        place += place & -place


@compiled
def _sum(tree: NDArray[np.int64], place: int) -> int:
    """Sums the sizes at the places from 1 to `place`."""
    total = 0
    while place > 0:
        total += tree[place]
        place &= place - 1
    return total
