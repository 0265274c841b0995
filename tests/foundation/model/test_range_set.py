"""RangeSet against a plain set of positions."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation.model import range_set
from foundation.model.range_set import PAGE_BITS, PAGE_ENTRIES, EntryRange, RangeSet

ledgers = st.integers(1, 3)
entries = st.one_of(st.integers(0, 12), st.integers(PAGE_ENTRIES - 4, PAGE_ENTRIES + 4), st.integers(0, 1100))
bits = st.one_of(st.integers(0, 2**300), st.integers(0, 600).map(lambda count: (1 << count) - 1))
operations = st.one_of(
    st.tuples(st.just("add"), ledgers, entries),
    st.tuples(st.just("add_bits"), ledgers, entries, bits),
    st.tuples(st.just("remove_through"), ledgers, entries),
    st.tuples(st.just("remove_from_front"), ledgers, entries),
    st.tuples(st.just("remove_ledger"), ledgers),
    st.tuples(st.just("discard"), ledgers, entries),
    st.tuples(st.just("pop_first"), st.integers(0, 300)),
)


def naive_ranges(model: set[tuple[int, int]]) -> list[EntryRange]:
    found: list[EntryRange] = []
    for ledger_id, entry_id in sorted(model):
        if found and (found[-1].ledger_id, found[-1].last + 1) == (ledger_id, entry_id):
            found[-1] = found[-1]._replace(last=entry_id)
        else:
            found.append(EntryRange(ledger_id, entry_id, entry_id))
    return found


@settings(deadline=None)
@given(st.lists(operations, max_size=40), ledgers, entries, entries, st.integers(0, 12))
def test_range_set_agrees_with_a_set_of_positions(
    script: list[tuple[Any, ...]], ledger_id: int, entry_id: int, last: int, ranges_max: int
) -> None:
    ranges = RangeSet()
    model: set[tuple[int, int]] = set()
    for name, *arguments in script:
        before = set(model)
        if name == "add":
            model.add(tuple(arguments))
            assert ranges.add(*arguments) == (len(model) > len(before))
        elif name == "add_bits":
            target, first, given_bits = arguments
            model |= {(target, first + n) for n in range(given_bits.bit_length()) if given_bits >> n & 1}
            assert ranges.add_bits(target, first, given_bits) == len(model) - len(before)
        elif name == "remove_through":
            model = {item for item in model if item[0] != arguments[0] or item[1] > arguments[1]}
            assert ranges.remove_through(*arguments) == len(before) - len(model)
        elif name == "remove_from_front":
            # As a cursor does it, which knows up to where the set has nothing.
            target, through = arguments
            front = min((entry for ledger, entry in model if ledger == target), default=0) - 1
            model = {item for item in model if item[0] != target or item[1] > through}
            assert ranges.remove_through(target, through, min(front, through)) == len(before) - len(model)
        elif name == "discard":
            model.discard(tuple(arguments))
            assert ranges.discard(*arguments) == (len(model) < len(before))
        elif name == "pop_first":
            popped = sorted(model)[: arguments[0]]
            model -= set(popped)
            assert ranges.pop_first(*arguments) == popped
        else:
            model = {item for item in model if item[0] != arguments[0]}
            assert ranges.remove_ledger(*arguments) == len(before) - len(model)
    assert len(ranges) == len(model)
    assert list(ranges.ranges()) == naive_ranges(model)
    assert ranges.last() == max(model, default=(-1, -1))
    outside = [entry for entry in range(entry_id, last + 1) if (ledger_id, entry) not in model]
    assert ranges.missing(ledger_id, entry_id, last, 2000) == outside
    assert ranges.missing(ledger_id, entry_id, last, 3) == outside[:3]
    twin = ranges.copy()
    ranges.add(9, 9)
    assert list(twin.ranges()) == naive_ranges(model)
    assert twin.count == len(model)
    ranges.discard(9, 9)
    kept = RangeSet()
    for page in ranges.lowest_pages(ranges_max):
        kept.add_bits(*page)
    assert list(kept.ranges()) == naive_ranges(model)[:ranges_max]
    assert ((ledger_id, entry_id) in ranges) == ((ledger_id, entry_id) in model)
    assert ranges.first_missing(ledger_id, entry_id) == next(
        number for number in range(entry_id, 3000) if (ledger_id, number) not in model
    )
    assert ranges.first_present(ledger_id, entry_id, last) == next(
        (number for number in range(entry_id, last + 1) if (ledger_id, number) in model), last + 1
    )


def test_removed_entries_leave_no_pages() -> None:
    ranges = RangeSet()
    assert ranges.add_bits(7, 0, (1 << 10_001) - 1) == 10_001
    assert ranges.remove_through(7, 10_000) == 10_001
    assert ranges.ledger_ids() == []
    assert not ranges


def test_range_set_is_empty_after_clear() -> None:
    ranges = RangeSet()
    ranges.add(1, 5)
    ranges.clear()
    assert len(ranges) == 0
    assert (1, 5) not in ranges


@settings(deadline=None)
@given(
    st.sets(st.tuples(ledgers, entries), max_size=60),
    st.sets(st.tuples(ledgers, entries), max_size=60),
    ledgers,
    entries,
)
def test_two_range_sets_agree_with_two_sets(
    first: set[tuple[int, int]], second: set[tuple[int, int]], ledger_id: int, entry_id: int
) -> None:
    one, other = RangeSet(), RangeSet()
    for item in first:
        one.add(*item)
    for item in second:
        other.add(*item)
    both = first | second
    assert one.first_missing(ledger_id, entry_id, other) == next(
        number for number in range(entry_id, 2000) if (ledger_id, number) not in both
    )
    behind = {item for item in first - second if item > (ledger_id, entry_id)}
    assert one.count_after(ledger_id, entry_id, other) == len(behind)
    assert one.pages == len({(ledger, number // PAGE_ENTRIES) for ledger, number in first})


def test_count_of_ranges_joins_those_that_cross_pages() -> None:
    ranges = RangeSet()
    for entry_id in (0, 1, 5, 254, 255, 256, 257, 511, 512, 1023):
        ranges.add(3, entry_id)
    ranges.add(4, 7)
    assert ranges.count_ranges() == len(list(ranges.ranges())) == 6


def test_pages_of_a_large_set_come_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_set, "SORTED_AT_ONCE", 7)
    entries = random.Random(3).sample(range(100_000), 500)
    found = RangeSet()
    for entry in entries:
        found.add(1, entry)
    assert [one.first for one in found.ranges()] == sorted({*entries} - {entry + 1 for entry in entries})
    pages = [first for _, first, _ in found.lowest_pages(1 << 40)]
    assert pages == sorted({entry >> PAGE_BITS << PAGE_BITS for entry in entries})
