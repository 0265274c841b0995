"""Explanations name the readers to come, also of many, and count requeues under each policy."""

from __future__ import annotations

import pytest

from entry_cache.active_cursors import NAMES_KEPT
from entry_cache.observe.cache_events import Op
from entry_cache.observe.expected_level import count_expected
from foundation.model.position import Position
from tests.entry_cache.cache_fakes import Acknowledging, new_entry
from tests.entry_cache.observe.test_explain import Room


@pytest.mark.parametrize("policy", ["magnetar", "pip430"])
def test_explain_names_departed_cursors_expected_back(policy: str) -> None:
    """As the level counts it: where the policy waits for them, and while it does."""
    room = Room(policy=policy)
    room.cursors.add("gone", Position(1, 0), Acknowledging(1, -1))
    room.cursors.add("tail", Position(1, 9))
    room.insert(new_entry(0), expected=0)
    room.cursors.remove("gone", room.now)
    told, waits = room.why(0), policy == "magnetar"
    assert told.present is not None
    assert told.present.to_return == (("gone",) if waits else ())
    assert (told.present.expected_reads or 0) == level_of(room) == waits
    assert ("gone left and is expected back for it." in told.conclusion) == waits
    room.cursors.add("slow", Position(1, 0))
    end = (
        "slow will still read it, and gone left and is expected back for it."
        if waits
        else "slow will still read it."
    )
    assert room.why(0).conclusion.endswith(end)
    room.cursors.remove("slow", room.now)
    room.after(5)
    assert level_of(room) == 0
    assert "no reader is known to come for it" in room.why(0).conclusion


def level_of(room: Room) -> int:
    walk = count_expected(room.manager.caches, room.manager.eviction_stats.expectations, room.now)
    with pytest.raises(StopIteration) as end:
        next(walk)
    entries: int = end.value.value.entries
    return entries


@pytest.mark.parametrize("policy", ["magnetar", "pip430-stash", "pip430"])
def test_explain_reads_requeues_from_events_for_each_policy(policy: str) -> None:
    room = Room(policy=policy)
    room.cursors.add("slow", Position(1, 0))
    room.insert(new_entry(0), expected=1)
    for _ in range(2):
        room.after(1.5)
        room.pass_over()
    room.after(0.25)
    told = room.why(0)
    requeued = [event.at_ns for event in told.events if event.op is Op.REQUEUE]
    assert told.present is not None
    assert requeued
    assert told.present.requeues == len(requeued)
    assert told.present.unvisited_ns == room.now - requeued[-1]


def test_explain_omits_requeues_when_the_insert_is_forgotten() -> None:
    room = Room(keep=1)
    room.insert(new_entry(0))
    room.insert(new_entry(1))
    told = room.why(0)
    assert told.present is not None
    assert (told.present.requeues, told.present.unvisited_ns) == (None, None)


# Very many readers


def test_event_names_a_limited_number_of_readers() -> None:
    count = 3 * NAMES_KEPT
    room = Room()
    for number in range(count):
        room.cursors.add(f"c{number:03}", Position(1, 0))
    room.cursors.update("c007", Position(1, 50))  # Not all stand where the entry is, or before.
    room.insert(new_entry(0), expected=count - 1)
    told = room.why(0)
    first = [f"c{number:03}" for number in range(NAMES_KEPT + 1) if number != 7]
    assert list(told.events[0].who) == first
    assert told.present is not None
    assert len(told.present.to_come) == count - 1, "who stands there now is told in full"
    assert told.conclusion.endswith(f"c000, c001, c002 and {count - 4} more will still read it.")
    room.insert(new_entry(60), expected=count)
    room.insert(new_entry(61), expected=count)
    one, other = (room.why(entry_id).events[0].who for entry_id in (60, 61))
    assert len(one) == NAMES_KEPT
    assert one is other, "while nobody stands behind the entries all events share one tuple"
    room.manager.evict_bytes(1 << 20, room.now)
    assert room.why(60).conclusion.endswith(
        f"although c000, c001, c002 and {NAMES_KEPT - 3} more had not read it"
        f" ({count - NAMES_KEPT} more were to read it, whose names are not kept)."
    )


def test_explain_omits_unnamed_readers_when_all_named_ones_have_read() -> None:
    room = Room()
    for number in range(NAMES_KEPT + 5):
        room.cursors.add(str(number), Position(1, 0))
    room.insert(new_entry(0))
    for number in range(NAMES_KEPT + 5):
        room.read(str(number), 0, 0)
    room.manager.evict_bytes(1, room.now)
    assert room.why(0).conclusion.endswith(
        "; no further read was expected (5 more were to read it, whose names are not kept)."
    )
