"""S3-FIFO over dense ids: which of the three queues an object stands in says whether it is cached."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.simulators.kernels.compiled import CAPACITY, IDS, SIZES, compiled, kernel
from pipeline.simulators.kernels.queues import Queues, enter, leave, move, new_queues, oldest, renew
from pipeline.simulators.s3fifo import GHOST_RATIO, HITS_MAX, HITS_TO_MAIN, SMALL_RATIO

SMALL, MAIN, GHOST = 1, 2, 3


@kernel(IDS, SIZES, CAPACITY)
def s3fifo(ids: NDArray[np.int32], sizes: NDArray[np.int64], capacity: int) -> NDArray[np.bool_]:
    hits = np.empty(len(ids), np.bool_)
    queues = new_queues(sizes, 3)
    used = queues.used
    saved = np.zeros(len(sizes), np.uint8)
    small_capacity = int(capacity * SMALL_RATIO)
    main_capacity = capacity - small_capacity
    ghost_capacity = int(capacity * GHOST_RATIO)
    has_evicted = False
    for i in range(len(ids)):
        x = ids[i]
        place = queues.place[x]
        if place == SMALL or place == MAIN:
            saved[x] = min(saved[x] + 1, HITS_MAX)
            hits[i] = True
            continue
        hits[i] = False
        if place == GHOST:
            leave(queues, x)
        size = sizes[x]
        if size > small_capacity:
            continue
        while used[SMALL] + used[MAIN] + size > capacity:
            has_evicted = True
            if used[MAIN] > main_capacity or used[SMALL] == 0:
                _evict_from_main(queues, saved)
            else:
                _evict_from_small(queues, saved, ghost_capacity)
        saved[x] = 0
        if place == GHOST:
            enter(queues, MAIN, x)
        elif size < small_capacity:
            small_is_full = used[SMALL] >= small_capacity
            enter(queues, MAIN if small_is_full and not has_evicted else SMALL, x)
    return hits


@compiled
def _evict_from_main(queues: Queues, saved: NDArray[np.uint8]) -> None:
    victim = oldest(queues, MAIN)
    while saved[victim]:
        saved[victim] -= 1
        renew(queues, victim)
        victim = oldest(queues, MAIN)
    leave(queues, victim)


@compiled
def _evict_from_small(queues: Queues, saved: NDArray[np.uint8], ghost_capacity: int) -> None:
    while queues.used[SMALL] > 0:
        x = oldest(queues, SMALL)
        if saved[x] >= HITS_TO_MAIN:
            move(queues, MAIN, x)
            saved[x] = 0
            continue
        leave(queues, x)
        if queues.sizes[x] <= ghost_capacity:
            while queues.used[GHOST] + queues.sizes[x] > ghost_capacity:
                leave(queues, oldest(queues, GHOST))
            enter(queues, GHOST, x)
        return
