"""Explicit LACs across crashes and stops, and the answers of a bookie that may have lost entries."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from bookie_stub.base.errors import BookieError, RegistrationError
from bookie_stub.base.record import explicit_lac_record, master_key_record
from bookie_stub.cluster.zookeeper_ledgers import ZooKeeperLedgers
from bookie_stub.disk import directories
from bookie_stub.journal.journal_file import HEADER_BYTES
from bookie_stub.wire.server import BookieServer
from protocol.bookie_frame import RC_FENCED as FENCED
from protocol.bookie_frame import RC_IO_ERROR as IO_ERROR
from protocol.bookie_frame import RC_NO_ENTRY as NO_ENTRY
from protocol.bookie_frame import RC_NO_LEDGER as NO_LEDGER
from protocol.bookie_frame import RC_OK as OK
from protocol.bookie_frame import (
    BatchReadResponse,
    ReadResponse,
    encode_batch_read_request,
    encode_read_request,
)
from protocol.bookkeeper_api_pb2 import EOK, EUNKNOWNLEDGERSTATE
from tests.bookie_stub.bookie_process import answer
from tests.bookie_stub.conftest import MASTER_KEY, Bench, FaultyFileSystem
from tests.bookie_stub.files import crash
from tests.bookie_stub.v3_client import V3Client, explicit_lac

UNKNOWN = 107


async def write_lac(bench: Bench, ledger: int, lac: int, key: bytes = MASTER_KEY) -> int:
    assert bench.bookie is not None
    answered: asyncio.Future[int] = bench.loop.create_future()
    bench.bookie.records.write_lac(
        ledger, key, explicit_lac(ledger, lac), lambda rc, _: answered.set_result(rc)
    )
    return await asyncio.wait_for(answered, 60)


async def read_lac(bench: Bench, ledger: int) -> tuple[int, bytes, bytes]:
    """(rc, explicit LAC, payload of the last entry)"""
    assert bench.bookie is not None
    answered: asyncio.Future[tuple[int, bytes, bytes]] = bench.loop.create_future()
    bench.bookie.last_confirmed.read_bodies(ledger, lambda *found: answered.set_result(found))
    rc, explicit, entry = await asyncio.wait_for(answered, 60)
    return rc, explicit, entry[36:]


async def lac(bench: Bench, ledger: int) -> tuple[int, int]:
    assert bench.bookie is not None
    answered: asyncio.Future[tuple[int, int]] = bench.loop.create_future()
    bench.bookie.last_confirmed.find(ledger, lambda *found: answered.set_result(found))
    return await asyncio.wait_for(answered, 60)


async def list_entries(bench: Bench, ledger: int) -> int:
    assert bench.bookie is not None
    answered: asyncio.Future[int] = bench.loop.create_future()
    bench.bookie.lists.find(ledger, lambda rc, _: answered.set_result(rc))
    return await asyncio.wait_for(answered, 60)


@pytest.mark.parametrize("flush", ["no checkpoint", "checkpoint before", "checkpoint after", "both"])
@pytest.mark.parametrize("stop", ["crash", "clean"])
@pytest.mark.parametrize("entries", [0, 3])
async def test_explicit_lac_survives_a_restart(
    bench: Bench, tmp_path: Path, flush: str, stop: str, entries: int
) -> None:
    """BookKeeper 4.17 loses it without entries, and when the next checkpoint finds the write cache empty."""
    bench.open()
    for entry in range(entries):
        assert await bench.add(1, entry) == OK
    if flush in ("checkpoint before", "both"):
        await bench.checkpoint()
    assert await write_lac(bench, 1, 2) == OK
    assert await write_lac(bench, 1, 1) == OK  # which changes nothing
    if flush in ("checkpoint after", "both"):
        await bench.checkpoint()
        await bench.checkpoint()
    if stop == "clean":
        bench.reopen()
        after = bench
    else:
        after = crash(bench, tmp_path)
    assert await read_lac(after, 1) == (OK, explicit_lac(1, 2), b"payload" if entries else b"")
    assert await lac(after, 1) == (OK, 2)
    assert await write_lac(after, 1, 3, b"?" * 20) == 102
    after.close()


async def test_explicit_lac_is_answered_after_its_record_is_synced(bench: Bench, tmp_path: Path) -> None:
    bench.open()
    bench.file_system.fails["sync_data"] = 5
    assert await write_lac(bench, 1, 4) == IO_ERROR
    bench.file_system.fails.clear()
    assert await write_lac(bench, 1, 3) == OK  # by which the higher one is durable too
    after = crash(bench, tmp_path)
    assert (await read_lac(after, 1))[1] == explicit_lac(1, 4)
    after.close()


async def test_read_only_bookie_refuses_an_explicit_lac(bench: Bench) -> None:
    bench.open(read_only=True)
    assert await write_lac(bench, 1, 4) == 105
    assert (await read_lac(bench, 1))[0] == NO_LEDGER


async def test_replay_ignores_a_lower_explicit_lac_in_a_bookkeeper_journal(bench: Bench) -> None:
    bench.open()
    bench.close()
    records = [explicit_lac_record(7, explicit_lac(7, number)) for number in (3, 1)]
    journal = (b"BKLG" + (6).to_bytes(4, "big")).ljust(HEADER_BYTES, b"\0") + master_key_record(7, MASTER_KEY)
    path = bench.directory / "journal/current/1.txn"
    path.write_bytes(journal + b"".join(records) + bytes(1000))
    bench.open()
    assert await read_lac(bench, 7) == (OK, explicit_lac(7, 3), b"")


async def test_rewritten_last_entry_raises_the_lac(bench: Bench) -> None:
    bench.open()
    assert await bench.add(1, 4) == OK
    assert await lac(bench, 1) == (OK, 3)
    await bench.checkpoint()
    await bench.fence(1)
    assert await bench.add(1, 4, b"recovered", recovery=True) == OK
    assert await bench.add(1, 6, recovery=True) == OK
    assert await lac(bench, 1) == (OK, 5)


# Limbo.


def went_down(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, boot: str) -> None:
    """The machine has another boot id from now on."""
    path = tmp_path.with_name(f"{tmp_path.name}-boot-{boot}")
    path.write_text(f"{boot}\n")
    monkeypatch.setattr(directories, "_BOOT_ID", path)


async def unsynced_crash(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Returns a copy of two ledgers after the machine went down on a journal that was not synced."""
    went_down(monkeypatch, tmp_path, "first")
    bench.open(journal_sync_data=False)
    for ledger in (1, 2):
        assert await bench.add(ledger, 0) == OK
    image = crash(bench, tmp_path)
    image.close()
    (image.directory / "ledgers/current/DIRTY").write_bytes(
        (bench.directory / "ledgers/current/DIRTY").read_bytes()
    )
    return image


async def test_ledger_in_limbo_serves_entries_and_answers_unknown_for_missing_ones(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = await unsynced_crash(bench, tmp_path, monkeypatch)
    went_down(monkeypatch, tmp_path, "second")
    for again in range(2):  # the next start knows of it too, however the bookie was stopped
        image.open(journal_sync_data=False, integrity_checking=again == 0)
        assert await image.read(1, 0) == (OK, b"payload")
        assert (await image.read(1, 1))[0] == UNKNOWN
        assert (await image.read(1, -1))[0] == UNKNOWN
        assert await image.batch(1, 1, 10) == (UNKNOWN, [])
        assert (await image.fence(1))[0] == UNKNOWN
        assert await lac(image, 1) == (UNKNOWN, -1)
        assert (await read_lac(image, 1))[0] == UNKNOWN
        assert await list_entries(image, 1) == UNKNOWN
        # A ledger that was lost as a whole looks like one that never was.
        assert (await image.read(3, 0))[0] == UNKNOWN
        assert await image.batch(3, 0, 1) == (UNKNOWN, [])
        assert await list_entries(image, 3) == UNKNOWN
        assert await lac(image, 3) == (UNKNOWN, -1)
        # A fence may be among what was lost.
        assert await image.add(2, 1) == FENCED
        assert await image.add(2, 1, recovery=True) == OK
        assert (await image.fence(4))[0] == UNKNOWN
        assert await image.add(4, 0) == FENCED
        assert await lac(image, 4) == (UNKNOWN, -1)
        image.close()


async def test_unknown_is_107_on_v3_and_io_error_on_v2(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = await unsynced_crash(bench, tmp_path, monkeypatch)
    went_down(monkeypatch, tmp_path, "second")
    server = BookieServer(image.open(journal_sync_data=False, integrity_checking=True, port=0))
    await server.start()
    client = await V3Client.connect(server.port)
    for number in (client.read(1, 9), client.fence(1), client.read_lac(1), client.long_poll(1, 0)):
        assert (await client.answer(number)).status == EUNKNOWNLEDGERSTATE
    assert (await client.answer(client.long_poll(9, -1))).status == EUNKNOWNLEDGERSTATE
    assert (await client.answer(client.list_entries(1))).status == EUNKNOWNLEDGERSTATE
    found = (await client.answer(client.read(1, 0))).readResponse
    assert (found.status, found.HasField("maxLAC")) == (EOK, False)
    client.writer.write(encode_read_request(1, 9) + encode_batch_read_request(1, 9, 5, 1, 1000))
    assert await answer(client.reader) == ReadResponse(IO_ERROR, 1, 9, b"")
    assert await answer(client.reader) == BatchReadResponse(IO_ERROR, 1, 9, 5, [])
    client.close()
    await server.close()


async def test_ledger_created_after_a_loss_is_not_in_limbo(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = await unsynced_crash(bench, tmp_path, monkeypatch)
    went_down(monkeypatch, tmp_path, "second")
    image.open(journal_sync_data=False, integrity_checking=True)
    assert await image.add(5, 0) == OK
    assert (await image.read(5, 1))[0] == NO_ENTRY
    assert await image.read(5, -1) == (OK, b"payload")
    image.close()


class Cluster(ZooKeeperLedgers):
    """Stands for ZooKeeper: where ledgers are placed, asked for once."""

    def __init__(self, *ledger_ids: int) -> None:
        self.ledger_ids = ledger_ids
        self.asked = 0
        self.fails = False

    def missing(self, ledger_ids: Sequence[int], *, verify: bool) -> list[int]:
        return []

    def naming(self, bookie_id: str) -> list[int]:
        assert bookie_id == "127.0.0.1:3181"
        if self.fails:
            raise RegistrationError("ZooKeeper is away")
        self.asked += 1
        return sorted(self.ledger_ids)

    def elsewhere(self, ledger_ids: Sequence[int], bookie_id: str) -> list[int]:
        return []

    @contextmanager
    def replication_lock(self, ledger_id: int, bookie_id: str) -> Iterator[bool]:
        yield True


async def test_lost_ledger_is_in_limbo_when_the_cluster_names_it(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = await unsynced_crash(bench, tmp_path, monkeypatch)
    went_down(monkeypatch, tmp_path, "second")
    image.metadata = cluster = Cluster(1, 2, 3, 4)
    for again in range(3):
        image.open(journal_sync_data=False, integrity_checking=again == 0)
        assert await image.add(3, 1) == FENCED
        assert await image.add(3, 2 + again, recovery=True) == OK
        assert (await image.read(3, 0))[0] == UNKNOWN
        assert (await image.read(3, -1))[0] == UNKNOWN
        assert (await image.fence(4))[0] == UNKNOWN
        assert (await image.read(1, 1))[0] == UNKNOWN
        # What the cluster does not place here was never here.
        assert (await image.read(6, 0))[0] == NO_LEDGER
        # What came later is like any other, also one that began elsewhere.
        assert await image.add(5, 10 + again) == OK
        assert (await image.read(5, 9))[0] == NO_ENTRY
        assert await image.read(5, -1) == (OK, b"payload")
        image.close()
        cluster.ledger_ids = (1, 2, 3, 4, 5)
    assert cluster.asked == 1


@pytest.mark.parametrize("what", ["the cluster", "the disk"])
async def test_loss_is_noticed_again_when_the_start_fails(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    image = await unsynced_crash(bench, tmp_path, monkeypatch)
    went_down(monkeypatch, tmp_path, "second")
    image.metadata = cluster = Cluster(1, 2, 3)
    failures = 0
    for number in range(20):
        if what == "the disk":
            fail_the_sync(image, number)
        else:
            cluster.fails = number < 2
        try:
            image.open(journal_sync_data=False, integrity_checking=True)
        except (BookieError, OSError):
            failures += 1
            image.file_system = FaultyFileSystem()
        else:
            break
    assert failures >= 2
    assert (await image.read(1, 1))[0] == UNKNOWN
    assert await image.add(3, 0) == FENCED
    image.close()


def fail_the_sync(bench: Bench, number: int) -> None:
    """The one after so many others."""
    left = number
    sync = bench.file_system.sync_data

    def sync_data(descriptor: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(5, "sync fails on purpose")
        sync(descriptor)

    bench.file_system.sync_data = sync_data  # type: ignore[method-assign]


async def test_lossy_bookie_without_metadata_accepts_new_ledgers_with_entry_0_only(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any ledger may have been here: only one that begins is taken as new."""
    image = await unsynced_crash(bench, tmp_path, monkeypatch)
    went_down(monkeypatch, tmp_path, "second")
    for again in range(2):
        image.open(journal_sync_data=False, integrity_checking=again == 0)
        assert await image.add(3, 1) == IO_ERROR
        assert (await image.read(3, 0))[0] == UNKNOWN
        assert await image.add(6, 1, recovery=True) == OK
        assert (await image.read(6, 0))[0] == UNKNOWN
        assert await write_lac(image, 7, 4) == OK
        assert (await image.read(7, 0))[0] == UNKNOWN
        assert await image.add(5, 0) == OK
        assert await image.add(5, 1) == OK
        assert (await image.read(5, 2))[0] == NO_ENTRY
        image.close()
    image.metadata = Cluster(3, 5)  # it gets one later
    image.open()
    assert await image.add(3, 1) == FENCED
    assert await image.add(5, 2) == OK
    assert await image.add(8, 2) == OK
    image.close()


@pytest.mark.parametrize("why", ["the machine stayed up", "the journal was synced", "the stop was clean"])
async def test_ledgers_are_not_in_limbo_when_nothing_can_be_lost(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    went_down(monkeypatch, tmp_path, "first")
    bench.open(journal_sync_data=why == "the journal was synced")
    assert await bench.add(1, 0) == OK
    note = (bench.directory / "ledgers/current/DIRTY").read_bytes()
    bench.close()
    if why != "the stop was clean":
        (bench.directory / "ledgers/current/DIRTY").write_bytes(note)
    if why != "the machine stayed up":
        went_down(monkeypatch, tmp_path, "second")
    bench.open(integrity_checking=True)
    assert (await bench.read(1, 1))[0] == NO_ENTRY
    assert (await bench.read(2, 0))[0] == NO_LEDGER
    assert await bench.add(1, 1) == OK


async def test_loss_is_only_logged_without_the_integrity_check(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    image = await unsynced_crash(bench, tmp_path, monkeypatch)
    went_down(monkeypatch, tmp_path, "second")
    with caplog.at_level(logging.WARNING):
        image.open(journal_sync_data=False, integrity_checking=False)
    assert "acknowledged entries may be lost" in caplog.text
    assert (await image.read(1, 1))[0] == NO_ENTRY
    image.close()


async def test_damaged_records_that_are_given_up_put_ledgers_in_limbo(bench: Bench, tmp_path: Path) -> None:
    bench.open()
    for entry in range(3):
        assert await bench.add(1, entry, b"payload %d" % entry) == OK
    (journal,) = (bench.directory / "journal/current").glob("*.txn")
    bench.close()
    damaged = Bench(tmp_path.with_name(tmp_path.name + "-damaged"))
    damaged.open()
    damaged.close()
    content = bytearray(journal.read_bytes())
    content[content.index(b"payload 1")] ^= 1
    (damaged.directory / "journal/current" / journal.name).write_bytes(content)
    damaged.open(skip_invalid_records=True, integrity_checking=True)
    assert await damaged.read(1, 0) == (OK, b"payload 0")
    assert (await damaged.read(1, 1))[0] == UNKNOWN
    assert await damaged.read(1, 2) == (OK, b"payload 2")
    damaged.close()
