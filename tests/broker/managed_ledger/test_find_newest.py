"""The search for the newest entry of which a predicate holds: over ledgers, beside lost entries, and during trimming."""

from __future__ import annotations

import pytest

from broker.managed_ledger import single_entry
from foundation.model.entry import Entry
from foundation.model.errors import TooManyRequests
from foundation.model.position import Position
from tests.broker.managed_ledger.ledger_fakes import World, fill


@pytest.mark.parametrize("older", range(8))
async def test_find_newest_searches_all_ledgers(world: World, older: int) -> None:
    ledger = await world.open(entries_per_ledger_max=3)
    await fill(ledger, 7)
    found = await ledger.find_newest(lambda entry: int(bytes(entry.body)) < older)
    expected = ledger.ledgers.position_at(older - 1) if older else None
    assert found == expected


def lose(world: World, position: Position) -> None:
    stored = bytearray(world.ledgers.stored[position.ledger_id][position.entry_id])
    stored[-1] ^= 1
    world.ledgers.stored[position.ledger_id][position.entry_id] = bytes(stored)


@pytest.mark.parametrize("lost", [[0], [1], [2], [3], [4], [5], [6], [3, 4, 5], [0, 6], [0, 1, 2, 4, 5, 6]])
async def test_find_newest_goes_by_neighbours_of_lost_entries(world: World, lost: list[int]) -> None:
    ledger = await world.open(entries_per_ledger_max=3)
    await fill(ledger, 7)
    places = [ledger.ledgers.position_at(number) for number in range(7)]
    ledger = await world.after_crash().open(entries_per_ledger_max=3)
    for number in lost:
        lose(world, places[number])
    for older in range(8):
        found = await ledger.find_newest(lambda entry, older=older: int(bytes(entry.body)) < older)  # type: ignore[misc]
        readable = [places[number] for number in range(older) if number not in lost]
        assert found == max(readable, default=None)


async def test_find_newest_in_a_lost_stretch_finds_no_newer_entry_than_asked_for(world: World) -> None:
    ledger = await world.open(entries_per_ledger_max=40)
    await fill(ledger, 100)
    places = [ledger.ledgers.position_at(number) for number in range(100)]
    ledger = await world.after_crash().open(entries_per_ledger_max=40)
    # The second ledger, and all but one entry of the last one.
    lost = {*range(40, 80), *range(80, 93), *range(94, 100)}
    for number in lost:
        lose(world, places[number])
    for older in (0, 20, 40, 60, 80, 93, 94, 100):
        found = await ledger.find_newest(lambda entry, older=older: int(bytes(entry.body)) < older)  # type: ignore[misc]
        readable = [places[number] for number in range(older) if number not in lost]
        assert found in [None, *readable]
        if older < 40:
            assert found == max(readable, default=None)


async def test_find_newest_returns_none_when_all_is_lost(world: World) -> None:
    ledger = await world.open(entries_per_ledger_max=3)
    await fill(ledger, 7)
    places = [ledger.ledgers.position_at(number) for number in range(7)]
    ledger = await world.after_crash().open(entries_per_ledger_max=3)
    for place in places:
        lose(world, place)
    assert await ledger.find_newest(lambda entry: True) is None


async def test_find_newest_raises_an_error_that_proves_no_loss(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = await world.open()
    await fill(ledger, 3)

    async def refused(*_: object) -> None:
        raise TooManyRequests("by the test")

    monkeypatch.setattr(single_entry, "read_entry", refused)
    with pytest.raises(TooManyRequests):
        await ledger.find_newest(lambda entry: True)


@pytest.mark.parametrize("trimmed", range(1, 6))
@pytest.mark.parametrize("older", range(1, 13))
async def test_find_newest_finds_no_newer_entry_when_ledgers_are_trimmed_meanwhile(
    world: World, older: int, trimmed: int
) -> None:
    ledger = await world.open(entries_per_ledger_max=2)
    await fill(ledger, 12)
    positions = [ledger.ledgers.position_at(index) for index in range(12)]
    looked: list[int] = []

    def holds(entry: Entry) -> bool:
        looked.append(int(bytes(entry.body)))
        if len(looked) == 2:
            for ledger_id in [info.ledger_id for info in ledger.ledgers.infos()][:trimmed]:
                ledger.ledgers.remove(ledger_id)
        return looked[-1] < older

    found = await ledger.find_newest(holds)
    assert found in ((positions[older - 1], None) if older <= 2 * trimmed else (positions[older - 1],))
