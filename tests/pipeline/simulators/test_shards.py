"""A sample of one entry in a hundred says what the whole trace would, and how sure that is."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from pipeline.simulators.generators import lagging_readers, zipf
from pipeline.simulators.shards import Estimate, estimate, estimate_lru, sample
from pipeline.simulators.simulation import simulate
from pipeline.simulators.stack_distances import miss_ratios, stack_distances
from pipeline.simulators.trace import Trace, trace_of

pytest.importorskip("numba")
pytest.importorskip("libcachesim", reason="has no wheel for this platform")

CAPACITIES = [20_000, 50_000, 100_000, 200_000, 500_000]


@cache
def log() -> Trace:
    """Two million entries, six million requests."""
    return lagging_readers(2_000_000, 20_000, 3)


@cache
def exact_lru() -> list[float]:
    return [float(ratio) for ratio in miss_ratios(stack_distances(log()), CAPACITIES)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_sample_of_one_percent_is_within_three_thousandths_on_a_log(seed: int) -> None:
    sampled = sample(log(), 0.01, seed)
    for exact, estimated in zip(exact_lru(), estimate_lru(sampled, CAPACITIES), strict=True):
        assert abs(estimated.miss_ratio - exact) <= 0.003
        assert 0 < estimated.error_bar < 0.006
    fifo = simulate("FIFO", log(), 100_000).miss_ratio
    assert abs(estimate("FIFO", sampled, [100_000])[0].miss_ratio - fifo) <= 0.003


def test_error_bars_hold_about_19_times_in_20() -> None:
    """19 in 20 by their own account; the ratios of one sample go together, so a few more may be out."""
    trace = lagging_readers(100_000, 2_000, 5)
    capacities = [5_000, 20_000]
    exact = miss_ratios(stack_distances(trace), capacities)
    inside = [
        abs(estimated.miss_ratio - ratio) <= estimated.error_bar
        for seed in range(40)
        for ratio, estimated in zip(exact, estimate_lru(sample(trace, 0.05, seed), capacities), strict=True)
    ]
    assert np.mean(inside) >= 0.85


def test_estimate_is_right_when_few_objects_have_most_requests() -> None:
    """Misses per sampled request would be off by 0.1 and more: the sample lacks objects that most requests ask for."""
    trace = zipf(1.0, 100_000, 400_000, 42)
    exact = miss_ratios(stack_distances(trace), [10_000])[0]
    errors = [estimate_lru(sample(trace, 0.1, seed), [10_000])[0].miss_ratio - exact for seed in range(5)]
    assert np.abs(errors).mean() < 0.03


def test_sample_of_everything_is_exact() -> None:
    trace = zipf(0.7, 1_000, 20_000, 1)
    sampled = sample(trace, 1.0)
    assert sampled.trace.ids.tolist() == trace.ids.tolist()
    exact = simulate("S3FIFO", trace, 200).miss_ratio
    assert estimate("S3FIFO", sampled, [200]) == [Estimate(200, pytest.approx(exact), 0.0)]  # type: ignore[arg-type]  # compares like a float


def test_lru_simulated_and_by_distances_agree() -> None:
    sampled = sample(zipf(0.9, 5_000, 50_000, 2), 0.2)
    assert estimate("LRU", sampled, [500, 1_000]) == estimate_lru(sampled, [500, 1_000])


def test_sample_has_all_requests_of_an_object_or_none() -> None:
    trace = zipf(1.0, 2_000, 30_000, 9)
    sampled = sample(trace, 0.3)
    chosen = np.isin(trace.keys[trace.ids], sampled.trace.keys)
    assert (sampled.trace.keys[sampled.trace.ids] == trace.keys[trace.ids][chosen]).all()
    assert 0.25 < sampled.trace.objects / trace.objects < 0.35
    assert sampled.requests == 30_000
    # What a larger sample takes, it takes as well: brokers that sample at different rates agree.
    assert set(sampled.trace.keys.tolist()) <= set(sample(trace, 0.5).trace.keys.tolist())


@pytest.mark.parametrize("rate", [0, -0.1, 1.5])
def test_sample_refuses_a_rate_that_is_no_share(rate: float) -> None:
    with pytest.raises(ValueError, match=f"a sampling rate of {rate} is no share"):
        sample(trace_of([1]), rate)


def test_estimate_is_refused_when_the_sample_has_too_few_objects() -> None:
    with pytest.raises(ValueError, match="only 5 objects are in the sample and the error bars need 10"):
        estimate_lru(sample(trace_of([1, 2, 3, 4, 5]), 1.0), [2])


def test_estimate_names_the_rate_needed_when_a_capacity_is_too_small() -> None:
    sampled = sample(zipf(1.0, 5_000, 20_000, 9), 0.01)
    with pytest.raises(
        ValueError, match=r"a capacity of 500 is too small .* raise the rate to 0\.022 or more"
    ):
        estimate("S3FIFO", sampled, [500, 5_000])
