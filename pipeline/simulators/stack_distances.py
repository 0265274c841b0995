"""Exact LRU miss ratio curves: one pass over a trace gives the misses of every capacity.

The stack distance of a request is the size of all that was asked for since the last request for its object, the
object included: the smallest capacity with which LRU has a hit (Mattson et al., 1970). It holds for objects of
different sizes too, as long as the capacity is not below the largest one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline.simulators.acceleration import numba_is_installed, say_that_it_is_slow
from pipeline.simulators.trace import NEVER, Trace


def stack_distances(trace: Trace) -> NDArray[np.int64]:
    """For each request its stack distance, in the unit of the trace's sizes."""
    if not numba_is_installed():
        say_that_it_is_slow()
        return stack_distances_in_python(trace)
    from pipeline.simulators.kernels.stack_distances import stack_distances as kernel

    return kernel(trace.ids, trace.sizes)


def miss_ratios(distances: NDArray[np.int64], capacities: ArrayLike) -> NDArray[np.float64]:
    """The share of requests that LRU misses at each of the capacities."""
    if not len(distances):
        raise ValueError("a miss ratio needs at least one request, and the trace is empty")
    hits = np.searchsorted(np.sort(distances), np.asarray(capacities), side="right")
    return 1 - hits / len(distances)


def stack_distances_in_python(trace: Trace) -> NDArray[np.int64]:
    """The same without numba."""
    sizes = trace.sizes.tolist()
    last = [0] * trace.objects
    tree = _FenwickTree(len(trace))
    distances = []
    total = 0
    for time, x in enumerate(trace.ids.tolist(), start=1):
        if last[x]:
            distances.append(total - tree.sum(last[x] - 1))
            tree.add(last[x], -sizes[x])
        else:
            distances.append(NEVER)
            total += sizes[x]
        last[x] = time
        tree.add(time, sizes[x])
    return np.array(distances, np.int64)


class _FenwickTree:
    """Numbers at places from 1, with their running sums, each in logarithmic time."""

    def __init__(self, places: int) -> None:
        self._nodes = [0] * (places + 1)

    def add(self, place: int, number: int) -> None:
        while place < len(self._nodes):
            self._nodes[place] += number
            place += place & -place

    def sum(self, place: int) -> int:
        total = 0
        while place > 0:
            total += self._nodes[place]
            place &= place - 1
        return total
