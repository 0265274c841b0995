"""LRU over dense ids: one linked queue."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.simulators.kernels.compiled import CAPACITY, IDS, SIZES, kernel
from pipeline.simulators.kernels.linked_lists import new_links, oldest, push, remove, renew


@kernel(IDS, SIZES, CAPACITY)
def lru(ids: NDArray[np.int32], sizes: NDArray[np.int64], capacity: int) -> NDArray[np.bool_]:
    hits = np.empty(len(ids), np.bool_)
    queue = len(sizes)
    links = new_links(queue, 1)
    cached = np.zeros(queue, np.uint8)
    used = 0
    for i in range(len(ids)):
        x = ids[i]
        if cached[x]:
            renew(links, queue, x)
            hits[i] = True
            continue
        hits[i] = False
        size = sizes[x]
        if size > capacity:
            continue
        while used + size > capacity:
            victim = oldest(links, queue)
            remove(links, victim)
            cached[victim] = 0
            used -= sizes[victim]
        push(links, queue, x)
        cached[x] = 1
        used += size
    return hits
