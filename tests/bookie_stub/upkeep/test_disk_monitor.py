"""Free space on the disks: read-only and back, which ledgers are refused, which directories are compacted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from bookie_stub.compose.bookie import Bookie
from bookie_stub.config.settings import CollectionSettings, DiskSettings
from bookie_stub.http.exposition import render
from bookie_stub.upkeep.directory_compactions import ForcedRound
from bookie_stub.upkeep.disk_monitor import DiskState, judge
from tests.bookie_stub.conftest import MASTER_KEY, Bench

OK, NO_ENTRY, READ_ONLY, FENCED = 0, 2, 105, 104
SETTINGS = DiskSettings(full=0.9, warn=0.8, low=0.85)


@pytest.mark.parametrize(
    ("shares", "before", "after"),
    [
        ([0.5, 0.6], DiskState(), DiskState()),
        ([0.8], DiskState(), DiskState()),
        ([0.81, 0.1], DiskState(), DiskState(almost_full=True)),
        ([0.1, 0.91], DiskState(), DiskState(full=True, almost_full=True)),
        ([0.87], DiskState(full=True, almost_full=True), DiskState(full=True, almost_full=True)),
        ([0.85], DiskState(full=True, almost_full=True), DiskState(full=True, almost_full=True)),
        ([0.84], DiskState(full=True, almost_full=True), DiskState(almost_full=True)),
        ([0.7], DiskState(full=True, almost_full=True), DiskState()),
        ([0.87], DiskState(), DiskState(almost_full=True)),
    ],
)
def test_judge_marks_a_directory_by_its_fullest_disk(
    shares: list[float], before: DiskState, after: DiskState
) -> None:
    assert judge(shares, before, SETTINGS) == after


def fill(bench: Bench, share: float) -> None:
    bench.file_system.share = lambda _path: share


def disk_states_of(bookie: Bookie) -> list[DiskState]:
    """Returns the states that the compactions use."""
    return [directory.disk for directory in bookie.upkeep.collector._directories]


async def test_bookie_is_read_only_while_its_disk_is_full(bench: Bench) -> None:
    fill(bench, 0.5)
    disk = replace(SETTINGS, interval_s=0.005)
    bookie = bench.open(disk=disk)
    told: list[bool] = []
    bookie.upkeep.when_read_only_changes = told.append
    assert await bench.add(1, 0) == OK
    fill(bench, 0.95)
    await bench.until(lambda: bookie.availability.read_only)
    assert await bench.add(1, 1) == READ_ONLY
    assert await bench.add(1, 1, recovery=True) == OK
    assert await bench.read(1, 0) == (OK, b"payload")
    assert disk_states_of(bookie) == [DiskState(full=True, almost_full=True)]
    fill(bench, 0.82)
    await bench.until(lambda: not bookie.availability.read_only)
    assert disk_states_of(bookie) == [DiskState(almost_full=True)]
    assert await bench.add(1, 2) == OK
    fill(bench, 0.1)
    await bench.until(lambda: disk_states_of(bookie) == [DiskState()])
    assert told == [True, False]


async def test_bookie_starts_read_only_on_a_full_disk(bench: Bench) -> None:
    fill(bench, 0.99)
    bookie = bench.open(disk=SETTINGS)
    assert bookie.availability.read_only
    assert await bench.add(1, 0) == READ_ONLY


async def test_full_disk_forces_a_round_when_settings_allow_it(bench: Bench) -> None:
    fill(bench, 0.99)
    bookie = bench.open(disk=SETTINGS, collection=CollectionSettings(force_when_full=True))
    await bench.until(lambda: bookie.stats.collection.majors == 1)


# Several directories.

EACH = replace(SETTINGS, any_full_is_read_only=False, interval_s=0.005)
EVEN, ODD = 4, 7
"""Ledgers at home in the first directory and in the second one."""


class Two:
    """A bookie with two ledger directories, on disks that are as full as they are told to be."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.logs = tuple(bench.directory / f"ledgers-{number}" for number in range(2))
        self.indexes = tuple(bench.directory / f"index-{number}" for number in range(2))
        self.shares: dict[str, float] = {}
        bench.file_system.share = self._share_taken

    def _share_taken(self, path: Path) -> float:
        return self.shares.get(path.parent.name, 0.1)

    def open(self, disk: DiskSettings, **settings: object) -> Bookie:
        return self.bench.open(
            disk=disk, ledger_directories=self.logs, index_directories=self.indexes, **settings
        )

    async def fill(self, shares: Mapping[str, float]) -> None:
        """Sets the shares and waits until the bookie has seen them."""
        self.shares = dict(shares)
        wanted = [
            judge([shares.get(f"{kind}-{number}", 0.1) for kind in ("ledgers", "index")], room, EACH)
            for number, room in enumerate(disk_states_of(self.bench.running))
        ]
        await self.bench.until(lambda: disk_states_of(self.bench.running) == wanted)


@pytest.fixture
def two(bench: Bench) -> Two:
    return Two(bench)


@pytest.mark.parametrize("kind", ["ledgers", "index"])
async def test_adds_are_refused_only_for_ledgers_of_a_full_directory(two: Two, kind: str) -> None:
    bookie, bench = two.open(EACH), two.bench
    told: list[bool] = []
    bookie.upkeep.when_read_only_changes = told.append
    for ledger in (EVEN, ODD):
        assert await bench.add(ledger, 0) == OK
    await two.fill({f"{kind}-0": 0.95})
    assert not bookie.availability.read_only
    assert bookie.availability.writable_directories == 1
    assert b"bookie_ledger_writable_dirs 1.0\n" in render(bookie)
    assert await bench.add(ODD, 1) == OK
    assert await bench.add(ODD + 2, 0) == OK
    for ledger in (EVEN, EVEN + 2):
        assert await bench.add(ledger, 1) == READ_ONLY
        assert await bench.add(ledger, 1, recovery=True) == OK
        assert await bench.add(ledger, 2) == READ_ONLY, "the add of a recovery lets no other one in"
    assert await bench.fence(EVEN + 4) == (NO_ENTRY, b"")
    assert await write_lac(bench, ODD) == OK
    assert await write_lac(bench, EVEN) == READ_ONLY
    await two.fill({})
    assert await bench.add(EVEN, 2) == OK
    assert await bench.add(EVEN + 4, 0) == FENCED
    assert not told


async def write_lac(bench: Bench, ledger: int) -> int:
    answered: asyncio.Future[int] = bench.loop.create_future()
    body = ledger.to_bytes(8, "big") + bytes(12)
    bench.running.records.write_lac(ledger, MASTER_KEY, body, lambda rc, _: answered.set_result(rc))
    return await answered


async def test_bookie_is_read_only_when_all_directories_are_full(two: Two) -> None:
    bookie, bench = two.open(EACH), two.bench
    told: list[bool] = []
    bookie.upkeep.when_read_only_changes = told.append
    await two.fill({"ledgers-0": 0.95, "index-1": 0.95})
    assert bookie.availability.read_only
    assert [await bench.add(ledger, 0) for ledger in (EVEN, ODD)] == [READ_ONLY, READ_ONLY]
    await two.fill({"ledgers-0": 0.95, "index-1": 0.84})
    assert [await bench.add(ledger, 0) for ledger in (EVEN, ODD)] == [READ_ONLY, OK]
    assert told == [True, False]


async def test_bookie_is_read_only_by_default_when_one_directory_is_full(two: Two) -> None:
    bookie, bench = two.open(replace(EACH, any_full_is_read_only=True)), two.bench
    await two.fill({"ledgers-0": 0.95})
    assert bookie.availability.read_only
    assert [await bench.add(ledger, 0) for ledger in (EVEN, ODD)] == [READ_ONLY, READ_ONLY]
    assert b"bookie_ledger_writable_dirs 0.0\n" in render(bookie)


async def test_bookie_forced_read_only_stays_so_when_disks_empty(two: Two) -> None:
    bookie = two.open(EACH, read_only=True)
    await two.fill({"ledgers-0": 0.95})
    await two.fill({})
    assert bookie.availability.read_only
    assert await two.bench.add(ODD, 0) == READ_ONLY


async def test_compaction_skips_a_full_directory_unless_forced_without_free_space(two: Two) -> None:
    """Only a round forced without free space compacts a full directory."""
    collection = CollectionSettings(wait_s=0.01, minor_interval_s=0.05, major_threshold=0)
    two.shares = {"ledgers-0": 0.95}
    bookie = two.open(EACH, collection=collection)
    first, second = bookie.stats.collection.directories
    await two.bench.until(lambda: second.minors >= 3)
    bookie.upkeep.collector.force(ForcedRound(minor=True))
    await two.bench.until(lambda: not bookie.upkeep.collector.forced)
    assert first.minors == 0
    bookie.upkeep.collector.force(ForcedRound(minor=True, without_free_space=True))
    await two.bench.until(lambda: first.minors == 1)
