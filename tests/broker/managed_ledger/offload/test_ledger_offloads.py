"""Offloads of one managed ledger to files: the order, what fails in it, and reads from the copies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from broker.compose.cache_settings import EntryCacheSettings
from broker.managed_ledger.inflight_reads_limiter import InflightReadsLimiter
from broker.managed_ledger.ledger_list import FILES, OffloadPlace
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.managed_ledger.offload.ledger_offloads import OffloadRunning, OffloadStatus
from broker.managed_ledger.settings import OffloadRules
from broker.offload.ledger_tier import LedgerTier
from foundation.model.errors import EntryDamaged, NoSuchEntry, PersistenceError, ReadTimedOut
from foundation.model.position import EARLIEST, LATEST, Position
from foundation.objects.file_objects import FileObjects
from foundation.objects.object_storage import ObjectStorageError
from foundation.units import NS_PER_SECOND
from tests.broker.managed_ledger.ledger_fakes import (
    NAME,
    World,
    all_bodies,
    delete,
    fill,
    numbers,
    read,
    recorder,
    shape,
    until,
)

ENTRIES = 5


class Objects(FileObjects):
    """Files that can be away, or wait in the middle of a write."""

    away = False
    hold: asyncio.Event | None = None
    hold_reads: asyncio.Event | None = None
    writes = 0
    gets: list[tuple[str, int, int]]

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.gets = []

    async def put(self, key: str, chunks: AsyncIterator[bytes], attributes: Mapping[str, str]) -> None:
        self._check(key)
        self.writes += 1
        if self.hold is not None:
            await self.hold.wait()
        await super().put(key, chunks, attributes)

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        self._check(key)
        self.gets.append((key, start, length))
        if self.hold_reads is not None:
            await self.hold_reads.wait()
        return await super().get_range(key, start, length)

    async def get(self, key: str) -> bytes:
        self._check(key)
        return await super().get(key)

    async def delete(self, key: str) -> None:
        self._check(key)
        await super().delete(key)

    def _check(self, key: str) -> None:
        if self.away:
            raise ObjectStorageError(f"{key}: the storage is away")


class Tiered:
    """A world whose environment has a tier on files."""

    def __init__(self, folder: Path, world: World | None = None) -> None:
        self.folder = folder
        self.world = world or World()
        self.objects = Objects(folder)
        self.tier = LedgerTier(self.world.metadata, 1, lambda _: self.objects)
        object.__setattr__(self.world.environment, "open_tier", lambda: self.tier)
        self.rules = OffloadRules(OffloadPlace(FILES, endpoint="file:///x"), read_bytes=60)

    async def open(self, count: int = 3 * ENTRIES + 2, **rules: object) -> ManagedLedger:
        """Opens a managed ledger with `count` entries, in ledgers of `ENTRIES`."""
        given = OffloadRules(**{**self.rules._asdict(), **rules})
        ledger = await self.world.open(entries_per_ledger_max=ENTRIES, offload=given)
        for _ in range(count):
            await fill(ledger, 1)
        # So that reads go to storage.
        for info in ledger.ledgers.infos():
            ledger.cache.invalidate_ledger(info.ledger_id)
        return ledger

    async def offload(self, ledger: ManagedLedger) -> None:
        offloads = ledger.own_offloads()
        offloads.start(ledger.last_confirmed)
        await until(lambda: offloads.status is not OffloadStatus.RUNNING)

    async def forget_bookies(self, ledger: ManagedLedger) -> None:
        """Lets the lag pass."""
        self.world.wall += 10**9
        ledger.check_offloads(self.world.wall)
        await ledger.context.background.drain()

    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("*"))

    def named(self, ledger: ManagedLedger) -> list[str]:
        """The objects that the list names."""
        stems = [
            f"{one.offload.uuid}-ledger-{one.ledger_id}" for one in ledger.ledgers.infos() if one.offload
        ]
        return sorted(stems + [f"{stem}-index" for stem in stems])


@pytest.fixture
async def tiered(tmp_path: Path) -> Tiered:
    return Tiered(tmp_path)


async def test_closed_ledgers_are_copied_and_read_back_without_their_bookies(tiered: Tiered) -> None:
    ledger = await tiered.open()
    await tiered.offload(ledger)
    offloads = ledger.own_offloads()
    assert (offloads.status, offloads.last_error) == (OffloadStatus.SUCCESS, "")
    assert [one.is_offloaded for one in ledger.ledgers.infos()] == [True, True, True, False]
    assert offloads.first_unoffloaded == Position(ledger.ledgers.infos()[3].ledger_id, 0)
    assert tiered.files() == tiered.named(ledger)
    await tiered.forget_bookies(ledger)
    assert sorted(tiered.world.ledgers.deleted) == [one.ledger_id for one in ledger.ledgers.infos()[:3]]
    assert len(tiered.world.ledgers.stored) == 1
    expected = [b"%010d" % number for number in range(17)]
    assert await all_bodies(ledger) == expected
    entry = await ledger.read_entry(Position(ledger.ledgers.infos()[1].ledger_id, 3))
    original = recorder(ledger).added[8]
    assert (entry.header, bytes(entry.body)) == (original.header, bytes(original.body))
    await ledger.close()
    again = Tiered(tiered.folder, tiered.world.after_crash())
    reopened = await again.world.open(offload=again.rules)
    assert await all_bodies(reopened) == expected
    assert again.tier.stats.read_bytes["t/n"] > 0


async def test_a_read_asks_for_many_entries_at_once_and_reads_the_next_piece_ahead(tiered: Tiered) -> None:
    ledger = await tiered.open(ENTRIES + 1, read_bytes=120)
    await tiered.offload(ledger)
    await tiered.forget_bookies(ledger)
    tiered.objects.gets.clear()
    cursor = ledger.cursors.open_non_durable("c", EARLIEST)
    assert numbers(await read(cursor, 1)) == [0]
    await until(lambda: len(tiered.objects.gets) == 2)
    for number in range(1, 5):
        assert numbers(await read(cursor, 1)) == [number]
    # Five entries in some pieces, each of several entries: one request for each piece, the next one ahead of its reader.
    assert 2 <= len(tiered.objects.gets) < ENTRIES


async def test_a_read_from_a_copy_holds_permits_and_is_cached_for_the_next_reader(tmp_path: Path) -> None:
    limiter = InflightReadsLimiter(1 << 20, 10, 60 * NS_PER_SECOND)
    tiered = Tiered(tmp_path, World(limiter=limiter, cache=EntryCacheSettings(64 << 20, policy="pip430")))
    ledger = await tiered.open(ENTRIES + 1)
    await tiered.offload(ledger)
    await tiered.forget_bookies(ledger)
    asked: list[LedgerTier] = []

    def open_tier() -> LedgerTier:
        asked.append(tiered.tier)
        return tiered.tier

    object.__setattr__(tiered.world.environment, "open_tier", open_tier)
    first, second = (ledger.cursors.open_non_durable(name, EARLIEST) for name in ("first", "second"))
    for cursor in (first, second):
        cursor.activate()
    tiered.objects.gets.clear()
    tiered.objects.hold_reads = asyncio.Event()
    reading = asyncio.create_task(read(first, ENTRIES))
    await until(lambda: tiered.objects.gets)
    assert limiter.remaining_bytes < limiter.budget_bytes
    tiered.objects.hold_reads.set()
    assert numbers(await reading) == list(range(ENTRIES))
    await until(lambda: limiter.remaining_bytes == limiter.budget_bytes)
    assert numbers(await read(second, ENTRIES)) == list(range(ENTRIES))
    assert len(asked) == 1


async def test_a_copy_that_was_begun_is_deleted_before_the_next(tiered: Tiered) -> None:
    ledger = await tiered.open(ENTRIES + 1)
    first = ledger.ledgers.infos()[0]
    tiered.objects.hold = asyncio.Event()
    ledger.own_offloads().start(ledger.last_confirmed)
    await until(lambda: tiered.objects.writes)
    assert first.offload is not None
    assert not first.is_offloaded
    begun = f"{first.offload.uuid}-ledger-{first.ledger_id}"
    # The broker dies here, when part of an object is written.
    crashed = Tiered(tiered.folder, tiered.world.copy_after_crash())
    (tiered.folder / f"{begun}.part").write_bytes(b"half")
    (tiered.folder / begun).write_bytes(b"whole")
    reopened = await crashed.world.open(entries_per_ledger_max=ENTRIES, offload=crashed.rules)
    assert reopened.ledgers.infos()[0].offload == first.offload
    await crashed.offload(reopened)
    assert crashed.files() == crashed.named(reopened)
    assert begun not in crashed.files()
    tiered.objects.hold.set()


async def test_trimming_keeps_the_ledger_that_is_being_copied(tiered: Tiered) -> None:
    ledger = await tiered.open(2 * ENTRIES + 1)
    tiered.objects.hold = asyncio.Event()
    ledger.own_offloads().start(ledger.last_confirmed)
    await until(lambda: tiered.objects.writes)
    ledger.trimming.keep_ms = ledger.trimming.keep_bytes = 0
    assert ledger.trimming.trim(tiered.world.wall, without_cursors=True) == []
    tiered.objects.hold.set()
    await until(lambda: ledger.own_offloads().status is OffloadStatus.SUCCESS)
    assert len(ledger.trimming.trim(tiered.world.wall, without_cursors=True)) == 2
    await ledger.context.background.drain()
    assert tiered.files() == []


async def test_objects_of_trimmed_ledgers_are_deleted_once_the_storage_is_back(tiered: Tiered) -> None:
    ledger = await tiered.open()
    await tiered.offload(ledger)
    await tiered.forget_bookies(ledger)
    ledger.trimming.keep_ms = ledger.trimming.keep_bytes = 0
    tiered.objects.away = True
    assert len(ledger.trimming.trim(tiered.world.wall, without_cursors=True)) == 3
    await ledger.context.background.drain()
    assert len(tiered.files()) == 6
    # Also over a crash: the list names them.
    later = Tiered(tiered.folder, tiered.world.after_crash())
    later.objects.away = True
    reopened = await later.world.open(offload=later.rules)
    assert len(later.files()) == 6
    later.objects.away = False
    reopened.trimming.trim(later.world.wall, without_cursors=True)
    await reopened.context.background.drain()
    assert later.files() == []


async def test_deletion_of_the_managed_ledger_deletes_the_objects(tiered: Tiered) -> None:
    ledger = await tiered.open()
    await tiered.offload(ledger)
    tiered.objects.away = True
    with pytest.raises(PersistenceError, match="was not deleted"):
        await delete(ledger)
    assert len(tiered.files()) == 6
    tiered.objects.away = False
    await delete(ledger)
    assert tiered.files() == []
    assert await tiered.world.metadata.get(f"/managed-ledgers/{NAME}") is None


async def test_a_copy_that_differs_is_not_marked(tiered: Tiered, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Objects.get_range

    async def damaged(self: Objects, key: str, start: int, length: int) -> bytes:
        data = bytearray(await original(self, key, start, length))
        data[-1] ^= 1
        return bytes(data)

    ledger = await tiered.open(ENTRIES + 1)
    monkeypatch.setattr(Objects, "get_range", damaged)
    await tiered.offload(ledger)
    assert ledger.own_offloads().status is OffloadStatus.ERROR
    assert "CRC32C" in ledger.own_offloads().last_error
    assert not ledger.ledgers.infos()[0].is_offloaded
    await tiered.forget_bookies(ledger)
    assert tiered.world.ledgers.deleted == []


def damage(folder: Path) -> str:
    """Changes one byte of the first data object; returns its name."""
    path = min(path for path in folder.iterdir() if not path.name.endswith("-index"))
    data = bytearray(path.read_bytes())
    data[150] ^= 1
    path.write_bytes(data)
    return path.name


async def test_a_damaged_copy_is_read_from_the_bookie_while_it_has_the_ledger(tiered: Tiered) -> None:
    ledger = await tiered.open(ENTRIES + 1)
    await tiered.offload(ledger)
    damage(tiered.folder)
    assert await all_bodies(ledger) == [b"%010d" % number for number in range(6)]
    assert tiered.tier.stats.read_errors["t/n"] > 0


async def test_a_damaged_copy_alone_is_an_error_with_the_objects_name(tiered: Tiered) -> None:
    ledger = await tiered.open(ENTRIES + 1)
    await tiered.offload(ledger)
    await tiered.forget_bookies(ledger)
    name = damage(tiered.folder)
    with pytest.raises(EntryDamaged, match=f"{name}.*CRC32C"):
        await ledger.read_entry(Position(ledger.ledgers.infos()[0].ledger_id, 0))


async def test_a_storage_that_is_away_is_an_error_and_works_again_later(tiered: Tiered) -> None:
    ledger = await tiered.open(ENTRIES + 1)
    await tiered.offload(ledger)
    await tiered.forget_bookies(ledger)
    tiered.objects.away = True
    first = Position(ledger.ledgers.infos()[0].ledger_id, 0)
    with pytest.raises(PersistenceError, match="is away"):
        await ledger.read_entry(first)
    tiered.objects.away = False
    assert bytes((await ledger.read_entry(first)).body) == b"%010d" % 0


async def test_a_defect_of_the_storage_ends_a_read_with_an_error(
    tiered: Tiered, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = await tiered.open()
    await tiered.offload(ledger)
    await tiered.forget_bookies(ledger)

    async def panic(*_: object) -> bytes:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(tiered.objects, "get", panic)
    with pytest.raises(PersistenceError, match="a defect"):
        await ledger.read_entry(Position(ledger.ledgers.infos()[0].ledger_id, 0))


async def test_a_place_that_cannot_be_opened_is_not_noted(tiered: Tiered) -> None:
    ledger = await tiered.open()

    def closed(place: OffloadPlace) -> FileObjects:
        raise PersistenceError(f"{place.driver} cannot be opened")

    tiered.tier._open_place = closed
    await tiered.offload(ledger)
    assert "cannot be opened" in ledger.own_offloads().last_error
    assert tiered.named(ledger) == []


async def test_a_missing_object_proves_the_loss_of_its_entries(tiered: Tiered) -> None:
    ledger = await tiered.open(ENTRIES + 1)
    await tiered.offload(ledger)
    await tiered.forget_bookies(ledger)
    for path in tiered.folder.iterdir():
        path.unlink()
    with pytest.raises(NoSuchEntry, match="does not exist"):
        await ledger.read_entry(Position(ledger.ledgers.infos()[0].ledger_id, 0))


@pytest.mark.parametrize("bookkeeper_first", [False, True])
async def test_priority_decides_which_of_two_copies_is_read(tiered: Tiered, bookkeeper_first: bool) -> None:
    ledger = await tiered.open(ENTRIES + 1, bookkeeper_first=bookkeeper_first)
    await tiered.offload(ledger)
    tiered.objects.gets.clear()
    tiered.world.ledgers.batch_reads.clear()
    await ledger.read_entry(Position(ledger.ledgers.infos()[0].ledger_id, 0))
    assert bool(tiered.objects.gets) is not bookkeeper_first
    assert bool(tiered.world.ledgers.batch_reads) is bookkeeper_first


async def test_thresholds_begin_an_offload(tiered: Tiered) -> None:
    ledger = await tiered.open(threshold_s=100)
    ledger.check_offloads(tiered.world.wall + 99_999)
    await ledger.context.background.drain()
    assert tiered.files() == []
    ledger.check_offloads(tiered.world.wall + 100_000)
    await ledger.context.background.drain()
    assert len(tiered.files()) == 6


async def test_a_terminated_topic_is_offloaded_whole(tiered: Tiered) -> None:
    ledger = await tiered.open(threshold_bytes=0)
    last = await ledger.terminate()
    ledger.check_offloads(tiered.world.wall)
    offloads = ledger.own_offloads()
    await until(lambda: offloads.status is OffloadStatus.SUCCESS)
    assert all(info.is_offloaded for info in ledger.ledgers.infos())
    assert offloads.first_unoffloaded == Position(last.ledger_id, last.entry_id + 1)
    assert ledger.ledgers.offloaded_bytes == ledger.ledgers.size_bytes


async def test_a_second_offload_is_refused_while_one_runs(tiered: Tiered) -> None:
    ledger = await tiered.open()
    tiered.objects.hold = asyncio.Event()
    ledger.own_offloads().start(ledger.last_confirmed)
    with pytest.raises(OffloadRunning, match="Offload already in progress"):
        ledger.own_offloads().start(ledger.last_confirmed)
    tiered.objects.hold.set()
    await ledger.close()


async def test_a_close_ends_a_running_offload(tiered: Tiered) -> None:
    ledger = await tiered.open()
    tiered.objects.hold = asyncio.Event()
    ledger.own_offloads().start(ledger.last_confirmed)
    await until(lambda: tiered.objects.writes)
    closing = asyncio.create_task(ledger.close())
    await until(lambda: ledger.own_offloads()._stopping)
    tiered.objects.hold.set()
    await closing
    assert "is being closed" in ledger.own_offloads().last_error
    assert shape(ledger) == [5, 5, 5, 2]


async def test_without_a_driver_an_offload_fails_with_pulsars_words(tiered: Tiered) -> None:
    ledger = await tiered.open(place=OffloadPlace(""))
    await tiered.offload(ledger)
    assert ledger.own_offloads().last_error == (
        "org.apache.bookkeeper.mledger.ManagedLedgerException: [NullLedgerOffloader] does not support offload"
    )
    assert ledger.own_offloads().first_unoffloaded == EARLIEST


async def test_a_position_after_the_last_entry_fails_with_pulsars_words(tiered: Tiered) -> None:
    ledger = await tiered.open()
    ledger.own_offloads().start(LATEST)
    assert ledger.own_offloads().status is OffloadStatus.ERROR
    assert ledger.own_offloads().last_error == (
        "org.apache.bookkeeper.mledger.ManagedLedgerException$InvalidCursorPositionException: Invalid position for offload:"
        f" {LATEST}"
    )
    assert tiered.files() == []


@pytest.mark.parametrize("has_bookies", [True, False])
async def test_slow_storage_ends_a_read_in_time(
    tiered: Tiered, monkeypatch: pytest.MonkeyPatch, has_bookies: bool
) -> None:
    ledger = await tiered.open(ENTRIES + 1)
    await tiered.offload(ledger)
    if not has_bookies:
        await tiered.forget_bookies(ledger)
    monkeypatch.setattr("broker.offload.ledger_tier.READ_TIMEOUT_S", 0.01)

    async def never(self: Objects, key: str) -> bytes:
        await asyncio.Event().wait()
        return b""

    monkeypatch.setattr(Objects, "get", never)
    first = Position(ledger.ledgers.infos()[0].ledger_id, 0)
    if has_bookies:
        assert bytes((await ledger.read_entry(first)).body) == b"%010d" % 0
    else:
        with pytest.raises(ReadTimedOut, match="-ledger-"):
            await ledger.read_entry(first)
