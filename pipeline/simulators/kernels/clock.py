"""Clock over dense ids: a ring of ids, and one byte per object for absent, cached or visited."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.simulators.kernels.compiled import CAPACITY, IDS, SIZES, kernel

ABSENT, CACHED, VISITED = 0, 1, 2


@kernel(IDS, SIZES, CAPACITY)
def clock(ids: NDArray[np.int32], sizes: NDArray[np.int64], capacity: int) -> NDArray[np.bool_]:
    hits = np.empty(len(ids), np.bool_)
    state = np.zeros(len(sizes), np.uint8)
    slots = min(len(sizes), capacity)
    ring = np.empty(slots, np.int32)
    first = last = used = 0
    for i in range(len(ids)):
        x = ids[i]
        if state[x] != ABSENT:
            state[x] = VISITED
            hits[i] = True
            continue
        hits[i] = False
        size = sizes[x]
        if size > capacity:
            continue
        while used + size > capacity:
            oldest = ring[first]
            first = first + 1 if first + 1 < slots else 0
            if state[oldest] == VISITED:
                state[oldest] = CACHED
                ring[last] = oldest
                last = last + 1 if last + 1 < slots else 0
            else:
                state[oldest] = ABSENT
                used -= sizes[oldest]
        ring[last] = x
        last = last + 1 if last + 1 < slots else 0
        state[x] = CACHED
        used += size
    return hits
