"""A trace: which object each request asked for, and how large the objects are.

Kernels and curves want small dense numbers, so objects are numbered from 0 by their first request. The keys that
they have outside are kept beside them, because hashes (sampling, W-TinyLFU) must not depend on the numbering.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline.simulators.acceleration import numba_is_installed

NEVER: Final = 2**63 - 1
"""The stack distance of an object's first request, a miss whatever the capacity."""


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    ids: NDArray[np.int32]
    """For each request, the number of its object."""

    keys: NDArray[np.uint64]
    """For each object, its key."""

    sizes: NDArray[np.int64]
    """For each object, its size: positive, in bytes or whatever unit the capacities have."""

    def __len__(self) -> int:
        """Requests."""
        return len(self.ids)

    @property
    def objects(self) -> int:
        return len(self.keys)

    def size_of_requests(self, chosen: NDArray[np.bool_] | None = None) -> int:
        """The sizes of all requests together, or of those that are chosen."""
        requests = len(self) if chosen is None else int(np.count_nonzero(chosen))
        if self.objects and self.sizes.strides == (0,):
            return requests * int(self.sizes[0])
        return int(self.sizes[self.ids if chosen is None else self.ids[chosen]].sum())

    def with_equal_sizes(self) -> Trace:
        """The same requests with every size 1, so that capacities count objects."""
        return Trace(self.ids, self.keys, np.broadcast_to(np.int64(1), self.keys.shape))


def trace_of(keys: ArrayLike, sizes: ArrayLike | None = None) -> Trace:
    """A trace out of a key and a size for each request; without sizes every object has size 1.

    An object keeps one size throughout, the last one that is given for it.
    """
    requested = np.ascontiguousarray(keys, np.uint64)
    ids, unique = dense_ids(requested)
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


def dense_ids(keys: NDArray[np.uint64]) -> tuple[NDArray[np.int32], NDArray[np.uint64]]:
    """The number of each request's object, by first request, and the keys by that number."""
    if not numba_is_installed():
        return dense_ids_by_sorting(keys)
    from pipeline.simulators.kernels.dense_ids import dense_ids as kernel

    return kernel(keys)


def dense_ids_by_sorting(keys: NDArray[np.uint64]) -> tuple[NDArray[np.int32], NDArray[np.uint64]]:
    """The same without numba."""
    unique, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty(len(unique), np.int32)
    number[order] = np.arange(len(unique), dtype=np.int32)
    return number[inverse], unique[order]


def next_accesses(trace: Trace) -> NDArray[np.int64]:
    """For each request, the number of the next request for the same object; the number of requests if none."""
    if not numba_is_installed():
        return next_accesses_by_sorting(trace)
    from pipeline.simulators.kernels.next_accesses import next_accesses as kernel

    return kernel(trace.ids, trace.objects)


def next_accesses_by_sorting(trace: Trace) -> NDArray[np.int64]:
    """The same without numba."""
    order = np.argsort(trace.ids, kind="stable")
    following = np.full(len(trace), len(trace), np.int64)
    same = trace.ids[order[1:]] == trace.ids[order[:-1]]
    following[order[:-1][same]] = order[1:][same]
    return following
