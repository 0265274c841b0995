"""Replays a trace against a policy: by its kernel, or by its object where numba is not installed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.simulators.acceleration import numba_is_installed, say_that_it_is_slow
from pipeline.simulators.policies import policy_named
from pipeline.simulators.trace import Trace


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """What a policy made of a trace; `hits` has one truth value for each request."""

    policy: str
    capacity: int
    hits: NDArray[np.bool_]
    misses: int
    missed: int
    """The sizes of all missed requests together."""
    miss_ratio: float
    size_miss_ratio: float


def replay(policy: str, trace: Trace, capacity: int) -> Replay:
    """`capacity` in the unit of the trace's sizes. ValueError: no such policy, or too small a capacity for it."""
    if numba_is_installed():
        return replay_by_kernel(policy, trace, capacity)
    say_that_it_is_slow()
    return replay_by_object(policy, trace, capacity)


def replay_by_kernel(policy: str, trace: Trace, capacity: int) -> Replay:
    from pipeline.simulators.kernels.table import KERNELS

    _check(policy, trace, capacity)
    return _replay(policy, trace, capacity, KERNELS[policy](trace, capacity))


def replay_by_object(policy: str, trace: Trace, capacity: int) -> Replay:
    _check(policy, trace, capacity)
    access = policy_named(policy).new_cache(trace, capacity).access
    keys, sizes = trace.keys.tolist(), trace.sizes.tolist()
    hits = [access(keys[x], sizes[x]) for x in trace.ids.tolist()]
    return _replay(policy, trace, capacity, np.array(hits, np.bool_))


def _check(policy: str, trace: Trace, capacity: int) -> None:
    capacity_min = policy_named(policy).capacity_min
    if capacity < capacity_min:
        raise ValueError(
            f"{policy} cannot work with a capacity of {capacity}: give it {capacity_min} or more"
        )
    if not len(trace):
        raise ValueError("the trace has no requests, so there is nothing to replay")


def _replay(policy: str, trace: Trace, capacity: int, hits: NDArray[np.bool_]) -> Replay:
    misses = len(trace) - int(np.count_nonzero(hits))
    missed = trace.size_of_requests(~hits)
    return Replay(
        policy, capacity, hits, misses, missed, misses / len(trace), missed / trace.size_of_requests()
    )
