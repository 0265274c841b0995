"""The search for the newest entry near a time: the times at which ledgers were closed save reads, and never mislead it."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, log2

import pytest

from broker.managed_ledger.managed_ledger import ManagedLedger
from foundation.model.entry import Entry
from foundation.model.position import Position
from protocol.broker_entry_metadata import decode
from tests.broker.managed_ledger.ledger_fakes import World, fill

PER_LEDGER = 8
STEP_MS = 10


async def filled(world: World, entries: int) -> tuple[ManagedLedger, list[int]]:
    """Returns a managed ledger that got an entry every STEP_MS, and the entries' times."""
    ledger = await world.open(entries_per_ledger_max=PER_LEDGER)
    times: list[int] = []
    for _ in range(entries):
        await fill(ledger, 1)
        times.append(world.wall)
        world.wall += STEP_MS
    return ledger, times


class Older:
    """The predicate of a search by time, which remembers what was read."""

    def __init__(self, time_of: Callable[[Entry], int], time_ms: int) -> None:
        self._time_of = time_of
        self._time_ms = time_ms
        self.read: list[Position] = []
        self.newer: Position | None = None

    def __call__(self, entry: Entry) -> bool:
        # No read tells what an earlier one has told already.
        assert self.newer is None or entry.position < self.newer
        self.read.append(entry.position)
        older = self._time_of(entry) < self._time_ms
        self.newer = self.newer if older else entry.position
        return older


def stamped(entry: Entry) -> int:
    found = decode(entry.header).broker_timestamp_ms
    assert found is not None
    return found


def expected(ledger: ManagedLedger, times: list[int], time_ms: int) -> Position | None:
    older = sum(each < time_ms for each in times)
    return ledger.ledgers.position_at(older - 1) if older else None


def bound(entries: int) -> int:
    return 2 + ceil(log2(entries + 1))


@pytest.mark.parametrize("entries", [0, 1, 8, 9, 60, 64])
async def test_search_by_time_reads_one_ledger_and_its_neighbours(world: World, entries: int) -> None:
    ledger, times = await filled(world, entries)
    began_ms, ended_ms = world.wall - entries * STEP_MS, world.wall
    for time_ms in range(began_ms - 5, ended_ms + 6, 5):
        older = Older(stamped, time_ms)
        found = await ledger.find_newest(older, near_ms=time_ms)
        assert found == expected(ledger, times, time_ms)
        assert len(older.read) <= bound(PER_LEDGER)
        ids = [info.ledger_id for info in ledger.ledgers.infos()]
        read = sorted({ids.index(position.ledger_id) for position in older.read})
        assert not read or read[-1] - read[0] <= 2


@pytest.mark.parametrize("shift_ms", [-10_000, -100, -30, 30, 100, 10_000])
async def test_search_by_time_finds_the_same_when_closing_times_mislead(world: World, shift_ms: int) -> None:
    ledger, stored = await filled(world, 60)
    times = [each + shift_ms for each in stored]
    for time_ms in range(times[0] - 5, times[-1] + STEP_MS, 5):
        older = Older(lambda entry: stamped(entry) + shift_ms, time_ms)
        assert await ledger.find_newest(older, near_ms=time_ms) == expected(ledger, times, time_ms)
        assert len(older.read) <= bound(len(times))


async def test_search_by_time_goes_on_without_lost_ends(world: World) -> None:
    ledger, times = await filled(world, 32)
    ids = [info.ledger_id for info in ledger.ledgers.infos()]
    ledger = await world.after_crash().open(entries_per_ledger_max=PER_LEDGER)
    for ledger_id, entry_id in ((ids[1], PER_LEDGER - 1), (ids[3], 0)):
        damaged = bytearray(world.ledgers.stored[ledger_id][entry_id])
        damaged[-1] ^= 1
        world.ledgers.stored[ledger_id][entry_id] = bytes(damaged)
    time_ms = times[20]
    assert await ledger.find_newest(Older(stamped, time_ms), near_ms=time_ms) == Position(ids[2], 3)
