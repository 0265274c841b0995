"""How expected reads are counted down and up, release by release."""

from __future__ import annotations

import pytest

from broker.entry_cache import PROFILE_4_2, PROFILE_5_0, Profile
from tests.broker.entry_cache.cache_fakes import new_entry, new_manager


@pytest.mark.parametrize(
    ("profile", "initial", "down", "up", "counts"),
    [
        (PROFILE_4_2, 2, 4, 4, [2, 1, 0, -1, -2, -1, 0, 1, 2]),
        (PROFILE_4_2, 0, 1, 2, [None] * 4),
        (PROFILE_4_2, -1, 1, 1, [None] * 3),
        (PROFILE_5_0, 2, 4, 2, [2, 1, 0, 0, 0, 1, 2]),
        (PROFILE_5_0, 0, 1, 2, [0, 0, 1, 2]),
        (PROFILE_5_0, -1, 1, 1, [None] * 3),
    ],
)
def test_counts(profile: Profile, initial: int, down: int, up: int, counts: list[int | None]) -> None:
    manager = new_manager(profile=profile)
    manager.open("log").insert(entry := new_entry(0), initial, now_ns=0)
    found = [profile.count_of(entry)]
    for step in [manager.handed_over] * down + [manager.put_back] * up:
        step([entry])
        found.append(profile.count_of(entry))
    assert found == counts


def test_what_is_worth_caching_when_it_comes_from_storage() -> None:
    assert [PROFILE_4_2.caches_storage_reads(count) for count in (-1, 0, 1)] == [False, False, True]
    assert [PROFILE_5_0.caches_storage_reads(count) for count in (-1, 0, 1)] == [False, True, True]
