"""Several linked queues with their sums of sizes, for policies that move objects between them.

`place` says for each object which queue it stands in, 0 for none; queue number q has the head objects + q.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.simulators.kernels.compiled import compiled
from pipeline.simulators.kernels.linked_lists import Links, new_links, push, remove
from pipeline.simulators.kernels.linked_lists import oldest as oldest_of
from pipeline.simulators.kernels.linked_lists import renew as renew_in

NOWHERE = 0


class Queues(NamedTuple):
    links: Links
    place: NDArray[np.uint8]
    used: NDArray[np.int64]
    """By queue number."""
    sizes: NDArray[np.int64]


@compiled
def new_queues(sizes: NDArray[np.int64], queues: int) -> Queues:
    """Queues number 1 to `queues`."""
    objects = len(sizes)
    return Queues(
        new_links(objects, queues + 1), np.zeros(objects, np.uint8), np.zeros(queues + 1, np.int64), sizes
    )


@compiled
def enter(queues: Queues, number: int, x: int) -> None:
    """Append x, which stands in no queue, as the newest."""
    push(queues.links, len(queues.sizes) + number, x)
    queues.used[number] += queues.sizes[x]
    queues.place[x] = number


@compiled
def leave(queues: Queues, number: int, x: int) -> None:
    """Take x out of the queue it stands in, which the caller names so that nothing waits for `place`."""
    remove(queues.links, x)
    queues.used[number] -= queues.sizes[x]
    queues.place[x] = NOWHERE


@compiled
def move(queues: Queues, number: int, to: int, x: int) -> None:
    """Make x the newest of another queue than the one it stands in."""
    leave(queues, number, x)
    enter(queues, to, x)


@compiled
def renew(queues: Queues, number: int, x: int) -> None:
    """Make x the newest of the queue it stands in."""
    renew_in(queues.links, len(queues.sizes) + number, x)


@compiled
def oldest(queues: Queues, number: int) -> int:
    """Of a queue that is not empty."""
    return oldest_of(queues.links, len(queues.sizes) + number)
