"""Failing disks: no unconfirmed add is answered OK, no confirmed entry is lost, and the bookie recovers."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from bookie_stub.base.errors import BookieStorageError
from bookie_stub.disk import checkpoint
from bookie_stub.disk.entry_log import log_ids
from bookie_stub.disk.rocks import Rocks, read_rows
from bookie_stub.journal.journal_file import journal_ids
from bookie_stub.journal.journal_reader import JournalReader
from tests.bookie_stub.conftest import Bench
from tests.bookie_stub.files import crash

OK, IO_ERROR, READ_ONLY, TOO_MANY = 0, 101, 105, 106
REFUSED = {IO_ERROR, READ_ONLY, TOO_MANY}


def stand_still(condition: Callable[[], bool]) -> None:
    """Waits without the loop, so that the loop cannot hear of anything meanwhile."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.parametrize("operation", ["write", "sync_data"])
@pytest.mark.parametrize("half", [False, True])
async def test_failed_group_answers_io_error_and_the_next_group_succeeds(
    bench: Bench, tmp_path: Path, operation: str, half: bool
) -> None:
    bench.open()
    assert await bench.add(1, 0, b"before") == OK
    bench.file_system.writes_half = half
    bench.file_system.fails[operation] = errno.EIO
    assert await asyncio.gather(*(bench.start_add(1, entry) for entry in range(1, 5))) == [IO_ERROR] * 4
    bench.file_system.fails.clear()
    assert await bench.add(1, 5, b"after") == OK
    after = crash(bench, tmp_path)
    assert await after.read(1, 0) == (OK, b"before")
    assert await after.read(1, 5) == (OK, b"after")
    after.close()


async def test_master_key_is_journaled_again_after_a_failed_group(bench: Bench, tmp_path: Path) -> None:
    """The key record was in the failed group: without a new one, a replay would skip acknowledged entries."""
    bench.open()
    bench.file_system.fails["sync_data"] = errno.EIO
    bench.file_system.fails["write"] = errno.EIO
    first = [bench.start_add(1, entry) for entry in range(3)]
    assert await asyncio.gather(*first) == [IO_ERROR] * 3
    bench.file_system.fails.clear()
    assert await bench.add(1, 3, b"acknowledged") == OK
    after = crash(bench, tmp_path)
    assert await after.read(1, 3) == (OK, b"acknowledged")
    after.close()


async def test_add_fails_when_queued_before_the_failure_is_known(bench: Bench, tmp_path: Path) -> None:
    """The add's master key record was lost with the group before it."""
    bench.open()
    bench.file_system.fails_once = True
    bench.file_system.fails["sync_data"] = errno.EIO
    first = bench.start_add(1, 0)
    stand_still(lambda: bench.file_system.failures > 0)
    second = bench.start_add(1, 1)
    stand_still(lambda: bench.bookie is not None and bench.bookie.state.journals.queue_length == 0)
    assert [await first, await second] == [IO_ERROR, IO_ERROR]
    assert await bench.add(1, 2) == OK
    after = crash(bench, tmp_path)
    assert await after.read(1, 2) == (OK, b"payload")
    after.close()


async def test_groups_taken_from_the_queue_together_fail_together(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second group's key record may have been in the first."""
    monkeypatch.setattr("bookie_stub.journal.journal.GROUP_BYTES_MAX", 1)
    bench.open()
    disk = bench.file_system
    assert await bench.add(1, 0) == OK
    disk.may_sync.clear()
    before = bench.start_add(1, 1)
    await bench.until(lambda: "wait" in disk.calls)
    taken_together = [bench.start_add(1, entry) for entry in range(2, 5)]
    disk.fails_once = True
    disk.fails["sync_data"] = errno.EIO
    disk.may_sync.set()
    assert await before == OK
    assert await asyncio.gather(*taken_together) == [IO_ERROR] * 3
    assert await bench.add(1, 4) == OK


async def test_adds_queued_after_a_failed_group_fail(bench: Bench, tmp_path: Path) -> None:
    bench.open()
    answers: list[tuple[int, int]] = []
    acknowledged: set[int] = set()

    def note(entry: int, done: asyncio.Future[int]) -> None:
        answers.append((entry, done.result()))

    rng = random.Random(5)
    for entry in range(400):
        future = bench.start_add(1, entry, b"%d" % entry)
        future.add_done_callback(partial(note, entry))
        if rng.random() < 0.05:
            bench.file_system.fails["write"] = errno.ENOSPC
            bench.file_system.writes_half = rng.random() < 0.5
        if rng.random() < 0.1:
            bench.file_system.fails.clear()
        if rng.random() < 0.3:
            await asyncio.sleep(0.001)
    bench.file_system.fails.clear()
    await bench.until(lambda: len(answers) == 400)
    acknowledged = {entry for entry, rc in answers if rc == OK}
    assert acknowledged
    assert len(acknowledged) < 400
    after = crash(bench, tmp_path)
    for entry in acknowledged:
        assert await after.read(1, entry) == (OK, b"%d" % entry)
    after.close()


@pytest.mark.parametrize("step", [61, pytest.param(13, marks=pytest.mark.slow)])
async def test_journal_is_replayed_when_cut_anywhere_in_its_last_records(
    bench: Bench, tmp_path: Path, step: int
) -> None:
    """Whole records before the cut are served, the others are absent, and the bookie starts."""
    bench.open(journal_alignment=512)
    for entry in range(6):
        assert await bench.add(1, entry, b"%d" % entry) == OK
    journals = bench.directory / "journal/current"
    (journal_id,) = journal_ids(journals)
    path = journals / f"{journal_id:x}.txn"
    reader = JournalReader(path)
    for _ in reader:
        pass
    end = reader.end
    image = tmp_path.with_name(tmp_path.name + "-cut")
    for cut in range(end - 3 * 512, end + 1, step):
        shutil.copytree(bench.directory, image)
        with (image / path.relative_to(bench.directory)).open("r+b") as file:
            file.truncate(cut)
        after = Bench(image)
        after.open()
        rc, payloads = await after.batch(1, 0, 100)
        assert rc == OK
        assert payloads == [b"%d" % entry for entry in range(len(payloads))]
        assert len(payloads) >= (cut - 512) // 512 - 1
        after.close()
        shutil.rmtree(image)


async def test_full_disk_leaves_no_additional_journal_files(bench: Bench) -> None:
    bench.open()
    assert await bench.add(1, 0) == OK
    bench.file_system.fails = {"write": errno.ENOSPC, "allocate": errno.ENOSPC}
    for entry in range(1, 30):
        assert await bench.add(1, entry) == IO_ERROR
    assert len(journal_ids(bench.directory / "journal/current")) <= 2
    bench.file_system.fails.clear()
    assert await bench.add(1, 30) == OK


async def test_replay_skips_a_failed_group_that_could_not_be_cut(bench: Bench, tmp_path: Path) -> None:
    bench.open()
    assert await bench.add(1, 0, b"before") == OK
    bench.file_system.writes_half = True
    bench.file_system.fails = {"write": errno.EIO, "truncate": errno.EIO}
    assert await bench.add(1, 1, b"torn" * 1000) == IO_ERROR
    bench.file_system.fails.clear()
    assert await bench.add(1, 2, b"after") == OK
    after = crash(bench, tmp_path)
    assert await after.read(1, 0) == (OK, b"before")
    assert await after.read(1, 1) == (2, b"")
    assert await after.read(1, 2) == (OK, b"after")
    after.close()


async def test_failed_checkpoint_is_repeated(bench: Bench, tmp_path: Path) -> None:
    bookie = bench.open()
    for entry in range(10):
        assert await bench.add(1, entry, b"first") == OK
    await bench.checkpoint()
    for entry in range(10, 20):
        assert await bench.add(1, entry, b"second") == OK
    bench.file_system.fails["sync_data"] = errno.EIO
    bookie.checkpoints.start()
    await bench.until(lambda: bookie.stats.checkpoint_failures > 0)
    after = crash(bench, tmp_path)
    assert (await after.batch(1, 0, 100))[1][:10] == [b"first"] * 10
    after.close()
    assert await bench.read(1, 15) == (OK, b"second")
    bench.file_system.fails.clear()
    await bench.until(lambda: not bookie.checkpoints.running)
    # A log whose sync failed is left: another sync of it would prove nothing.
    assert len(log_ids(bench.directory / "ledgers/current")) == 2
    assert (await bench.batch(1, 0, 100))[1] == [b"first"] * 10 + [b"second"] * 10
    bench.reopen()
    assert (await bench.batch(1, 0, 100))[1] == [b"first"] * 10 + [b"second"] * 10


async def test_stop_on_a_full_disk_loses_nothing(bench: Bench) -> None:
    bench.open()
    for entry in range(10):
        assert await bench.add(1, entry) == OK
    bench.file_system.no_space()
    bench.close()
    bench.file_system.fails.clear()
    bench.open()
    assert (await bench.batch(1, 0, 100))[1] == [b"payload"] * 10


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with 48 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=48m", "none", str(place)], capture_output=True, check=False
    )
    if mount.returncode:
        pytest.skip("a small file system cannot be mounted: " + mount.stderr.decode().strip())
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


async def test_bookie_continues_after_its_disk_was_full(small_disk: Path) -> None:
    """Fills the disk, sees adds fail, deletes what filled it, sees adds succeed; nothing acknowledged is lost."""
    settings = {"write_cache_bytes": 4 << 20, "journal_bytes_max": 2 << 20, "journal_backups": 0}
    settings["journal_allocate_bytes"] = 1 << 20
    bench = Bench(small_disk / "bookie")
    bench.open(**settings, throttle_s_max=0.2)

    def payload(entry: int) -> bytes:
        return b"%07d" % entry * 3000

    acknowledged: set[int] = set()
    rc = await bench.add(1, 0)
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        entry = 1
        while rc == OK and entry < 2000:
            with contextlib.suppress(OSError):
                file.write(bytes(200_000))
            rc = await bench.add(1, entry, payload(entry))
            if rc == OK:
                acknowledged.add(entry)
            entry += 1
    assert rc in REFUSED
    assert acknowledged
    refused = [await bench.add(1, more, b"x" * 3000) for more in range(entry, entry + 20)]
    assert set(refused) <= {OK, *REFUSED}
    filler.unlink()
    async with asyncio.timeout(60):
        while await bench.add(1, 5000, b"space again") != OK:  # noqa: ASYNC110 - disks tell nobody
            await asyncio.sleep(0.01)
    for found in acknowledged:
        assert await bench.read(1, found) == (OK, payload(found))
    bench.reopen(**settings)
    for found in acknowledged:
        assert await bench.read(1, found) == (OK, payload(found))
    assert await bench.read(1, 5000) == (OK, b"space again")
    bench.close()


def test_index_accepts_writes_after_its_disk_was_full(small_disk: Path) -> None:
    rocks = Rocks(small_disk / "index", buffer_bytes=1 << 20)
    rocks.write([(b"key 1", b"before")], deletes=[], ranges=[])
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(1 << 20)):
            pass
    puts = [(b"key %07d" % number, bytes(1000)) for number in range(30_000)]
    with pytest.raises(BookieStorageError):
        rocks.write(puts, deletes=[], ranges=[])
    with pytest.raises(BookieStorageError):
        rocks.write(puts, deletes=[], ranges=[])
    filler.unlink()
    rocks.write(puts[:100], deletes=[], ranges=[])
    assert rocks.get(b"key 1") == b"before"
    assert rocks.get(puts[99][0]) == bytes(1000)
    rocks.close()


@pytest.mark.parametrize("index", ["ledgers", "locations"])
@pytest.mark.parametrize("proof", ["log", "mark"])
async def test_start_refuses_when_an_index_is_missing(bench: Bench, index: str, proof: str) -> None:
    """An empty one would forget fences, answer "no entry", and have garbage collection remove living logs."""
    bench.open()
    await bench.add_all(1, range(50))
    assert (await bench.fence(1))[0] == OK
    bench.close()
    current = bench.directory / "ledgers/current"
    (current / index).rename(current / "elsewhere")
    for path in current.glob("lastMark*" if proof == "log" else "*.log"):
        path.rename(bench.directory / path.name)
    with pytest.raises(
        BookieStorageError, match=f"/{index} is missing.* run `magnetar bookie index rebuild`"
    ):
        bench.open()
    assert not (current / index).exists()
    for path in [*bench.directory.glob("lastMark*"), *bench.directory.glob("*.log")]:
        path.rename(current / path.name)
    (current / "elsewhere").rename(current / index)
    bench.open()
    assert (await bench.batch(1, 0, 100))[1][7] == b"7 payload"
    assert await bench.add(1, 50) == 104


@pytest.mark.parametrize("made", [(), ("locations",), ("locations", "ledgers")])
async def test_killed_first_start_is_done_again(bench: Bench, made: tuple[str, ...]) -> None:
    """The kill comes between directories and indexes, when nothing was kept yet."""
    bench.open()
    bench.close()
    current = bench.directory / "ledgers/current"
    for path in [*current.glob("lastMark*"), *current.glob("*.log")]:
        path.unlink()
    for path in (bench.directory / "journal/current").glob("*.txn"):
        path.unlink()
    for index in {"locations", "ledgers"}.difference(made):
        shutil.rmtree(current / index)
    bench.open()
    assert await bench.add(1, 0) == OK
    bench.reopen()
    assert await bench.read(1, 0) == (OK, b"payload")


def test_read_answers_io_error_when_index_rows_are_damaged(tmp_path: Path) -> None:
    """RocksDB's iterator ends at a damaged block as at the end: rows that are there would be taken for lost."""
    rocks = Rocks(tmp_path / "index", buffer_bytes=1 << 20)
    noise = random.Random(1)
    puts = [(b"key %07d" % number, noise.randbytes(100)) for number in range(40_000)]
    rocks.write(puts, deletes=[], ranges=[])
    rocks.close()
    rocks = Rocks(tmp_path / "index", buffer_bytes=1 << 20)  # writes what was in memory
    assert sum(1 for _ in rocks.items_from(b"")) == len(puts)
    rocks.close()
    damaged = max((tmp_path / "index").glob("*.sst"), key=lambda path: path.stat().st_size)
    content = bytearray(damaged.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 200] = bytes(200)
    damaged.write_bytes(content)
    rocks = Rocks(tmp_path / "index", buffer_bytes=1 << 20)
    with pytest.raises(BookieStorageError, match="checksum mismatch"):
        for _ in rocks.items_from(b""):
            pass
    with pytest.raises(BookieStorageError, match="checksum mismatch"), read_rows(tmp_path / "index") as rows:
        list(rows)
    rocks.close()


async def test_failed_directory_alone_repeats_its_part_of_a_checkpoint(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint is tried again for the directory that failed alone, and nothing is lost meanwhile."""
    monkeypatch.setattr(checkpoint, "_RETRY_S", 0.01)
    places = (bench.directory / "ledgers0", bench.directory / "ledgers1")
    settings = {"ledger_directories": places, "index_directories": places, "flush_interval_s": 3600}
    bookie = bench.open(**settings)
    await bench.add_all(2, range(50))
    await bench.add_all(3, range(50))
    failing = bench.file_system
    create = failing.create
    refused = 0

    def create_elsewhere(path: Path) -> int:
        nonlocal refused
        if places[1] in path.parents and path.suffix == ".log":
            refused += 1
            raise OSError(errno.EIO, "this directory fails on purpose")
        return create(path)

    monkeypatch.setattr(failing, "create", create_elsewhere)
    bookie.checkpoints.start()
    await bench.until(lambda: refused >= 5)
    (log,) = (places[0] / "current").glob("*.log")
    assert log.stat().st_size < 10_000  # once: 50 entries of about 60 bytes behind a header
    monkeypatch.undo()
    await bench.until(lambda: not bookie.checkpoints.running)
    assert bookie.stats.checkpoint_failures >= 5
    for _ in range(2):
        for ledger in (2, 3):
            assert len((await bench.batch(ledger, 0, 99))[1]) == 50
        bench.reopen(**settings)
