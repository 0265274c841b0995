"""Queues of ids inside one array, any number of them, for objects that stand in one queue at a time.

Row x of `links` holds the older and the newer neighbour of id x. A queue is a ring through a row of its own, its
head, numbered behind the ids: the head's newer neighbour is the oldest, its older neighbour the newest. Both
numbers of a row share a cache line; that is what makes random access bearable.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.simulators.kernels.compiled import compiled

Links = NDArray[np.int32]
OLDER, NEWER = 0, 1


@compiled
def new_links(ids: int, queues: int) -> Links:
    """Queue number q has the head ids + q."""
    links = np.empty((ids + queues, 2), np.int32)
    for head in range(ids, ids + queues):
        links[head, OLDER] = links[head, NEWER] = head
    return links


@compiled
def push(links: Links, head: int, x: int) -> None:
    """Append x as the newest."""
    newest = links[head, OLDER]
    links[x, OLDER] = newest
    links[x, NEWER] = head
    links[newest, NEWER] = x
    links[head, OLDER] = x


@compiled
def remove(links: Links, x: int) -> None:
    """Take x out of its queue, whichever it is."""
    older, newer = links[x, OLDER], links[x, NEWER]
    links[older, NEWER] = newer
    links[newer, OLDER] = older


@compiled
def oldest(links: Links, head: int) -> int:
    """The head itself if the queue is empty."""
    first: int = links[head, NEWER]
    return first


@compiled
def renew(links: Links, head: int, x: int) -> None:
    """Make x the newest of its queue."""
    if links[head, OLDER] != x:
        remove(links, x)
        push(links, head, x)
