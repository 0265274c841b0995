"""Numbering objects, their sizes, and when each is requested next."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.simulators.trace import Trace, next_accesses, trace_of
from tests.pipeline.simulators.random_traces import traces

ANY_KEY = st.integers(0, 2**64 - 1)


def test_objects_are_numbered_by_their_first_request() -> None:
    trace = trace_of([2**64 - 1, 5, 2**64 - 1, 0])
    assert trace.ids.tolist() == [0, 1, 0, 2]
    assert trace.keys.tolist() == [2**64 - 1, 5, 0]
    assert (len(trace), trace.objects, trace.size_of_requests()) == (4, 3, 4)


def test_object_keeps_its_last_size() -> None:
    trace = trace_of([1, 2, 1], [10, 20, 30])
    assert trace.sizes.tolist() == [30, 20]
    assert trace.size_of_requests() == 80
    assert trace.size_of_requests(np.array([True, False, False])) == 30
    assert trace.with_equal_sizes().size_of_requests() == 3


@given(st.lists(ANY_KEY, max_size=200), st.integers(0, 2))
def test_objects_are_numbered_alike_whatever_their_keys(keys: list[int], repeat: int) -> None:
    wanted = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    requested = keys * (repeat + 1)
    trace = trace_of(np.array(requested, np.uint64))
    assert trace.ids.tolist() == [wanted[key] for key in requested]
    assert trace.keys.tolist() == list(wanted)


@given(traces())
def test_next_accesses_name_the_next_request_for_the_object(trace: Trace) -> None:
    wanted = []
    ids = trace.ids.tolist()
    for number, x in enumerate(ids):
        later = [other for other in range(number + 1, len(ids)) if ids[other] == x]
        wanted.append(later[0] if later else len(ids))
    assert next_accesses(trace).tolist() == wanted


def test_trace_is_refused_when_sizes_do_not_fit_the_requests() -> None:
    with pytest.raises(ValueError, match="2 sizes for 3 requests"):
        trace_of([1, 2, 3], [1, 2])


def test_trace_is_refused_with_the_place_of_a_size_below_one() -> None:
    with pytest.raises(ValueError, match="request 1 has size 0: "):
        trace_of([1, 2, 3], [1, 0, 2])
