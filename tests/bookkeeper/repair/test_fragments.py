"""Decisions on fragments: entries of a position, lost bookies, delays, and the metadata after a copy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bookkeeper.ensembles.placement import write_set
from bookkeeper.repair.fragments import (
    Fragment,
    backoff_ns,
    bookies_needed,
    due_bookies,
    follow_lost,
    fragments_of,
    lost_of,
    replace_members,
)
from bookkeeper.repair.pace import CopyPace
from protocol.ledger_metadata import LedgerMetadata, LedgerSegment, LedgerState

CLOSED = LedgerMetadata(
    (LedgerSegment(("a", "b", "c")), LedgerSegment(("a", "d", "c"), 10)),
    LedgerState.CLOSED,
    length=100,
    last_entry_id=14,
    ensemble_size=3,
    write_quorum=2,
    ack_quorum=2,
)
OPEN = replace(CLOSED, state=LedgerState.OPEN, last_entry_id=-1, length=0)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 23])
@pytest.mark.parametrize("first", [0, 4])
def test_entries_of_a_position_are_those_whose_write_set_has_it(size: int, count: int, first: int) -> None:
    members = tuple("abcde"[:size])
    for quorum in range(1, size + 1):
        fragment = Fragment(LedgerSegment(members, first), first + count - 1, quorum)
        for position in range(size):
            entries = [
                each for each in range(first, first + count) if position in write_set(each, size, quorum)
            ]
            assert list(fragment.entries_at(position)) == entries
            edges = fragment.edges_at(position)
            assert edges == ((entries[0], entries[-1])[: len(entries)] if entries else ())
            middle = entries[len(entries) // 2 :]
            if middle:
                assert list(fragment.entries_at(position, middle[0])) == middle


def test_last_segment_of_an_open_ledger_has_no_last_entry() -> None:
    assert [fragment.last_entry_id for fragment in fragments_of(CLOSED)] == [9, 14]
    assert [fragment.last_entry_id for fragment in fragments_of(OPEN)] == [9, None]
    assert [fragment.is_open for fragment in fragments_of(OPEN)] == [False, True]


def test_bookie_without_an_entry_of_a_closed_ledger_is_not_needed() -> None:
    assert bookies_needed(CLOSED) == {"a", "b", "c", "d"}
    assert bookies_needed(replace(CLOSED, last_entry_id=10)) == {"a", "b", "c", "d"}
    assert bookies_needed(replace(CLOSED, last_entry_id=9)) == {"a", "b", "c"}
    empty = replace(CLOSED, segments=CLOSED.segments[:1], last_entry_id=-1)
    assert bookies_needed(empty) == set()
    assert bookies_needed(replace(empty, state=LedgerState.OPEN)) == {"a", "b", "c"}
    assert bookies_needed(replace(empty, last_entry_id=0)) == {"a", "b"}


def test_lost_bookies_of_a_ledger_are_those_needed_and_not_registered() -> None:
    assert lost_of(CLOSED, {"a", "c", "x"}) == ("b", "d")
    assert lost_of(CLOSED, {"a", "b", "c", "d"}) == ()


def test_replacement_changes_one_segment_and_nothing_else() -> None:
    changed = replace_members(CLOSED, CLOSED.segments[0], {1: "x"})
    assert changed == replace(CLOSED, segments=(LedgerSegment(("a", "x", "c")), CLOSED.segments[1]))
    assert replace_members(CLOSED, LedgerSegment(("a", "z", "c")), {1: "x"}) is None
    assert replace_members(CLOSED, CLOSED.segments[0], {1: "c"}) is None
    grown = replace(CLOSED, segments=(*CLOSED.segments, LedgerSegment(("e", "d", "c"), 12)))
    moved = replace_members(grown, CLOSED.segments[1], {0: "x"})
    assert moved is not None
    assert moved.segments[2] == grown.segments[2]


def test_one_lost_bookie_is_waited_for_and_several_are_not() -> None:
    assert due_bookies({"a": 100}, 50, 149) == (frozenset(), 150)
    assert due_bookies({"a": 100}, 50, 150) == (frozenset({"a"}), None)
    assert due_bookies({"a": 100}, 0, 100) == (frozenset({"a"}), None)
    assert due_bookies({"a": 100, "b": 149}, 50, 149) == (frozenset({"a", "b"}), None)
    assert due_bookies({}, 50, 149) == (frozenset(), None)


def test_lost_bookie_keeps_its_time_until_it_is_back() -> None:
    lost = follow_lost({}, {"a", "b"}, {"b"}, 5)
    assert lost == {"a": 5}
    assert follow_lost(lost, set(), {"b"}, 9) == {"a": 5}
    assert follow_lost(lost, {"b"}, set(), 9) == {"a": 5, "b": 9}
    assert follow_lost(lost, {"a"}, {"a", "b"}, 9) == {}


def test_wait_doubles_up_to_a_limit() -> None:
    assert [backoff_ns(failures, 5, 30) for failures in (1, 2, 3, 4, 1000)] == [5, 10, 20, 30, 30]


def test_pace_spreads_bytes_over_time() -> None:
    pace = CopyPace(1000)
    assert pace.wait_ns(500, 0) == 0
    assert pace.wait_ns(500, 0) == 500_000_000
    assert pace.wait_ns(1, 10_000_000_000) == 0
    unlimited = CopyPace(-1)
    assert [unlimited.wait_ns(10**9, 0) for _ in range(3)] == [0, 0, 0]
