"""Numbering objects, their sizes, and when each is asked for next: with numba and without."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.simulators.trace import (
    Trace,
    dense_ids,
    dense_ids_by_sorting,
    next_accesses,
    next_accesses_by_sorting,
    trace_of,
)
from tests.pipeline.simulators.random_traces import traces

ANY_KEY = st.integers(0, 2**64 - 1)


def test_objects_are_numbered_by_their_first_request() -> None:
    trace = trace_of([2**64 - 1, 5, 2**64 - 1, 0])
    assert trace.ids.tolist() == [0, 1, 0, 2]
    assert trace.keys.tolist() == [2**64 - 1, 5, 0]
    assert (len(trace), trace.objects, trace.size_of_requests()) == (4, 3, 4)


def test_an_object_keeps_its_last_size() -> None:
    trace = trace_of([1, 2, 1], [10, 20, 30])
    assert trace.sizes.tolist() == [30, 20]
    assert trace.size_of_requests() == 80
    assert trace.size_of_requests(np.array([True, False, False])) == 30
    assert trace.with_equal_sizes().size_of_requests() == 3


@given(st.lists(ANY_KEY, max_size=200), st.integers(0, 2))
def test_both_ways_of_numbering_agree(keys: list[int], repeat: int) -> None:
    array = np.array(keys * (repeat + 1), np.uint64)
    ids, unique = dense_ids(array)
    other_ids, other_unique = dense_ids_by_sorting(array)
    assert ids.tolist() == other_ids.tolist()
    assert unique.tolist() == other_unique.tolist()
    assert (unique[ids] == array).all()


def test_more_objects_than_the_table_starts_with() -> None:
    keys = np.arange(50_000, dtype=np.uint64) << np.uint64(32)
    ids, unique = dense_ids(np.concatenate((keys, keys[::-1])))
    assert (unique == keys).all()
    assert (ids[50_000:] == ids[:50_000][::-1]).all()


@given(traces())
def test_next_accesses(trace: Trace) -> None:
    wanted = []
    ids = trace.ids.tolist()
    for number, x in enumerate(ids):
        later = [other for other in range(number + 1, len(ids)) if ids[other] == x]
        wanted.append(later[0] if later else len(ids))
    assert next_accesses(trace).tolist() == wanted
    assert next_accesses_by_sorting(trace).tolist() == wanted


def test_sizes_that_do_not_fit_the_requests_are_refused() -> None:
    with pytest.raises(ValueError, match="2 sizes for 3 requests"):
        trace_of([1, 2, 3], [1, 2])


def test_a_size_below_one_is_refused_with_its_place() -> None:
    with pytest.raises(ValueError, match="request 1 has size 0: "):
        trace_of([1, 2, 3], [1, 0, 2])
