"""S3-FIFO over dense ids: which of the three queues an object stands in says whether it is cached.

The evictions stand inside the loop: as functions of their own they would cost three times the time of the rest,
because numba counts references to every array that it hands to a function with loops.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.simulators.kernels.compiled import CAPACITY, IDS, SIZES, kernel
from pipeline.simulators.kernels.queues import NOWHERE, enter, leave, move, new_queues, oldest, renew
from pipeline.simulators.s3fifo import GHOST_RATIO, HITS_MAX, HITS_TO_MAIN, SMALL_RATIO

SMALL, MAIN, GHOST = 1, 2, 3


@kernel(IDS, SIZES, CAPACITY)
def s3fifo(  # noqa: C901, see above
    ids: NDArray[np.int32], sizes: NDArray[np.int64], capacity: int
) -> NDArray[np.bool_]:
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
        if NOWHERE < place <= MAIN:
            saved[x] = min(saved[x] + 1, HITS_MAX)
            hits[i] = True
            continue
        hits[i] = False
        if place == GHOST:
            leave(queues, GHOST, x)
        size = sizes[x]
        if size > small_capacity:
            continue
        while used[SMALL] + used[MAIN] + size > capacity:
            has_evicted = True
            if used[MAIN] > main_capacity or used[SMALL] == 0:
                victim = oldest(queues, MAIN)
                if saved[victim]:
                    saved[victim] -= 1
                    renew(queues, MAIN, victim)
                else:
                    leave(queues, MAIN, victim)
                continue
            victim = oldest(queues, SMALL)
            while used[SMALL] > 0 and saved[victim] >= HITS_TO_MAIN:
                saved[victim] = 0
                move(queues, SMALL, MAIN, victim)
                victim = oldest(queues, SMALL)
            if used[SMALL] == 0:
                continue
            leave(queues, SMALL, victim)
            if sizes[victim] <= ghost_capacity:
                while used[GHOST] + sizes[victim] > ghost_capacity:
                    leave(queues, GHOST, oldest(queues, GHOST))
                enter(queues, GHOST, victim)
        saved[x] = 0
        if place == GHOST:
            enter(queues, MAIN, x)
        elif size < small_capacity:
            fits = used[SMALL] < small_capacity or has_evicted
            enter(queues, SMALL if fits else MAIN, x)
    return hits
