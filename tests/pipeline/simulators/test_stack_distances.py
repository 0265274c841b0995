"""The curve of one pass is what LRU does at each capacity, with numba and without."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from pipeline.simulators.replay import replay_by_object
from pipeline.simulators.stack_distances import NEVER, miss_ratios, stack_distances, stack_distances_in_python
from pipeline.simulators.trace import Trace, trace_of
from tests.pipeline.simulators.random_traces import traces


def test_by_hand() -> None:
    trace = trace_of([ord(key) for key in "abcabbc"], [1, 2, 4, 1, 2, 2, 4])
    assert stack_distances(trace).tolist() == [NEVER, NEVER, NEVER, 7, 7, 2, 7]


@settings(max_examples=60)
@given(traces())
def test_distances_are_the_hits_of_lru_at_every_capacity(trace: Trace) -> None:
    distances = stack_distances(trace)
    assert distances.tolist() == stack_distances_in_python(trace).tolist()
    largest = int(trace.sizes.max())
    for capacity in (largest, largest + 1, largest + 5, 3 * largest, int(trace.sizes.sum())):
        replayed = replay_by_object("LRU", trace, capacity)
        assert (distances <= capacity).tolist() == replayed.hits.tolist(), capacity
        assert miss_ratios(distances, [capacity])[0] == pytest.approx(replayed.miss_ratio)


def test_a_curve_never_rises() -> None:
    distances = stack_distances(trace_of([1, 2, 3, 1, 2, 3, 3, 2, 1]))
    assert miss_ratios(distances, [1, 2, 3, 100]).tolist() == pytest.approx([8 / 9, 7 / 9, 3 / 9, 3 / 9])


def test_no_ratio_without_requests() -> None:
    with pytest.raises(ValueError, match="the trace is empty"):
        miss_ratios(stack_distances(trace_of([])), [1])
