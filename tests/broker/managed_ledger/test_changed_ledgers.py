"""ChangedLedgers: each follower gets each changed name, and nothing is noted for none."""

from __future__ import annotations

import gc

import pytest

from broker.managed_ledger import stats
from broker.managed_ledger.stats import ChangedLedgers


def test_nothing_is_noted_without_a_follower() -> None:
    changed = ChangedLedgers()
    changed.note("before")
    assert changed.names is None
    changes = changed.follow()
    changed.note("a")
    assert list(changes.take()) == ["a"]
    changed.forget(changes)
    changed.note("b")
    assert changed.names is None


def test_each_follower_gets_all_names_since_its_last_take() -> None:
    changed = ChangedLedgers()
    first = changed.follow()
    changed.note("a")
    second = changed.follow()
    changed.note("b")
    assert list(first.take()) == ["b", "a"]
    changed.note("c")
    changed.note("c")
    assert list(first.take()) == ["c"]
    assert list(first.take()) == []
    assert sorted(second.take()) == ["b", "c"]


def test_changes_that_are_noted_while_names_are_taken_come_too() -> None:
    changed = ChangedLedgers()
    changes, other = changed.follow(), changed.follow()
    for name in ("a", "b"):
        changed.note(name)
    taking = changes.take()
    found = [next(taking)]
    changed.note(found[0])
    assert sorted(other.take()) == ["a", "b"]
    assert sorted([*found, *taking, *changes.take()]) == sorted(["a", "b", found[0]])


def test_many_changed_ledgers_are_in_several_dicts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "CHANGED_AT_ONCE", 3)
    changed = ChangedLedgers()
    changes = changed.follow()
    for number in range(10):
        changed.note(f"ledger-{number}")
    changed.pass_on()
    assert [len(names) for names in changes._names] == [3, 3, 3, 1]
    assert not any(map(gc.is_tracked, changes._names)), "the collector looks at no name"
    assert len(set(changes.take())) == 10


def test_names_that_change_again_and_again_are_there_once_for_a_follower_that_is_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stats, "CHANGED_AT_ONCE", 5)
    changed = ChangedLedgers()
    late, other = changed.follow(), changed.follow()
    for _ in range(stats.DICTS_MAX * 3 + 1):
        for number in range(4):
            changed.note(f"ledger-{number}")
        assert len(list(other.take())) == 4
    found = list(late.take())
    assert len(found) <= 4 * (stats.DICTS_MAX + 1)
    assert len(set(found)) == 4
