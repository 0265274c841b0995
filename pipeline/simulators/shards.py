"""Estimates miss ratios from a sample of the objects, with error bars.

The method is SHARDS (Waldspurger et al., FAST 2015).

libCacheSim's Python interface has neither samples nor error bars, so this is ours.

An object is in the sample if the hash of its key is below a bound. A sample thus has all requests of an object or none,
and every program picks the same objects. A cache of rate times the capacity then has about the miss ratio on the
sample that the whole cache has on the whole trace.

The number of sampled requests depends on chance. Where misses are proportional to requests, as on a log whose entries are
all requested about equally often, chance cancels in misses per sampled request. Where a few objects have most of
the requests and no misses, it cancels in misses per expected request. The estimate regresses misses on requests over the
sampled objects (a regression estimator), and so is right for both.

The error bars are a delete-a-group jackknife: the sample is divided into groups by another hash, and each group is left
out once. A trace with a few dominant objects needs a higher rate, because no group shows their weight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipeline.simulators.hashing import xxh64
from pipeline.simulators.simulation import capacity_min, simulate
from pipeline.simulators.stack_distances import stack_distances
from pipeline.simulators.trace import Trace

GROUPS: Final = 10
"""Groups of the jackknife."""
_GROUP_SEED: Final = 0x6A09E667
"""Any seed but the sample's, so that groups are drawn independently of it."""
STUDENT_T: Final = 2.262
"""Two-sided 95 % quantile with GROUPS - 1 degrees of freedom."""

_Misses: TypeAlias = Callable[[Trace, float], list[NDArray[np.bool_]]]
"""Returns for a sampled trace and its rate, for each capacity, which requests miss."""


@dataclass(frozen=True, slots=True, eq=False)
class TraceSample:
    """The requests for a share of the objects of a trace."""

    trace: Trace
    """The requests for the sampled objects; sizes are not scaled."""
    rate: float
    """The share of the objects in the sample, above 0 and at most 1."""
    requests: int
    """The number of requests in the whole trace."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A policy's miss ratio at one capacity, as a sample tells it."""

    capacity: int
    """Of the whole cache, in the unit of the trace's sizes."""
    miss_ratio: float
    """0 to 1."""
    standard_error: float
    """Of `miss_ratio`; 0 for a sample of everything."""

    @property
    def error_bar(self) -> float:
        """The exact ratio is within this distance of `miss_ratio`, 19 times in 20."""
        return STUDENT_T * self.standard_error


def sample(trace: Trace, rate: float, seed: int = 0) -> TraceSample:
    """Takes the objects whose hash is among the lowest `rate` of all hashes.

    ValueError for a rate outside of 0 to 1.
    """
    if not 0 < rate <= 1:
        raise ValueError(f"a sampling rate of {rate} is no share: give one above 0 and at most 1")
    chosen = xxh64(trace.keys, seed) <= np.uint64(min(int(rate * 2**64), 2**64 - 1))
    return TraceSample(_only(trace, chosen), rate, len(trace))


def estimate(policy: str, of: TraceSample, capacities: Sequence[int]) -> list[Estimate]:
    """Estimates a policy's miss ratio at each capacity of the whole cache.

    ValueError where the sample is too small for a capacity; SimulatorMissing as in `simulate`.
    """
    _check(of, capacities, capacity_min(policy))

    def misses(trace: Trace, rate: float) -> list[NDArray[np.bool_]]:
        return [~simulate(policy, trace, round(capacity * rate)).hits for capacity in capacities]

    return _estimates(misses, of, capacities)


def estimate_lru(of: TraceSample, capacities: Sequence[int]) -> list[Estimate]:
    """Estimates the miss ratio of LRU, all capacities from one pass over the sample. ValueError as in `estimate`."""
    _check(of, capacities, 1)

    def misses(trace: Trace, rate: float) -> list[NDArray[np.bool_]]:
        distances = stack_distances(trace)
        return [distances > round(capacity * rate) for capacity in capacities]

    return _estimates(misses, of, capacities)


def _check(of: TraceSample, capacities: Sequence[int], smallest_share: int) -> None:
    if of.trace.objects < GROUPS:
        raise ValueError(
            f"only {of.trace.objects} objects are in the sample and the error bars need {GROUPS}: "
            f"raise the rate above {of.rate}"
        )
    smallest = min(capacities)
    # The jackknife simulates samples without one group, in a cache smaller by as much.
    rate_of_groups = of.rate * (1 - 1 / GROUPS)
    if round(smallest * rate_of_groups) < smallest_share:
        raise ValueError(
            f"a capacity of {smallest} is too small for a sampling rate of {of.rate}: "
            f"raise the rate to {smallest_share / smallest / (1 - 1 / GROUPS):.2g} or more, or simulate the whole trace"
        )


def _estimates(misses: _Misses, of: TraceSample, capacities: Sequence[int]) -> list[Estimate]:
    missed = misses(of.trace, of.rate)
    slopes = [_misses_per_request(of.trace, one) for one in missed]
    left_out = _without_each_group(misses, of, slopes)
    estimates = []
    for number, capacity in enumerate(capacities):
        ratio = _ratio(missed[number], slopes[number], of.rate * of.requests)
        others = left_out[:, number]
        spread = float(((others - others.mean()) ** 2).sum())
        # The last factor: a sample of everything has no error.
        error = sqrt((GROUPS - 1) / GROUPS * spread * (1 - of.rate))
        estimates.append(Estimate(capacity, min(max(ratio, 0.0), 1.0), error))
    return estimates


def _without_each_group(misses: _Misses, of: TraceSample, slopes: list[float]) -> NDArray[np.float64]:
    """Returns the ratios with one group left out. A row per group, a column per capacity."""
    rate = of.rate * (1 - 1 / GROUPS)
    groups = xxh64(of.trace.keys, _GROUP_SEED) % np.uint64(GROUPS)
    rows = [
        [
            _ratio(one, slope, rate * of.requests)
            for one, slope in zip(misses(_only(of.trace, groups != group), rate), slopes, strict=True)
        ]
        for group in range(GROUPS)
    ]
    return np.array(rows)


def _ratio(missed: NDArray[np.bool_], slope: float, expected_requests: float) -> float:
    """Returns misses per expected request, corrected for the requests that chance added or left out."""
    misses = int(np.count_nonzero(missed))
    return (misses - slope * (len(missed) - expected_requests)) / expected_requests


def _misses_per_request(trace: Trace, missed: NDArray[np.bool_]) -> float:
    """Regresses misses on requests over the objects: least squares through the origin."""
    requests = np.bincount(trace.ids, minlength=trace.objects).astype(np.float64)
    misses = np.bincount(trace.ids[missed], minlength=trace.objects)
    return float(misses @ requests / (requests @ requests))


def _only(trace: Trace, chosen: NDArray[np.bool_]) -> Trace:
    """Returns the requests for the chosen objects, numbered anew in the same order."""
    numbers = np.cumsum(chosen, dtype=np.int32) - np.int32(1)
    ids = trace.ids[chosen[trace.ids]]
    return Trace(numbers[ids], trace.keys[chosen], trace.sizes[chosen])
