"""Miss ratios from a sample of the objects, with error bars (SHARDS; Waldspurger et al., FAST 2015).

An object is in the sample if the hash of its key is below a bound, so all of its requests are or none is, and
every broker and every run picks the same ones. A cache of rate times the capacity then sees of the sample what
the whole cache sees of everything.

How many requests a sample holds depends on which objects are in it. Where misses go with requests, as on a log
whose entries are all asked for about equally often, this cancels in misses per sampled request; where a few
objects have most of the requests and no misses, it does so only in misses per expected request. The estimate
takes from the first what the sample's own objects say (a regression estimator), and is the second otherwise.

The error bars are a delete-a-group jackknife: the sample is cut into groups by another hash, and each is left out
once. They know nothing of what no group shows; a trace with a few dominant objects needs a higher rate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipeline.simulators.hashing import xxh64
from pipeline.simulators.policies import policy_named
from pipeline.simulators.replay import replay
from pipeline.simulators.stack_distances import stack_distances
from pipeline.simulators.trace import Trace

GROUPS: Final = 10
GROUP_SEED: Final = 0x6A09E667
STUDENT_T: Final = 2.262
"""Two-sided 95 % with GROUPS - 1 degrees of freedom."""

_Misses: TypeAlias = Callable[[Trace, float], list[NDArray[np.bool_]]]
"""For a sampled trace and its rate: for each capacity, which requests miss."""


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    trace: Trace
    """The requests of the sampled objects, with the sizes that they really have."""
    rate: float
    """The share of the objects that are sampled, above 0 and at most 1."""
    requests: int
    """Of the whole trace."""


@dataclass(frozen=True, slots=True)
class Estimate:
    capacity: int
    miss_ratio: float
    standard_error: float

    @property
    def error_bar(self) -> float:
        """The exact ratio is within so much of `miss_ratio`, 19 times in 20."""
        return STUDENT_T * self.standard_error


def sample(trace: Trace, rate: float, seed: int = 0) -> Sample:
    """The objects whose hash with this seed is among the lowest `rate` of all hashes."""
    if not 0 < rate <= 1:
        raise ValueError(f"a sampling rate of {rate} is no share: give one above 0 and at most 1")
    chosen = xxh64(trace.keys, seed) <= np.uint64(min(int(rate * 2**64), 2**64 - 1))
    return Sample(_only(trace, chosen), rate, len(trace))


def estimate(policy: str, of: Sample, capacities: Sequence[int]) -> list[Estimate]:
    """The miss ratio of a policy at each of the capacities of the whole cache."""
    _check(of, capacities, policy_named(policy).capacity_min)

    def misses(trace: Trace, rate: float) -> list[NDArray[np.bool_]]:
        return [~replay(policy, trace, round(capacity * rate)).hits for capacity in capacities]

    return _estimates(misses, of, capacities)


def estimate_lru(of: Sample, capacities: Sequence[int]) -> list[Estimate]:
    """The same for LRU, all capacities from one pass over the sample."""
    _check(of, capacities, 1)

    def misses(trace: Trace, rate: float) -> list[NDArray[np.bool_]]:
        distances = stack_distances(trace)
        return [distances > round(capacity * rate) for capacity in capacities]

    return _estimates(misses, of, capacities)


def _check(of: Sample, capacities: Sequence[int], capacity_min: int) -> None:
    if of.trace.objects < GROUPS:
        raise ValueError(
            f"only {of.trace.objects} objects are in the sample and the error bars need {GROUPS}: "
            f"raise the rate above {of.rate}"
        )
    smallest = min(capacities)
    rate_of_groups = of.rate * (1 - 1 / GROUPS)
    if round(smallest * rate_of_groups) < capacity_min:
        raise ValueError(
            f"a capacity of {smallest} is too small for a sampling rate of {of.rate}: "
            f"raise the rate to {capacity_min / smallest / (1 - 1 / GROUPS):.2g} or more, or replay the whole trace"
        )


def _estimates(misses: _Misses, of: Sample, capacities: Sequence[int]) -> list[Estimate]:
    missed = misses(of.trace, of.rate)
    slopes = [_misses_per_request(of.trace, one) for one in missed]
    left_out = _without_each_group(misses, of, slopes)
    estimates = []
    for number, capacity in enumerate(capacities):
        ratio = _ratio(missed[number], slopes[number], of.rate * of.requests)
        others = left_out[:, number]
        spread = float(((others - others.mean()) ** 2).sum())
        # The last factor: what is sampled completely is known exactly.
        error = sqrt((GROUPS - 1) / GROUPS * spread * (1 - of.rate))
        estimates.append(Estimate(capacity, min(max(ratio, 0.0), 1.0), error))
    return estimates


def _without_each_group(misses: _Misses, of: Sample, slopes: list[float]) -> NDArray[np.float64]:
    """A row for each group that is left out, a column for each capacity."""
    rate = of.rate * (1 - 1 / GROUPS)
    groups = xxh64(of.trace.keys, GROUP_SEED) % np.uint64(GROUPS)
    rows = [
        [
            _ratio(one, slope, rate * of.requests)
            for one, slope in zip(misses(_only(of.trace, groups != group), rate), slopes, strict=True)
        ]
        for group in range(GROUPS)
    ]
    return np.array(rows)


def _ratio(missed: NDArray[np.bool_], slope: float, expected_requests: float) -> float:
    """Misses per expected request, less what the requests too many or too few have brought."""
    misses = int(np.count_nonzero(missed))
    return (misses - slope * (len(missed) - expected_requests)) / expected_requests


def _misses_per_request(trace: Trace, missed: NDArray[np.bool_]) -> float:
    """How misses go with requests from object to object: least squares through the origin."""
    requests = np.bincount(trace.ids, minlength=trace.objects).astype(np.float64)
    misses = np.bincount(trace.ids[missed], minlength=trace.objects)
    return float(misses @ requests / (requests @ requests))


def _only(trace: Trace, chosen: NDArray[np.bool_]) -> Trace:
    """The requests for the chosen objects, numbered anew in the same order."""
    numbers = np.cumsum(chosen, dtype=np.int32) - np.int32(1)
    ids = trace.ids[chosen[trace.ids]]
    return Trace(numbers[ids], trace.keys[chosen], trace.sizes[chosen])
