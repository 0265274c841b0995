"""The writing end of a ledger: numbering, order of confirmation, failure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookkeeper.client.digest import OVERHEAD_BYTES, check, last_add_confirmed, ledger_length
from bookkeeper.client.ledger_client import AddDone, EntryParts
from bookkeeper.ensembles.ledger_handle import Added, LedgerHandle
from foundation.loop.turn import Turn
from foundation.model.entry import Entry

LEDGER = 9


class Client:
    """Keeps every add until the test answers it."""

    def __init__(self) -> None:
        self.parts: dict[int, bytes] = {}
        self.done: dict[int, AddDone] = {}

    def add(
        self,
        ledger_id: int,
        entry_ids: Sequence[int],
        entries: Sequence[EntryParts],
        *,
        master_key: bytes,
        recovery: bool,
        done: AddDone,
    ) -> None:
        assert ledger_id == LEDGER
        assert not recovery
        for entry_id, parts in zip(entry_ids, entries, strict=True):
            self.parts[entry_id] = b"".join(parts)
        self.done[entry_ids[0]] = done

    def answer(self, entry_id: int, rc: int = 0) -> None:
        self.done.pop(entry_id)(rc, entry_id)


class Owner:
    def __init__(self) -> None:
        self.runs: list[int] = []
        self.confirmed: list[object] = []
        self.failing: list[int] = []
        self.failed: list[tuple[list[int], list[object], int]] = []

    def ledger_failing(self, handle: LedgerHandle, rc: int) -> None:
        self.failing.append(rc)

    def entries_confirmed(
        self,
        handle: LedgerHandle,
        entries: list[Entry],
        added: list[Added],
        now_ns: int,
    ) -> None:
        assert len(entries) == sum(count for _, count, _ in added) > 0
        assert handle.last_confirmed == entries[-1].entry_id
        self.runs.append(len(entries))
        self.confirmed += [context for context, _, _ in added]

    def adds_failed(self, handle: LedgerHandle, entries: list[Entry], added: list[Added], rc: int) -> None:
        contexts = [context for context, _, _ in added]
        self.failed.append(([entry.entry_id for entry in entries], contexts, rc))


class Bench:
    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.client = Client()
        self.owner = Owner()
        self.handle = LedgerHandle(LEDGER, self.client, Turn(self.soon.append, lambda: 0), self.owner)

    def add(self, count: int) -> None:
        for _ in range(count):
            number = self.handle.next_entry_id
            self.handle.add((b"h",), (b"body%d" % number,), 1, number, 0)

    def add_run(self, count: int) -> None:
        first = self.handle.next_entry_id
        bodies = [b"body%d" % number for number in range(first, first + count)]
        self.handle.add([b"h"] * count, bodies, 1, f"run {first}", 0)

    def end_turn(self) -> None:
        callbacks, self.soon[:] = self.soon[:], []
        for callback in callbacks:
            callback()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_add_numbers_entries_and_counts_the_length(bench: Bench) -> None:
    bench.add(2)
    bench.client.answer(0)
    bench.add(1)
    first, second, third = (bench.client.parts[number] for number in range(3))
    assert bytes(check(LEDGER, 1, second)) == b"hbody1"
    assert [ledger_length(item) for item in (first, second, third)] == [6, 12, 18]
    assert [last_add_confirmed(item) for item in (first, second, third)] == [-1, -1, 0]
    assert len(third) == OVERHEAD_BYTES + 6


def test_answers_of_one_turn_are_confirmed_as_one_run(bench: Bench) -> None:
    bench.add(5)
    for number in range(4):
        bench.client.answer(number)
    assert bench.owner.confirmed == []
    bench.end_turn()
    assert bench.owner.runs == [4]
    assert bench.handle.pending == 1


@settings(deadline=None)
@given(st.permutations(range(8)), st.sets(st.integers(0, 7)))
def test_entries_are_confirmed_in_the_order_of_adds(order: list[int], turns: set[int]) -> None:
    bench = Bench()
    bench.add(8)
    for place, number in enumerate(order):
        bench.client.answer(number)
        if place in turns:
            bench.end_turn()
            answered = set(order[: place + 1])
            prefix = next(n for n in range(9) if n not in answered)
            assert bench.owner.confirmed == list(range(prefix))
    bench.end_turn()
    assert bench.owner.confirmed == list(range(8))
    assert bench.handle.pending == 0


@settings(deadline=None)
@given(st.permutations(range(6)), st.sets(st.integers(0, 5), min_size=1), st.booleans())
def test_failed_add_fails_all_later_adds_once(order: list[int], refused: set[int], in_one_turn: bool) -> None:
    bench = Bench()
    bench.add(6)
    for number in order:
        bench.client.answer(number, 101 if number in refused else 0)
        if not in_one_turn:
            bench.end_turn()
    bench.end_turn()
    first = min(refused)
    assert bench.owner.confirmed == list(range(first))
    assert [(ids, rc) for ids, _, rc in bench.owner.failed] == [(list(range(first, 6)), 101)]
    assert bench.owner.failing == [101]


def test_owner_is_told_of_a_failure_before_the_turn_ends(bench: Bench) -> None:
    bench.add(2)
    bench.client.answer(0, 104)
    assert bench.owner.failing == [104]
    assert bench.owner.failed == []
    bench.end_turn()
    assert [rc for _, _, rc in bench.owner.failed] == [104]


def test_late_answer_to_a_failed_add_is_ignored(bench: Bench) -> None:
    bench.add(3)
    bench.client.answer(0, 101)
    bench.end_turn()
    bench.client.answer(2)
    bench.client.answer(1, 104)
    bench.end_turn()
    assert bench.owner.confirmed == []
    assert len(bench.owner.failed) == 1


def test_run_of_entries_is_one_add_with_one_answer(bench: Bench) -> None:
    bench.add_run(3)
    bench.add(1)
    assert sorted(bench.client.done) == [0, 3]
    stored = [bench.client.parts[number] for number in range(4)]
    assert [ledger_length(item) for item in stored] == [6, 12, 18, 24]
    assert [bytes(check(LEDGER, number, item)) for number, item in enumerate(stored)] == [
        b"hbody%d" % number for number in range(4)
    ]
    bench.client.answer(0)
    bench.end_turn()
    assert (bench.owner.confirmed, bench.owner.runs) == (["run 0"], [3])
    assert bench.handle.pending == 1


@pytest.mark.parametrize("order", [(0, 3, 5), (5, 3, 0), (3, 0, 5)])
def test_runs_are_confirmed_in_their_order(bench: Bench, order: tuple[int, ...]) -> None:
    for count in (3, 2, 4):
        bench.add_run(count)
    for first in order:
        bench.client.answer(first)
    bench.end_turn()
    assert bench.owner.confirmed == ["run 0", "run 3", "run 5"]
    assert bench.handle.last_confirmed == 8


def test_failed_run_takes_all_after_it_along(bench: Bench) -> None:
    for count in (3, 2, 4):
        bench.add_run(count)
    bench.client.answer(5)
    bench.client.answer(3, 101)
    bench.end_turn()
    assert bench.owner.failed == []
    bench.client.answer(0)
    bench.end_turn()
    assert bench.owner.confirmed == ["run 0"]
    assert bench.owner.failed == [([3, 4, 5, 6, 7, 8], ["run 3", "run 5"], 101)]
