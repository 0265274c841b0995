"""2Q over dense ids: three linked queues."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.simulators.kernels.compiled import CAPACITY, IDS, SIZES, kernel
from pipeline.simulators.kernels.queues import NOWHERE, enter, leave, new_queues, oldest, renew
from pipeline.simulators.two_q import GHOST_RATIO, NEW_RATIO

NEW, MAIN, GHOST = 1, 2, 3


@kernel(IDS, SIZES, CAPACITY)
def two_q(ids: NDArray[np.int32], sizes: NDArray[np.int64], capacity: int) -> NDArray[np.bool_]:
    hits = np.empty(len(ids), np.bool_)
    queues = new_queues(sizes, 3)
    used = queues.used
    new_capacity = int(capacity * NEW_RATIO)
    main_capacity = capacity - new_capacity
    ghost_capacity = int(capacity * GHOST_RATIO)
    for i in range(len(ids)):
        x = ids[i]
        place = queues.place[x]
        if NOWHERE < place <= MAIN:
            if place == MAIN:
                renew(queues, MAIN, x)
            hits[i] = True
            continue
        hits[i] = False
        if place == GHOST:
            leave(queues, GHOST, x)
        size = sizes[x]
        if size > new_capacity:
            continue
        while used[NEW] + used[MAIN] + size > capacity:
            if used[MAIN] > 0 and used[NEW] <= new_capacity:
                leave(queues, MAIN, oldest(queues, MAIN))
                continue
            victim = oldest(queues, NEW)
            leave(queues, NEW, victim)
            while used[GHOST] + sizes[victim] > ghost_capacity:
                leave(queues, GHOST, oldest(queues, GHOST))
            enter(queues, GHOST, victim)
        if place == GHOST:
            while used[MAIN] + size > main_capacity:
                leave(queues, MAIN, oldest(queues, MAIN))
        enter(queues, MAIN if place == GHOST else NEW, x)
    return hits
