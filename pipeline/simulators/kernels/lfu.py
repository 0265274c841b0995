"""LFU over dense ids: one linked queue for each count that occurs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.simulators.kernels.compiled import CAPACITY, IDS, SIZES, compiled, kernel
from pipeline.simulators.kernels.linked_lists import new_links, oldest, push, remove


@kernel(IDS, SIZES, CAPACITY)
def lfu(ids: NDArray[np.int32], sizes: NDArray[np.int64], capacity: int) -> NDArray[np.bool_]:
    hits = np.empty(len(ids), np.bool_)
    objects = len(sizes)
    links = new_links(objects, _most_requests(ids, objects) + 1)
    counts = np.zeros(objects, np.int32)
    count_min = 1
    used = 0
    for i in range(len(ids)):
        x = ids[i]
        if counts[x] > 0:
            counts[x] += 1
            remove(links, x)
            push(links, objects + counts[x], x)
            hits[i] = True
            continue
        hits[i] = False
        size = sizes[x]
        if size > capacity:
            continue
        while used + size > capacity:
            while oldest(links, objects + count_min) == objects + count_min:
                count_min += 1
            victim = oldest(links, objects + count_min)
            remove(links, victim)
            counts[victim] = 0
            used -= sizes[victim]
        push(links, objects + 1, x)
        counts[x] = 1
        count_min = 1
        used += size
    return hits


@compiled
def _most_requests(ids: NDArray[np.int32], objects: int) -> int:
    requests = np.zeros(objects, np.int32)
    for i in range(len(ids)):
        requests[ids[i]] += 1
    most: int = requests.max()
    return most
