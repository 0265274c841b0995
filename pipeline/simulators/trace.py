"""A trace: the requests for objects on which a policy is simulated.

Objects are numbered from 0 by their first request, because arrays over small numbers are faster than tables over keys.
Their keys are kept beside the numbers: samples and W-TinyLFU hash keys, and must not depend on the numbering.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

NEVER: Final = 2**63 - 1
"""The stack distance of an object's first request, a miss whatever the capacity."""


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Requests in their order, and the objects that they ask for."""

    ids: NDArray[np.int32]
    """For each request, the number of its object."""

    keys: NDArray[np.uint64]
    """For each object, its key."""

    sizes: NDArray[np.int64]
    """For each object, its size. Positive, in bytes or in another unit that the capacities share."""

    def __len__(self) -> int:
        """Returns the number of requests."""
        return len(self.ids)

    @property
    def objects(self) -> int:
        """The number of different objects."""
        return len(self.keys)

    def size_of_requests(self, chosen: NDArray[np.bool_] | None = None) -> int:
        """Returns the sizes of all requests together, or of the chosen ones."""
        requests = len(self) if chosen is None else int(np.count_nonzero(chosen))
        # Equal sizes are one number that is repeated without memory (stride 0); gathering it would need that memory.
        if self.objects and self.sizes.strides == (0,):
            return requests * int(self.sizes[0])
        return int(self.sizes[self.ids if chosen is None else self.ids[chosen]].sum())

    def with_equal_sizes(self) -> Trace:
        """Returns the same requests with every size 1, so that capacities count objects."""
        return Trace(self.ids, self.keys, np.broadcast_to(np.int64(1), self.keys.shape))


def trace_of(keys: ArrayLike, sizes: ArrayLike | None = None) -> Trace:
    """Makes a trace of the key and the size of each request.

    Without sizes every object has size 1. An object keeps one size throughout, the last one that is given for it.
    ValueError where the sizes do not fit the requests or one is below 1.
    """
    requested = np.ascontiguousarray(keys, np.uint64)
    ids, unique = _numbered(requested)
    if sizes is None:
        return Trace(ids, unique, np.broadcast_to(np.int64(1), unique.shape))
    given = np.asarray(sizes, np.int64)
    if given.shape != requested.shape:
        raise ValueError(f"{given.size} sizes for {requested.size} requests: give one each")
    if given.size and given.min() < 1:
        where = int(given.argmin())
        raise ValueError(
            f"request {where} has size {given[where]}: drop such requests or give them a size of 1 or more"
        )
    by_object = np.empty(len(unique), np.int64)
    by_object[ids] = given
    return Trace(ids, unique, by_object)


def _numbered(keys: NDArray[np.uint64]) -> tuple[NDArray[np.int32], NDArray[np.uint64]]:
    """Numbers the objects by first request; returns ids and keys by number."""
    unique, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty(len(unique), np.int32)
    number[order] = np.arange(len(unique), dtype=np.int32)
    return number[inverse], unique[order]


def next_accesses(trace: Trace) -> NDArray[np.int64]:
    """Returns for each request the index of the next request for its object.

    Where there is none, the number of requests stands instead.
    """
    # A stable sort by object keeps each object's requests in their order, so its neighbours are the next ones.
    order = np.argsort(trace.ids, kind="stable")
    following = np.full(len(trace), len(trace), np.int64)
    same = trace.ids[order[1:]] == trace.ids[order[:-1]]
    following[order[:-1][same]] = order[1:][same]
    return following
