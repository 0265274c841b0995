"""How expected reads are counted down and up, release by release."""

from __future__ import annotations

import pytest

from entry_cache.removal_queue import RemovalQueue
from tests.entry_cache.cache_fakes import READER, new_entry, new_manager


@pytest.mark.parametrize(
    ("profile", "initial", "down", "up", "counts"),
    [
        ("4.2", 2, 4, 4, [2, 1, 0, -1, -2, -1, 0, 1, 2]),
        ("4.2", 0, 1, 2, [None] * 4),
        ("4.2", None, 1, 1, [None] * 3),
        ("5.0", 2, 4, 2, [2, 1, 0, 0, 0, 1, 2]),
        ("5.0", 0, 1, 2, [0, 0, 1, 2]),
        ("5.0", None, 1, 1, [None] * 3),
    ],
)
def test_profile_counts_expected_reads(
    profile: str, initial: int | None, down: int, up: int, counts: list[int | None]
) -> None:
    manager = new_manager(profile=profile)
    policy = manager.policy
    assert isinstance(policy, RemovalQueue)
    manager.open("log").insert_run([entry := new_entry(0)], initial, now_ns=0)
    found = [entry.expected_reads]
    for step in ["down"] * down + ["up"] * up:
        if step == "down":
            manager.mark_delivered([entry])
        else:
            manager.expect_redelivery(READER, [entry])
        found.append(entry.expected_reads)
    assert found == counts


def test_profile_fills_the_cache_from_storage_by_expected_reads() -> None:
    old, new = new_manager(profile="4.2").policy, new_manager(profile="5.0").policy
    assert [old.counts.fills_cache(count) for count in (-1, 0, 1)] == [False, False, True]
    assert [new.counts.fills_cache(count) for count in (-1, 0, 1)] == [False, True, True]
