"""Selectors of Key_Shared: every hash has one owner, and few hashes move when consumers change."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, strategies

from broker.service.subscriptions.dispatch.key_shared import (
    AutoSplitSelector,
    ConsistentHashingSelector,
    StickyRangesSelector,
    murmur3_32,
    sticky_hash_of,
)
from foundation.model.errors import ConsumerAssignError

comings = strategies.lists(strategies.tuples(strategies.booleans(), strategies.integers(0, 8)), max_size=30)


@pytest.mark.parametrize(
    ("text", "result"),
    [(b"", 0), (b"a", 0x3C2569B2), (b"abc", 0xB3DD93FA), (b"Hello, world!", 0xC0363E43)],
)
def test_murmur3_equals_the_published_function(text: bytes, result: int) -> None:
    assert murmur3_32(text) == result


def test_sticky_hash_is_never_zero() -> None:
    assert {sticky_hash_of(str(key).encode(), 2) for key in range(100)} == {1}


@given(comings)
def test_ring_assigns_every_hash_and_moves_few_when_consumers_change(steps: list[tuple[bool, int]]) -> None:
    ring = ConsistentHashingSelector(5)
    there: list[int] = []
    probes = range(1, 65536, 997)
    for add, number in steps:
        before = {probe: ring.select(probe) for probe in probes}
        if add and number not in there:
            ring.add(number, f"name-{number % 3}")
            there.append(number)
            assert all(owner in (before[probe], number) for probe, owner in owners(ring, probes))
        elif not add and number in there:
            ring.remove(number)
            there.remove(number)
            assert all(before[probe] in (owner, number) for probe, owner in owners(ring, probes))
        assert {owner for _, owner in owners(ring, probes)} <= {*there} | ({None} if not there else set())
        if there:
            ranges = ring.ranges()
            assert (ranges[0][0], ranges[-1][1]) == (1, 65535)
            assert all(a[1] + 1 == b[0] and a[2] != b[2] for a, b in pairwise(ranges))
            assert all(ring.select(first) == ring.select(last) == owner for first, last, owner in ranges)


def owners(ring: ConsistentHashingSelector, probes: range) -> list[tuple[int, object | None]]:
    return [(probe, ring.select(probe)) for probe in probes]


@given(comings)
def test_auto_split_gives_each_consumer_one_range_and_covers_all_hashes(
    steps: list[tuple[bool, int]],
) -> None:
    selector = AutoSplitSelector(16)
    there: list[int] = []
    for add, number in steps:
        if add and number not in there:
            selector.add(number)
            there.append(number)
        elif not add:
            selector.remove(number)
            there = [one for one in there if one != number]
        ranges = selector.ranges()
        assert sorted(owner for _, _, owner in ranges) == sorted(there)  # type: ignore[type-var]
        if there:
            assert [hash_ for first, last, _ in ranges for hash_ in range(first, last + 1)] == list(range(17))
        assert all(selector.select(last) == selector.select(first) == owner for first, last, owner in ranges)


def test_auto_split_refuses_a_consumer_when_no_range_can_be_split() -> None:
    selector = AutoSplitSelector(4)
    for number in range(4):
        selector.add(number)
    with pytest.raises(ConsumerAssignError):
        selector.add(4)


def test_sticky_ranges_leave_undeclared_hashes_without_an_owner() -> None:
    selector = StickyRangesSelector()
    selector.add("a", [(0, 100), (200, 300)])
    selector.add("b", [(101, 150)])
    probes = (0, 100, 101, 150, 151, 200, 300, 301)
    assert [selector.select(probe) for probe in probes] == ["a", "a", "b", "b", None, "a", "a", None]
    selector.remove("a")
    assert [selector.select(probe) for probe in (0, 101, 200)] == [None, "b", None]


@pytest.mark.parametrize(
    "ranges", [[], [(5, 4)], [(-1, 4)], [(90, 120)], [(100, 100)], [(1, 5), (5, 6)], [(0, 99999)]]
)
def test_sticky_ranges_refuse_empty_and_overlapping_ranges(ranges: list[tuple[int, int]]) -> None:
    selector = StickyRangesSelector()
    selector.add("a", [(100, 110)])
    with pytest.raises(ConsumerAssignError):
        selector.add("b", ranges)
    assert selector.ranges() == [(100, 110, "a")]
