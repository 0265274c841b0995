"""The curve of one pass is what LRU does at each capacity."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from pipeline.simulators.simulation import library_is_installed, simulate
from pipeline.simulators.stack_distances import miss_ratios, stack_distances
from pipeline.simulators.trace import NEVER, Trace, trace_of
from tests.pipeline.simulators.random_traces import traces

pytest.importorskip("numba")


def test_stack_distances_of_a_short_trace() -> None:
    trace = trace_of([ord(key) for key in "abcabbc"], [1, 2, 4, 1, 2, 2, 4])
    assert stack_distances(trace).tolist() == [NEVER, NEVER, NEVER, 7, 7, 2, 7]


@pytest.mark.skipif(not library_is_installed(), reason="libcachesim has no wheel for this platform")
@settings(max_examples=60)
@given(traces())
def test_stack_distances_give_the_hits_of_lru_at_every_capacity(trace: Trace) -> None:
    distances = stack_distances(trace)
    largest = int(trace.sizes.max())
    for capacity in (largest, largest + 1, largest + 5, 3 * largest, int(trace.sizes.sum())):
        simulation = simulate("LRU", trace, capacity)
        assert (distances <= capacity).tolist() == simulation.hits.tolist(), capacity
        assert miss_ratios(distances, [capacity])[0] == pytest.approx(simulation.miss_ratio)


def test_miss_ratios_never_rise_with_the_capacity() -> None:
    distances = stack_distances(trace_of([1, 2, 3, 1, 2, 3, 3, 2, 1]))
    assert miss_ratios(distances, [1, 2, 3, 100]).tolist() == pytest.approx([8 / 9, 7 / 9, 3 / 9, 3 / 9])


def test_miss_ratios_are_refused_without_requests() -> None:
    with pytest.raises(ValueError, match="the trace is empty"):
        miss_ratios(stack_distances(trace_of([])), [1])
