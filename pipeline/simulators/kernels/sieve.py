"""SIEVE over dense ids: one linked queue and a hand."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.simulators.kernels.compiled import CAPACITY, IDS, SIZES, kernel
from pipeline.simulators.kernels.linked_lists import NEWER, new_links, oldest, push, remove

ABSENT, CACHED, VISITED = 0, 1, 2


@kernel(IDS, SIZES, CAPACITY)
def sieve(ids: NDArray[np.int32], sizes: NDArray[np.int64], capacity: int) -> NDArray[np.bool_]:
    hits = np.empty(len(ids), np.bool_)
    queue = len(sizes)
    links = new_links(queue, 1)
    state = np.zeros(queue, np.uint8)
    hand = queue
    used = 0
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
            victim = hand if hand != queue else oldest(links, queue)
            while state[victim] == VISITED:
                state[victim] = CACHED
                victim = links[victim, NEWER]
                if victim == queue:
                    victim = oldest(links, queue)
            hand = links[victim, NEWER]
            remove(links, victim)
            state[victim] = ABSENT
            used -= sizes[victim]
        push(links, queue, x)
        state[x] = CACHED
        used += size
    return hits
