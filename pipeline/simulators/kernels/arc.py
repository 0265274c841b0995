"""ARC over dense ids: four linked queues."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.simulators.kernels.compiled import CAPACITY, IDS, SIZES, compiled, kernel
from pipeline.simulators.kernels.queues import NOWHERE, Queues, enter, leave, move, new_queues, oldest, renew

ONCE, AGAIN, ONCE_GHOST, AGAIN_GHOST = 1, 2, 3, 4


@kernel(IDS, SIZES, CAPACITY)
def arc(ids: NDArray[np.int32], sizes: NDArray[np.int64], capacity: int) -> NDArray[np.bool_]:
    hits = np.empty(len(ids), np.bool_)
    queues = new_queues(sizes, 4)
    used = queues.used
    target_once = 0.0
    for i in range(len(ids)):
        x = ids[i]
        place = queues.place[x]
        if NOWHERE < place <= AGAIN:
            if place == ONCE:
                move(queues, ONCE, AGAIN, x)
            else:
                renew(queues, AGAIN, x)
            hits[i] = True
            continue
        hits[i] = False
        size = sizes[x]
        if size > capacity:
            continue
        if place > AGAIN:
            if place == ONCE_GHOST:
                target_once = min(
                    target_once + max(used[AGAIN_GHOST] / used[ONCE_GHOST], 1.0), float(capacity)
                )
            else:
                target_once = max(target_once - max(used[ONCE_GHOST] / used[AGAIN_GHOST], 1.0), 0.0)
            leave(queues, place, x)
            while used[ONCE] + used[AGAIN] + size > capacity:
                _replace(queues, target_once, place == AGAIN_GHOST)
            enter(queues, AGAIN, x)
            continue
        while used[ONCE] + used[AGAIN] + size > capacity:
            _make_room_for_a_stranger(queues, capacity, size, target_once)
        enter(queues, ONCE, x)
    return hits


@compiled
def _make_room_for_a_stranger(queues: Queues, capacity: int, size: int, target_once: float) -> None:
    used = queues.used
    if used[ONCE] + used[ONCE_GHOST] + size > capacity:
        if used[ONCE_GHOST] == 0:
            leave(queues, ONCE, oldest(queues, ONCE))
            return
        leave(queues, ONCE_GHOST, oldest(queues, ONCE_GHOST))
    elif used.sum() >= 2 * capacity and used[AGAIN_GHOST] > 0:
        leave(queues, AGAIN_GHOST, oldest(queues, AGAIN_GHOST))
    _replace(queues, target_once, False)


@compiled
def _replace(queues: Queues, target_once: float, from_again: bool) -> None:
    once = queues.used[ONCE]
    over = once > target_once or (from_again and once == target_once)
    if (once > 0 and over) or queues.used[AGAIN] == 0:
        move(queues, ONCE, ONCE_GHOST, oldest(queues, ONCE))
    else:
        move(queues, AGAIN, AGAIN_GHOST, oldest(queues, AGAIN))
