"""Simulates a general eviction policy on a trace, with the library libCacheSim.

General policies are a yardstick for the broker's cache and not part of it, so they come from the library whose miss
counts cache research compares with. Ours are only the parts that its Python interface lacks: samples with error bars
(`shards`) and the LRU curve from one pass (`stack_distances`). PIP-430's policies are simulated by neither: the access
record of a broker is replayed through the cache's own code (`pipeline.replays`).

`pipeline.jobs.bounds` calls this for the policies that `recommend` shows beside the broker's own.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipeline.simulators.trace import Trace, next_accesses

BELADY: Final = "Belady"
"""The bound that needs to know the future. It evicts the object whose next request is the latest."""

POLICIES: Final = MappingProxyType(
    {
        "FIFO": 1,
        "LRU": 1,
        "Clock": 1,
        "Sieve": 1,
        "S3FIFO": 10,
        "TwoQ": 4,
        "SLRU": 4,
        "ARC": 1,
        "LFU": 1,
        "LIRS": 2,
        "WTinyLFU": 100,
        BELADY: 1,
    }
)
"""By name of a policy, the smallest capacity that it can divide."""

_NEVER: Final = 2**63 - 1
"""The library's number for "no further request"."""


class SimulatorMissing(Exception):
    """The library is not installed; the message says how to get it."""

    def __init__(self) -> None:
        super().__init__(
            "libcachesim is not installed: pip install 'WHEEL[simulators]' (Linux x86_64 and macOS have wheels)"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Simulation:
    """The outcome of one policy with one capacity on a trace."""

    policy: str
    """A key of POLICIES."""
    capacity: int
    """In the unit of the trace's sizes."""
    hits: NDArray[np.bool_]
    """For each request, True for a hit."""
    misses: int
    """Requests that miss."""
    missed: int
    """The sizes of all missed requests together."""
    miss_ratio: float
    """Missed requests among all requests, 0 to 1."""
    size_miss_ratio: float
    """The size of missed requests among the size of all requests, 0 to 1."""


def library_is_installed() -> bool:
    """Returns True where `simulate` works. The library has no wheel for every platform."""
    return importlib.util.find_spec("libcachesim") is not None


def capacity_min(policy: str) -> int:
    """Returns the smallest capacity of a policy. ValueError for an unknown policy."""
    if policy not in POLICIES:
        raise ValueError(f"there is no policy {policy!r}; there are {', '.join(POLICIES)}")
    return POLICIES[policy]


def simulate(policy: str, trace: Trace, capacity: int) -> Simulation:
    """Simulates a policy on all requests of a trace, from an empty cache.

    `capacity` has the unit of the trace's sizes. An object keeps the size with which it was inserted. ValueError for
    an unknown policy, a capacity too small for it and a trace without requests; SimulatorMissing.
    """
    smallest = capacity_min(policy)
    # With less the library aborts the whole process (S3FIFO) or never has a hit (the others).
    if capacity < smallest:
        raise ValueError(f"{policy} cannot work with a capacity of {capacity}: give it {smallest} or more")
    if not len(trace):
        raise ValueError("the trace has no requests, so there is nothing to simulate: give a longer trace")
    hits = _hits(policy, trace, capacity)
    misses = len(trace) - int(np.count_nonzero(hits))
    missed = trace.size_of_requests(~hits)
    return Simulation(
        policy, capacity, hits, misses, missed, misses / len(trace), missed / trace.size_of_requests()
    )


def _hits(policy: str, trace: Trace, capacity: int) -> NDArray[np.bool_]:
    # An object larger than the cache is never a hit. The library agrees, and prints a warning for it.
    possible = trace.sizes[trace.ids] <= capacity
    hits = np.zeros(len(trace), np.bool_)
    hits[possible] = np.fromiter(_answers(policy, trace, capacity, possible), np.bool_)
    return hits


def _answers(policy: str, trace: Trace, capacity: int, chosen: NDArray[np.bool_]) -> Iterator[bool]:
    """Yields hit or miss for each chosen request.

    Requests are handed to the library one by one. Its `process_trace` is two to three times as fast and returns two
    ratios for a whole file: callers here need to know which requests hit, to tell reads from appends (`bounds`) and
    one object's requests from another's (`shards`).
    """
    try:
        import libcachesim
    except ImportError:
        raise SimulatorMissing from None
    # The hash table grows by itself. The library's default of 2 ** 24 slots halves the speed for small traces.
    cache = getattr(libcachesim, policy)(capacity, hashpower=max(trace.objects.bit_length(), 4))
    get, request = cache.get, libcachesim.Request()
    ids = trace.ids[chosen]
    keys, sizes = trace.keys[ids].tolist(), trace.sizes[ids].tolist()
    if policy != BELADY:
        # The loop fills the fields of one request object, so none is made per request.
        for request.obj_id, request.obj_size in zip(keys, sizes, strict=True):
            yield get(request)
        return
    following = next_accesses(trace)
    upcoming = np.where(following < len(trace), following, _NEVER)[chosen].tolist()
    for request.obj_id, request.obj_size, request.next_access_vtime in zip(
        keys, sizes, upcoming, strict=True
    ):
        yield get(request)
