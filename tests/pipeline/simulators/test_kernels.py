"""Every kernel decides like the object of its policy, request by request."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.simulators.policies import POLICIES
from pipeline.simulators.replay import replay_by_kernel, replay_by_object
from pipeline.simulators.trace import Trace
from tests.pipeline.simulators.random_traces import capacities, long_trace, traces

pytest.importorskip("numba")


def check_equal(policy: str, trace: Trace, capacity: int) -> None:
    by_object = replay_by_object(policy, trace, capacity)
    by_kernel = replay_by_kernel(policy, trace, capacity)
    different = np.flatnonzero(by_object.hits != by_kernel.hits)
    assert not len(different), f"first at request {different[0]}"
    assert (by_object.misses, by_object.missed) == (by_kernel.misses, by_kernel.missed)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=60)
@given(data=st.data())
def test_on_random_traces(policy: str, data: st.DataObject) -> None:
    check_equal(policy, data.draw(traces()), data.draw(capacities(policy)))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("sizes_max", [1, 5])
@pytest.mark.parametrize("capacity", [100, 350, 1000])
def test_on_long_traces(policy: str, sizes_max: int, capacity: int) -> None:
    for seed in range(2):
        check_equal(
            policy, long_trace(seed, requests=8000, objects=1500, sizes_max=sizes_max), capacity * sizes_max
        )


def test_w_tiny_lfu_halves_its_sketch_alike() -> None:
    """100 objects hold 99 in main, and 32 * 99 main hits come in a trace of a few hot ones."""
    check_equal("WTinyLFU", long_trace(3, requests=20_000, objects=160, sizes_max=1), 100)


def test_a_capacity_in_bytes_needs_no_memory_for_it() -> None:
    trace = long_trace(1, requests=500, objects=100, sizes_max=9)
    for policy in POLICIES:
        check_equal(policy, trace, 2**45 if policy != "WTinyLFU" else 2**30)
