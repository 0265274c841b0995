"""DelayedEntries and its buckets: against a plain dictionary, and over their stored form."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.managed_ledger.delayed.bucket import BrokenSegment, Bucket, BucketSegment
from broker.managed_ledger.delayed.delayed_entries import DelayedEntries
from foundation.model.position import Position

YEAR_9999_MS = 253_402_300_799_000
times = st.one_of(st.integers(0, 50), st.sampled_from([-(2**63), YEAR_9999_MS, 2**63 - 1]))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("hold"), st.integers(1, 3), st.integers(0, 20), times),
        st.tuples(st.just("take_due"), times, st.integers(1, 5)),
        st.tuples(st.just("forget"), st.integers(1, 3), st.integers(-1, 20)),
        st.tuples(st.just("remove_empty")),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(steps)
def test_index_agrees_with_a_dictionary_of_times(script: list[tuple[Any, ...]]) -> None:
    index = DelayedEntries(3, 7)
    model: dict[tuple[int, int], int] = {}
    for step, *arguments in script:
        if step == "hold":
            ledger_id, entry_id, at_ms = arguments
            index.hold(ledger_id, entry_id, at_ms, 1)
            model.setdefault((ledger_id, entry_id), at_ms)
        elif step == "take_due":
            due = index.take_due(*arguments)
            assert all(key in model for key in due)
            for key in due:
                del model[key]
        elif step == "forget":
            through = Position(*arguments)
            index.forget(through)
            model = {key: at_ms for key, at_ms in model.items() if key > through}
        else:
            index.remove_empty()
        assert len(index) == len(model)
        assert all(key in index.held for key in model)
    while (first := index.next_due_ms) is not None:
        index.take_due(first, 100)
    index.remove_empty()
    assert (len(index), index.size_bytes, index.fixed_delay) == (0, 0, True)


def test_entry_is_due_once_though_it_was_forgotten_and_held_again() -> None:
    index = DelayedEntries(10, 10)
    index.hold(1, 5, 100, 1)
    index.forget(Position(1, 5))
    index.hold(1, 5, 100, 1)
    assert index.take_due(100, 10) == [(1, 5)]


def test_entries_of_one_delay_are_known_as_such_until_one_is_earlier() -> None:
    index = DelayedEntries(10, 10)
    for number in range(5):
        index.hold(1, number, 1000 + number, 10)
    index.hold(1, 5, 999, 10)
    assert index.fixed_delay, "within a tick"
    index.hold(1, 6, 900, 10)
    assert not index.fixed_delay


def test_full_bucket_is_returned_once() -> None:
    index = DelayedEntries(2, 4)
    full = [index.hold(1, number, number, 1) for number in range(8)]
    assert [bucket is not None for bucket in full] == [False] * 3 + [True] + [False] * 3 + [True]
    assert index.buckets == [bucket for bucket in full if bucket is not None]


@given(st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 2**40 - 1), times), max_size=40))
def test_segment_survives_its_stored_form(items: list[tuple[int, int, int]]) -> None:
    segment = BucketSegment()
    for item in items:
        segment.add(*item)
    found = BucketSegment.decode(segment.encode())
    assert list(found.items()) == list(segment.items()) == sorted(items, key=lambda item: item[2])
    bucket = Bucket.restore([found], 7)
    assert bucket.count == len(items)
    assert bucket.last == max((item[:2] for item in items), default=(-1, -1))


@pytest.mark.parametrize(
    "stored", [b"", b"MDS1", b"MDS2" + bytes(8), b"MDS1" + bytes(9), b"MDS1\0\0\0\0\1\0\0\0" + bytes(16)]
)
def test_segment_refuses_other_bytes(stored: bytes) -> None:
    with pytest.raises(BrokenSegment):
        BucketSegment.decode(stored)


def test_load_drops_entries_that_are_due_or_trimmed() -> None:
    segment = BucketSegment()
    for ledger_id, entry_id, at_ms in [(1, 0, 500), (2, 0, 100), (2, 1, 500)]:
        segment.add(ledger_id, entry_id, at_ms)
    index = DelayedEntries(10, 10)
    assert list(index.load(Bucket.restore([segment], 7), first_ledger=2, now_ms=200)) == [None]
    assert (len(index), index.stored) == (1, [7])
    assert index.take_due(500, 10) == [(2, 1)]
    assert index.remove_empty() == [7]


@pytest.mark.slow
def test_million_entries_take_less_than_32_mib() -> None:
    tracemalloc.start()
    try:
        index = DelayedEntries(5000, 50_000)
        for number in range(1_000_000):
            # Every order of times: neighbours are far apart.
            index.hold(1, number, number * 7919 % 1_000_003, 1)
        used, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 32 << 20
    assert index.size_bytes > 16_000_000
    assert abs(index.size_bytes - used) < used // 4, "the reported size is about the memory"
