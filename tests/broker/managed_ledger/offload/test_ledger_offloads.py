"""Offloads of one managed ledger to files: the order, and what fails in it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bookkeeper.metadata.metadata_store import Versioned
from broker.managed_ledger.ledger_list import OffloadedLedger, OffloadPlace
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.managed_ledger.managed_ledger_info import managed_ledger_key
from broker.managed_ledger.offload.ledger_offloads import OffloadRunning, OffloadStatus
from broker.managed_ledger.records.pulsar_records import decode_ledger_list
from foundation.model.errors import MetadataError, PersistenceError
from foundation.model.position import EARLIEST, LATEST, Position
from foundation.objects.file_objects import FileObjects
from tests.broker.managed_ledger.ledger_fakes import (
    NAME,
    World,
    all_bodies,
    delete,
    recorder,
    shape,
    until,
)
from tests.broker.managed_ledger.offload.tiered import ENTRIES, Objects, Tiered


def lose_answer_to_complete(tiered: Tiered, *, then_away: bool = False) -> None:
    """Lets the store carry out the next write of a complete copy and answer with an error, and with errors alone after it.

    Without `then_away` the store works again afterwards.
    """
    put, lost = tiered.world.metadata.put, False

    async def losing(key: str, value: bytes, expected: int | None = None) -> int:
        nonlocal lost
        if lost and then_away:
            raise MetadataError("the store is away")
        version = await put(key, value, expected)
        if not lost and key == managed_ledger_key(NAME):
            lost = any(one.is_offloaded for one in decode_ledger_list(value).ledgers)
            if lost:
                raise MetadataError("the answer was lost")
        return version

    tiered.world.metadata.put = losing  # type: ignore[method-assign]


async def read_without_bookies(tiered: Tiered) -> None:
    """Opens the managed ledger of `ENTRIES + 1` entries, lets the lag pass, and reads all."""
    ledger = await tiered.world.open(entries_per_ledger_max=ENTRIES, offload=tiered.rules)
    await tiered.forget_bookies(ledger)
    assert await all_bodies(ledger) == [b"%010d" % number for number in range(ENTRIES + 1)]


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


async def test_a_copy_that_the_stored_list_calls_complete_stays_while_the_store_is_away(
    tiered: Tiered,
) -> None:
    ledger = await tiered.open(ENTRIES + 1)
    lose_answer_to_complete(tiered, then_away=True)
    await tiered.offload(ledger)
    written = tiered.files()
    assert len(written) == 2
    await tiered.offload(ledger)
    assert ledger.own_offloads().last_error == "the store is away"
    assert tiered.files() == written
    again = Tiered(tiered.folder, tiered.world.copy_after_crash())
    await read_without_bookies(again)


async def test_a_copy_that_a_new_owner_calls_complete_stays(tiered: Tiered) -> None:
    ledger = await tiered.open(ENTRIES + 1)
    lose_answer_to_complete(tiered)
    await tiered.offload(ledger)
    other = Tiered(tiered.folder, tiered.world.after_crash())
    await other.world.open(entries_per_ledger_max=ENTRIES, offload=other.rules)
    # The former owner has not learnt of it yet.
    await tiered.offload(ledger)
    assert ledger.own_offloads().status is OffloadStatus.ERROR
    await read_without_bookies(Tiered(tiered.folder, tiered.world.after_crash()))


async def test_a_copy_whose_completion_was_not_answered_is_deleted_after_the_list_says_so(
    tiered: Tiered,
) -> None:
    ledger = await tiered.open(ENTRIES + 1)
    lose_answer_to_complete(tiered)
    await tiered.offload(ledger)
    crashes: list[World] = []
    delete_objects = tiered.tier.delete

    async def deleting(topic: str, copy: OffloadedLedger) -> None:
        await delete_objects(topic, copy)
        crashes.append(tiered.world.copy_after_crash())

    tiered.tier.delete = deleting  # type: ignore[method-assign]  # The broker dies after it.
    await tiered.offload(ledger)
    assert ledger.own_offloads().status is OffloadStatus.SUCCESS
    assert tiered.files() == tiered.named(ledger)
    (crashed,) = (Tiered(tiered.folder, world) for world in crashes)
    for path in tiered.folder.iterdir():
        path.unlink()
    await read_without_bookies(crashed)


async def taken_over(tiered: Tiered, held_from: int = 1) -> tuple[ManagedLedger, Tiered, ManagedLedger]:
    """Returns a ledger whose copy waits in a write, and another broker with the ledger that it has opened meanwhile."""
    ledger = await tiered.open(ENTRIES + 1)
    tiered.objects.hold, tiered.objects.held_from = asyncio.Event(), held_from
    ledger.own_offloads().start(ledger.last_confirmed)
    await until(lambda: tiered.objects.writes == held_from)
    other = Tiered(tiered.folder, tiered.world.after_crash())
    return ledger, other, await other.world.open(entries_per_ledger_max=ENTRIES, offload=other.rules)


@pytest.mark.parametrize("held_from", [1, 2])
async def test_a_broker_that_has_lost_its_topic_leaves_no_object(tiered: Tiered, held_from: int) -> None:
    ledger, other, reopened = await taken_over(tiered, held_from)
    await other.offload(reopened)
    # From the data on the late copy is whole, and its completion fails; the index alone fails the comparison.
    assert tiered.objects.hold is not None
    tiered.objects.hold.set()
    await until(lambda: ledger.own_offloads().status is OffloadStatus.ERROR)
    await until(lambda: other.files() == other.named(reopened))
    await read_without_bookies(Tiered(tiered.folder, tiered.world.after_crash()))


@pytest.mark.parametrize("error", [MetadataError("no answer"), RuntimeError("a defect")])
async def test_a_broker_whose_completion_is_refused_looks_at_the_list_until_it_can_be_read(
    tiered: Tiered, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.offload.ledger_tier.SETTLE_S", 0)
    ledger, other, reopened = await taken_over(tiered)
    await other.offload(reopened)
    metadata, reads = tiered.world.metadata, list[str]()

    async def refuse(*_: object) -> int:
        raise error

    async def get(key: str) -> Versioned | None:
        reads.append(key)
        if len(reads) < 3:
            raise MetadataError("the store is away")
        return await type(metadata).get(metadata, key)

    monkeypatch.setattr(metadata, "put", refuse)
    monkeypatch.setattr(metadata, "get", get)
    assert tiered.objects.hold is not None
    tiered.objects.hold.set()
    await until(lambda: len(reads) == 3 and other.files() == other.named(reopened))
    assert ledger.own_offloads().status is OffloadStatus.ERROR
    monkeypatch.undo()
    await read_without_bookies(Tiered(tiered.folder, tiered.world.after_crash()))


async def test_a_late_copy_that_the_list_names_is_left_to_the_new_owner(tiered: Tiered) -> None:
    ledger, other, reopened = await taken_over(tiered)
    assert tiered.objects.hold is not None
    tiered.objects.hold.set()
    await until(lambda: ledger.own_offloads().status is OffloadStatus.ERROR)
    assert other.files() == other.named(reopened) != []
    await other.offload(reopened)
    assert other.files() == other.named(reopened)


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


async def test_an_offload_without_its_folder_fails_and_hides_no_older_copy(
    tiered: Tiered, tmp_path: Path
) -> None:
    ledger = await tiered.open()
    first = ledger.ledgers.infos()[0].ledger_id
    ledger.own_offloads().start(Position(first + 1, 0))
    await until(lambda: not ledger.is_offloading)
    await tiered.forget_bookies(ledger)
    mounted = tiered.folder.rename(tmp_path / "mounted elsewhere")
    await tiered.offload(ledger)
    assert "make it for the first copy, or mount it" in ledger.own_offloads().last_error
    assert not tiered.folder.exists()
    with pytest.raises(PersistenceError, match="or mount it"):
        await ledger.read_entry(Position(first, 0))
    mounted.rename(tiered.folder)
    await tiered.offload(ledger)
    assert ledger.own_offloads().status is OffloadStatus.SUCCESS
    assert bytes((await ledger.read_entry(Position(first, 0))).body) == b"%010d" % 0
    assert tiered.files() == tiered.named(ledger)


async def test_a_deletion_without_its_folder_is_done_once_the_folder_is_back(
    tiered: Tiered, tmp_path: Path
) -> None:
    ledger = await tiered.open()
    await tiered.offload(ledger)
    await tiered.forget_bookies(ledger)
    ledger.trimming.keep_ms = ledger.trimming.keep_bytes = 0
    mounted = tiered.folder.rename(tmp_path / "mounted elsewhere")
    assert len(ledger.trimming.trim(tiered.world.wall, without_cursors=True)) == 3
    await ledger.context.background.drain()
    assert ledger.store.has_marked_objects
    mounted.rename(tiered.folder)
    assert len(tiered.files()) == 6
    ledger.trimming.trim(tiered.world.wall, without_cursors=True)
    await ledger.context.background.drain()
    assert tiered.files() == []


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
    assert tiered.files() == []
    assert not ledger.ledgers.infos()[0].is_offloaded
    await tiered.forget_bookies(ledger)
    assert tiered.world.ledgers.deleted == []


async def test_a_place_that_cannot_be_opened_is_not_noted(tiered: Tiered) -> None:
    ledger = await tiered.open()

    def closed(place: OffloadPlace) -> FileObjects:
        raise PersistenceError(f"{place.driver} cannot be opened")

    tiered.tier._open_place = closed
    await tiered.offload(ledger)
    assert "cannot be opened" in ledger.own_offloads().last_error
    assert tiered.named(ledger) == []


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
