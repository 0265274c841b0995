"""Ranges of cached entries, and the bounds of what a topic's page lists."""

from __future__ import annotations

import itertools
import random

import pytest

from broker.console.topic_detail import ENTRIES_PER_SLICE, ranges_of


def ranges(ids: list[int]) -> list[tuple[int, int]]:
    return [one for one in ranges_of(ids) if one is not None]


@pytest.mark.parametrize(
    ("ids", "found"),
    [
        ([], []),
        ([5], [(5, 5)]),
        ([0, 1, 2, 3], [(0, 3)]),
        ([0, 2, 3, 9], [(0, 0), (2, 3), (9, 9)]),
        (list(range(1000)) + list(range(1001, 1500)), [(0, 999), (1001, 1499)]),
    ],
)
def test_ranges_are_maximal(ids: list[int], found: list[tuple[int, int]]) -> None:
    assert ranges(ids) == found


def test_ranges_cover_exactly_the_ids() -> None:
    chance = random.Random(4)
    for _ in range(50):
        ids = sorted(chance.sample(range(300), chance.randrange(1, 250)))
        found = ranges(ids)
        assert [entry for first, last in found for entry in range(first, last + 1)] == ids
        assert all(later[0] > earlier[1] + 1 for earlier, later in itertools.pairwise(found))


def test_walk_over_many_ranges_pauses() -> None:
    ids = list(range(0, 4 * ENTRIES_PER_SLICE, 2))
    assert list(ranges_of(ids)).count(None) == 2
