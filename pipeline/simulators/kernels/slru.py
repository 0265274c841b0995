"""Segmented LRU over dense ids: one linked queue per segment, the lowest is number 1."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.simulators.kernels.compiled import CAPACITY, IDS, SIZES, compiled, kernel
from pipeline.simulators.kernels.queues import NOWHERE, Queues, enter, leave, move, new_queues, oldest, renew
from pipeline.simulators.slru import SEGMENTS


@kernel(IDS, SIZES, CAPACITY)
def slru(ids: NDArray[np.int32], sizes: NDArray[np.int64], capacity: int) -> NDArray[np.bool_]:
    hits = np.empty(len(ids), np.bool_)
    queues = new_queues(sizes, SEGMENTS)
    capacities = np.full(SEGMENTS + 1, capacity // SEGMENTS)
    for i in range(len(ids)):
        x = ids[i]
        if queues.place[x] != NOWHERE:
            lift(queues, capacities, x)
            hits[i] = True
            continue
        hits[i] = False
        size = sizes[x]
        if size <= capacities[1]:
            while cached(queues, SEGMENTS) + size > capacity:
                evict(queues)
            insert(queues, capacities, capacity, x)
    return hits


@compiled
def cached(queues: Queues, segments: int) -> int:
    total = 0
    for number in range(1, segments + 1):
        total += queues.used[number]
    return total


@compiled
def evict(queues: Queues) -> None:
    """From the lowest segment that is not empty; one must not be."""
    number = lowest(queues)
    leave(queues, number, oldest(queues, number))


@compiled
def lowest(queues: Queues) -> int:
    number = 1
    while queues.used[number] == 0:
        number += 1
    return number


@compiled
def lift(queues: Queues, capacities: NDArray[np.int64], x: int) -> None:
    """A hit; `capacities` by queue number, the last one is the highest segment's."""
    number = int(queues.place[x])
    if number == len(capacities) - 1:
        renew(queues, number, x)
        return
    move(queues, number, number + 1, x)
    number += 1
    while queues.used[number] > capacities[number]:
        _sink(queues, capacities, number)
        number = int(queues.place[x])


@compiled
def insert(queues: Queues, capacities: NDArray[np.int64], capacity: int, x: int) -> None:
    """Into the lowest segment with room, or into the first once the whole has room."""
    size = queues.sizes[x]
    highest = len(capacities) - 1
    for number in range(1, highest + 1):
        if queues.used[number] + size <= capacities[number]:
            enter(queues, number, x)
            return
    while cached(queues, highest) + size > capacity:
        evict(queues)
    enter(queues, 1, x)


@compiled
def _sink(queues: Queues, capacities: NDArray[np.int64], number: int) -> None:
    """Bring an overfull segment down by one object, and those below it as far as that has overfilled them."""
    if number == 1:
        evict(queues)
        return
    move(queues, number, number - 1, oldest(queues, number))
    for below in range(number - 1, 0, -1):
        if queues.used[below] <= capacities[below]:
            return
        while queues.used[below] > capacities[below]:
            if below == 1:
                evict(queues)
            else:
                move(queues, below, below - 1, oldest(queues, below))
