"""Ranges of cached entries, and the bounds of what a topic's page lists."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import cast

import pytest

from broker.console import topic_detail
from broker.console.topic_detail import cached_ranges, newest_ranges, ranges_of
from entry_cache.range_cache import CachedLog, RangeCache
from foundation.model.entry import Entry


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
    assert list(ranges_of(ids)) == found


def test_ranges_cover_exactly_the_ids() -> None:
    chance = random.Random(4)
    for _ in range(50):
        ids = sorted(chance.sample(range(300), chance.randrange(1, 250)))
        found = list(ranges_of(ids))
        assert [entry for first, last in found for entry in range(first, last + 1)] == ids
        assert all(later[0] > earlier[1] + 1 for earlier, later in itertools.pairwise(found))


class NotWalked(dict[int, Entry]):
    """Entries that must not be looked at one by one."""

    def __iter__(self) -> Iterator[int]:
        raise AssertionError("a walk over all entries holds the loop")


def ledger_of(ids: list[int], entries: dict[int, Entry]) -> RangeCache:
    found = RangeCache(cast(CachedLog, None), ids[0])
    found.highest_id = ids[-1]
    found.entries = entries
    entries.update({one: Entry(3, one, b"", b"", 1) for one in ids})
    return found


async def test_ledger_without_gaps_is_one_range_and_is_not_walked() -> None:
    whole, gaps = ledger_of([4, 5, 6], NotWalked()), ledger_of([0, 2, 3, 9], {})
    assert await cached_ranges({7: whole, 8: gaps}, [8, 7]) == {7: [(4, 6)], 8: [(0, 0), (2, 3), (9, 9)]}


@pytest.mark.parametrize("per_slice", [3, 7, 1000])
async def test_newest_ranges_are_listed_ascending_whatever_the_slices(
    monkeypatch: pytest.MonkeyPatch, per_slice: int
) -> None:
    monkeypatch.setattr(topic_detail, "IDS_PER_SLICE", per_slice)
    chance = random.Random(5)
    for _ in range(50):
        ids = sorted(chance.sample(range(100, 300), chance.randrange(1, 180)))
        whole = list(ranges_of(ids))
        # A backlog read inserts older entries behind newer ones.
        cache = ledger_of(ids[len(ids) // 2 :] + ids[: len(ids) // 2], {})
        cache.lowest_id, cache.highest_id = 90, 310
        most = chance.randrange(1, 20)
        assert await newest_ranges(cache, most) == whole[-most:]


async def test_ranges_of_newer_entries_come_first_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_detail, "RANGES_MAX", 3)
    old, new = ledger_of([0, 2, 4], {}), ledger_of([1, 3, 5], {})
    assert await cached_ranges({7: old, 8: new}, [8, 7]) == {8: [(1, 1), (3, 3), (5, 5)]}
    monkeypatch.setattr(topic_detail, "RANGES_MAX", 4)
    assert (await cached_ranges({7: old, 8: new}, [8, 7]))[7] == [(4, 4)]
