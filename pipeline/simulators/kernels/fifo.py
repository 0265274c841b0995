"""FIFO over dense ids: a ring of ids and one byte per object."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.simulators.kernels.compiled import CAPACITY, IDS, SIZES, kernel


@kernel(IDS, SIZES, CAPACITY)
def fifo(ids: NDArray[np.int32], sizes: NDArray[np.int64], capacity: int) -> NDArray[np.bool_]:
    hits = np.empty(len(ids), np.bool_)
    cached = np.zeros(len(sizes), np.uint8)
    slots = min(len(sizes), capacity)
    ring = np.empty(slots, np.int32)
    first = last = used = 0
    for i in range(len(ids)):
        x = ids[i]
        if cached[x]:
            hits[i] = True
            continue
        hits[i] = False
        size = sizes[x]
        if size > capacity:
            continue
        while used + size > capacity:
            victim = ring[first]
            first = first + 1 if first + 1 < slots else 0
            cached[victim] = 0
            used -= sizes[victim]
        ring[last] = x
        last = last + 1 if last + 1 < slots else 0
        cached[x] = 1
        used += size
    return hits
