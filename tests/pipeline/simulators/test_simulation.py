"""The library gets the right policy, requests, sizes and future.

Errors are raised before it can abort.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.simulators.simulation import POLICIES, SimulatorMissing, simulate
from pipeline.simulators.trace import Trace, trace_of
from tests.pipeline.simulators.random_traces import traces

pytest.importorskip("libcachesim", reason="has no wheel for this platform")


def hits(policy: str, capacity: int, keys: str) -> str:
    """`+` for a hit and `.` for a miss, one for each letter; spaces are for the reader."""
    marks = iter(simulate(policy, trace_of([ord(key) for key in keys if key != " "]), capacity).hits.tolist())
    return "".join(" " if key == " " else "+" if next(marks) else "." for key in keys)


def test_fifo_evicts_the_oldest_whatever_was_requested() -> None:
    assert hits("FIFO", 3, "abc a d a") == "... + . ."


def test_lru_keeps_what_was_requested_lately() -> None:
    assert hits("LRU", 3, "abc a d a b") == "... + . + ."


def test_sieve_spares_requested_objects_in_place() -> None:
    assert hits("Sieve", 3, "abc a d e f a e") == "... + . . . + +"


def test_belady_evicts_the_object_requested_last() -> None:
    # d takes the place of c, c that of b.
    assert hits("Belady", 3, "abcdabcadb") == "....++.++."


def test_sizes_count_against_the_capacity() -> None:
    trace = trace_of([1, 2, 3, 1], [5, 3, 2, 5])
    assert simulate("FIFO", trace, 10).hits.tolist() == [False, False, False, True]
    simulation = simulate("FIFO", trace, 9)
    assert simulation.hits.tolist() == [False] * 4, "the third object evicts the first"
    assert (simulation.misses, simulation.missed) == (4, 15)
    assert (simulation.miss_ratio, simulation.size_miss_ratio) == (1, 1)


def test_keys_of_64_bits_stay_apart() -> None:
    trace = trace_of(np.array([2**64 - 1, 2**63 - 1, 0, 2**64 - 1, 2**63 - 1, 0], np.uint64))
    assert simulate("LRU", trace, 3).hits.tolist() == [False] * 3 + [True] * 3


@settings(max_examples=60)
@given(trace=traces(equal_sizes=True), capacity=st.integers(10, 60))
def test_no_policy_beats_belady(trace: Trace, capacity: int) -> None:
    best = simulate("Belady", trace, capacity).misses
    for policy, smallest in POLICIES.items():
        # The library's LIRS counts a hit on an object that its own demotion has just evicted, so it may.
        if smallest <= capacity and policy != "LIRS":
            assert simulate(policy, trace, capacity).misses >= best, policy


@pytest.mark.parametrize("policy", POLICIES)
def test_cache_misses_each_object_once_when_it_has_free_space(policy: str) -> None:
    trace = trace_of(list(range(100)) * 2)
    assert simulate(policy, trace, 100_000).misses == 100


@pytest.mark.parametrize("policy", POLICIES)
def test_object_always_misses_when_it_is_larger_than_the_cache(policy: str) -> None:
    smallest = POLICIES[policy]
    simulation = simulate(policy, trace_of([7, 7, 7], [smallest + 1] * 3), smallest)
    assert (simulation.misses, simulation.missed) == (3, 3 * (smallest + 1))
    assert (simulation.miss_ratio, simulation.size_miss_ratio) == (1, 1)


@pytest.mark.parametrize("policy", POLICIES)
def test_capacity_is_refused_when_it_is_too_small(policy: str) -> None:
    smallest = POLICIES[policy]
    with pytest.raises(ValueError, match=f"{policy} cannot work with a capacity of {smallest - 1}: "):
        simulate(policy, trace_of([1]), smallest - 1)


def test_unknown_policy_is_refused_and_the_known_ones_are_named() -> None:
    with pytest.raises(ValueError, match="there is no policy 'LUR'; there are FIFO, LRU, "):
        simulate("LUR", trace_of([1]), 10)


def test_trace_is_refused_when_it_is_empty() -> None:
    with pytest.raises(ValueError, match="no requests"):
        simulate("LRU", trace_of([]), 10)


def test_library_is_named_in_one_sentence_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "libcachesim", None)
    with pytest.raises(SimulatorMissing, match=r"pip install 'WHEEL\[simulators\]'"):
        simulate("LRU", trace_of([1]), 10)
