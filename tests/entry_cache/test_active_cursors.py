"""Ranks equal a count by hand; active cursors count as readers."""

from __future__ import annotations

import weakref

import pytest
from hypothesis import given, strategies

from entry_cache.active_cursors import ActiveCursors, count_to
from foundation.model.position import Position
from tests.entry_cache.cache_fakes import SECOND, Acknowledging, new_manager

names = strategies.sampled_from("abcdef")
places = strategies.one_of(
    strategies.none(), strategies.builds(Position, strategies.integers(1, 2), strategies.integers(0, 5))
)


@given(
    strategies.lists(strategies.tuples(strategies.sampled_from(["add", "update", "remove"]), names, places))
)
def test_ranks_equal_a_count_over_all_cursors(operations: list[tuple[str, str, Position | None]]) -> None:
    cursors = ActiveCursors(0, 0)
    model: dict[str, Position | None] = {}
    for operation, name, place in operations:
        if operation == "add":
            cursors.add(name, place)
            model[name] = place
        elif operation == "update":
            cursors.update(name, place)
            if name in model:
                model[name] = place
        else:
            assert cursors.remove(name, 1) == (name in model)
            model.pop(name, None)
        tracked = sorted(position for position in model.values() if position is not None)
        for one in "abcdef":
            own = model.get(one)
            assert cursors.rank(one) == (0 if own is None else sum(p <= own for p in tracked))
            assert cursors.position(one) == own
        assert cursors.slowest() == (tracked[0] if tracked else None)
        assert count_to(cursors.places, Position(1, 3)) == sum(p <= (1, 3) for p in tracked)
        assert cursors.count == len(cursors) == len(model)


def test_ranks_stay_right_when_one_of_equal_positions_moves() -> None:
    """Apache's 4.2 reports 4 for the cursor that stayed."""
    cursors = ActiveCursors(0, 0)
    for name, entry in zip("abcd", (1, 2, 5, 5), strict=True):
        cursors.add(name, Position(1, entry))
    cursors.update("d", Position(1, 6))
    assert [cursors.rank(name) for name in "abcd"] == [1, 2, 3, 4]


@pytest.mark.parametrize("policy", ["pip430", "fifo-ttl", "pip430-stash"])
def test_counting_policies_keep_nothing_of_cursors_that_left(policy: str) -> None:
    """`test_bounds` has the other half: `magnetar` keeps departed cursors, and forgets them in time."""
    cache = new_manager(policy=policy).open("log")
    cursors = ActiveCursors(SECOND, 0)
    cache.attach_cursors(cursors)
    of_log = []
    for number in range(2000):
        cursor = Acknowledging(1, number)
        of_log.append(weakref.ref(cursor))
        cursors.add(f"c{number}", Position(1, number), cursor)
        cursors.remove(f"c{number}", number)
    del cursor
    assert cursors.watcher is None
    assert (len(cursors), cursors.places, cursors.first_names) == (0, [], ())
    assert not any(cursor() for cursor in of_log), "a whole managed cursor would stay alive"


def test_added_entries_are_cached_while_a_cursor_is_active_and_shortly_after() -> None:
    cursors = ActiveCursors(continue_caching_ns=100, now_ns=1000)
    assert cursors.should_cache_added(1099)
    assert not cursors.should_cache_added(1100)
    cursors.add("a", None)
    assert cursors.should_cache_added(5000)
    cursors.remove("nobody", 5500)
    cursors.remove("a", 6000)
    assert cursors.should_cache_added(6099)
    assert not cursors.should_cache_added(6100)
    assert not ActiveCursors(0, 1000).should_cache_added(1000)
