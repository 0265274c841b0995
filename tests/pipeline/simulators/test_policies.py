"""What each policy evicts, on sequences small enough to follow by hand, and what holds for all of them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.simulators.cache import Cache
from pipeline.simulators.clock import Clock
from pipeline.simulators.fifo import FIFO
from pipeline.simulators.lfu import LFU
from pipeline.simulators.lirs import LIRS
from pipeline.simulators.lru import LRU
from pipeline.simulators.policies import POLICIES, policy_named
from pipeline.simulators.replay import replay_by_object
from pipeline.simulators.s3fifo import S3FIFO
from pipeline.simulators.sieve import Sieve
from pipeline.simulators.slru import SLRU
from pipeline.simulators.trace import Trace, trace_of
from pipeline.simulators.two_q import TwoQ
from tests.pipeline.simulators.random_traces import capacities, traces


def hits(cache: Cache, keys: str) -> str:
    """`+` for a hit and `.` for a miss, one for each letter; spaces are for the reader."""
    return "".join(" " if key == " " else "+" if cache.access(ord(key)) else "." for key in keys)


def test_fifo_does_not_care_for_hits() -> None:
    assert hits(FIFO(3), "abc a d a") == "... + . ."


def test_lru_keeps_what_was_asked_for() -> None:
    assert hits(LRU(3), "abc a d a b") == "... + . + ."


def test_clock_gives_one_more_turn_as_the_newest() -> None:
    # a is spared for d and moved behind c; then b and c go before it.
    assert hits(Clock(3), "abc a d e f a") == "... + . . . ."
    assert hits(Clock(3), "abc a d e a") == "... + . . +"


def test_sieve_spares_in_place_and_goes_on_from_there() -> None:
    # d takes b's room, e takes c's, and the hand stands at d, which f takes: a stays although it is the oldest.
    assert hits(Sieve(3), "abc a d e f a e") == "... + . . . + +"


def test_lfu_breaks_ties_by_who_came_to_the_count_first() -> None:
    assert hits(LFU(3), "abc cba d cba") == "... +++ . .++"


def test_lfu_is_sieve_until_the_hand_has_wrapped() -> None:
    """Nothing is visited behind the hand, so both evict the oldest of those that were never asked for."""
    keys = "abcdefgh aceg ijkl aceg mn"
    assert hits(Sieve(8), keys) == hits(LFU(8), keys)


def test_slru_lifts_and_sinks() -> None:
    # Segments of one: b is lifted into the second and a sinks back; c and d fill the upper two, and e evicts a.
    assert hits(SLRU(4), "aa bb c d e a") == ".+ .+ . . . ."
    # At the top a has nothing above it; b rises below it, one segment a hit.
    assert hits(SLRU(4), "aaaa bbb c d a b") == ".+++ .++ . . + +"


def test_two_q_admits_to_main_what_comes_back_as_a_ghost() -> None:
    # a leaves for the ghost, returns into main, and survives a scan as long as the cache.
    assert hits(TwoQ(8), "abcdefgh i a jklmnopqrst a") == "........ . . ........... +"


def test_s3fifo_sends_new_objects_to_main_until_the_first_eviction() -> None:
    cache = S3FIFO(20)
    assert hits(cache, "abcdefghijklmnopqrst") == "." * 20
    # a and b are in small, where u and v take their places; all others are in main.
    assert hits(cache, "uv cdefghijklmnopqrst") == ".. " + "+" * 18


def test_s3fifo_admits_to_main_what_comes_back_as_a_ghost() -> None:
    cache = S3FIFO(20)
    hits(cache, "abcdefghijklmnopqrst")
    # u makes a a ghost; a returns into main, where c is the oldest and leaves first.
    assert hits(cache, "u a wxyz a d c") == ". . .... + + ."


def test_s3fifo_refuses_what_is_as_large_as_the_small_queue() -> None:
    cache = S3FIFO(100)
    assert [cache.access(1, 10), cache.access(1, 10), cache.access(2, 9), cache.access(2, 9)] == [
        False,
        False,
        False,
        True,
    ]


def test_lirs_keeps_the_hot_through_a_scan() -> None:
    hot = "".join(chr(number) for number in range(200, 299))
    cache = LIRS(100)
    hits(cache, hot)
    hits(cache, "".join(chr(number) for number in range(1000, 2000)))
    assert hits(cache, hot) == "+" * 99


def test_lirs_makes_hot_what_comes_back_as_a_ghost() -> None:
    cache = LIRS(100)
    hits(cache, "".join(chr(number) for number in range(200, 299)))
    # x is cold and evicted by y; back in time, it is hot and outlives a scan.
    assert hits(cache, "x y x") == ". . ."
    hits(cache, "".join(chr(number) for number in range(1000, 2000)))
    assert hits(cache, "x") == "+"


def test_belady_evicts_what_is_asked_for_last() -> None:
    # d takes the place of c, c that of b.
    trace = trace_of([ord(key) for key in "abcdabcadb"])
    assert replay_by_object("Belady", trace, 3).hits.tolist() == [mark == "+" for mark in "....++.++."]


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=40)
@given(data=st.data())
def test_never_holds_more_than_the_capacity(policy: str, data: st.DataObject) -> None:
    trace: Trace = data.draw(traces())
    capacity = data.draw(capacities(policy))
    cache = policy_named(policy).new_cache(trace, capacity)
    keys, sizes = trace.keys.tolist(), trace.sizes.tolist()
    for x in trace.ids.tolist():
        cache.access(keys[x], sizes[x])
        assert 0 <= cache.used <= capacity


@settings(max_examples=60)
@given(trace=traces(equal_sizes=True), capacity=st.integers(10, 60))
def test_no_policy_beats_belady(trace: Trace, capacity: int) -> None:
    best = replay_by_object("Belady", trace, capacity).misses
    for policy in POLICIES:
        # LIRS counts a hit on what it has just pushed out (see its module), so it may.
        if policy_named(policy).capacity_min <= capacity and policy != "LIRS":
            assert replay_by_object(policy, trace, capacity).misses >= best, policy


@pytest.mark.parametrize("policy", POLICIES)
def test_everything_fits(policy: str) -> None:
    trace = trace_of(list(range(100)) * 2)
    assert replay_by_object(policy, trace, 100_000).misses == 100


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_larger_than_the_cache_is_a_miss_for_ever(policy: str) -> None:
    smallest = policy_named(policy).capacity_min
    trace = trace_of([7, 7, 7], [smallest + 1] * 3)
    replayed = replay_by_object(policy, trace, smallest)
    assert (replayed.misses, replayed.missed) == (3, 3 * (smallest + 1))
    assert (replayed.miss_ratio, replayed.size_miss_ratio) == (1, 1)


@pytest.mark.parametrize("policy", POLICIES)
def test_too_small_a_capacity_is_refused_by_name(policy: str) -> None:
    smallest = policy_named(policy).capacity_min
    for make in (
        replay_by_object,
        lambda *arguments: policy_named(policy).new_cache(trace_of([1]), smallest - 1),
    ):
        with pytest.raises(ValueError, match=f"{policy} cannot work with a capacity of {smallest - 1}: "):
            make(policy, trace_of([1]), smallest - 1)


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="there is no policy 'LUR'; there are FIFO, LRU, "):
        replay_by_object("LUR", trace_of([1]), 10)


def test_an_empty_trace_is_refused() -> None:
    with pytest.raises(ValueError, match="no requests"):
        replay_by_object("LRU", trace_of([]), 10)
