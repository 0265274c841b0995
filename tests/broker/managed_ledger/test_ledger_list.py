"""Position arithmetic against a plain list of all positions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.managed_ledger.ledger_list import LedgerInfo, LedgerList
from foundation.model.position import EARLIEST, LATEST, Position

sizes = st.lists(st.integers(0, 4), min_size=1, max_size=5)
anywhere = st.builds(Position, st.integers(-1, 14), st.integers(-1, 6)) | st.sampled_from([EARLIEST, LATEST])


def build(counts: list[int]) -> LedgerList:
    """Ledgers 1, 3, 5 ... with so many entries; the last is the current one."""
    infos = [LedgerInfo(2 * place + 1, count, count * 10) for place, count in enumerate(counts)]
    return LedgerList(infos[:-1], infos[-1])


def all_positions(counts: list[int]) -> list[Position]:
    return [Position(2 * place + 1, entry) for place, count in enumerate(counts) for entry in range(count)]


@settings(deadline=None)
@given(sizes, anywhere, anywhere, st.integers(0, 30))
def test_ledger_list_agrees_with_a_list_of_all_positions(
    counts: list[int], position: Position, other: Position, index: int
) -> None:
    ledgers, known = build(counts), all_positions(counts)
    current = 2 * len(counts) - 1
    end = Position(current, counts[-1])
    assert ledgers.at_or_after(position) == next((item for item in known if item >= position), end)
    assert ledgers.next_valid(position) == next((item for item in known if item > position), end)
    before_all = Position(1, -1)
    assert ledgers.at_or_before(position) == next(
        (item for item in reversed(known) if item <= position), before_all
    )
    assert ledgers.previous(position) == next(
        (item for item in reversed(known) if item < position), before_all
    )
    assert ledgers.entries_between(position, other) == sum(position < item <= other for item in known)
    assert ledgers.has_entry(*position) == (position in known)
    assert ledgers.first() == (known[0] if known else end)
    assert ledgers.last() == (known[-1] if known else Position(current, -1))
    assert ledgers.entries == len(known)
    if index < len(known):
        assert ledgers.position_at(index) == known[index]
    else:
        with pytest.raises(IndexError):
            ledgers.position_at(index)


def test_ledger_list_appends_a_current_ledger_and_removes_old_ones() -> None:
    ledgers = build([2, 3])
    ledgers.append(LedgerInfo(9))
    assert ledgers.current.ledger_id == 9
    assert ledgers.last() == Position(3, 2)
    assert ledgers.remove(1).entries == 2
    assert ledgers.first() == Position(3, 0)
    ledgers.remove(3)
    assert ledgers.last() == Position(9, -1)
    assert ledgers.at_or_after((1, 1)) == Position(9, 0)


def test_average_entry_size_is_at_least_one_byte() -> None:
    ledgers = build([4, 0])
    assert ledgers.average_entry_bytes(1) == 10
    assert ledgers.average_entry_bytes(3) == 1
    assert ledgers.average_entry_bytes(77) == 1


def test_negative_entry_id_stands_before_the_first_entry() -> None:
    ledgers = build([2, 0, 3])
    assert ledgers.at_or_after((5, -1)) == Position(5, 0)
    assert ledgers.at_or_after((3, -1)) == Position(5, 0)
    assert ledgers.at_or_before((5, -1)) == Position(1, 1)
