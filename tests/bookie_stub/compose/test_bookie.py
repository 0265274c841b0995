"""The whole bookie across restarts: acknowledged entries, fences and deletions survive."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path

import pytest

from bookie_stub.base.errors import BookieInUse, BookieStorageError, CorruptJournal, ForeignDirectory
from bookie_stub.base.record import fence_record
from bookie_stub.config.settings import GroupSettings
from bookie_stub.disk.entry_log import log_ids
from bookie_stub.disk.tombstones import Tombstones
from bookie_stub.journal.journal_file import journal_ids
from tests.bookie_stub.conftest import MASTER_KEY, Bench
from tests.bookie_stub.files import crash, flip

OK, NO_LEDGER, NO_ENTRY, BAD_REQUEST, IO_ERROR, UNAUTHORIZED, FENCED = 0, 1, 2, 100, 101, 102, 104


async def test_clean_stop_leaves_nothing_to_replay(bench: Bench) -> None:
    bench.open()
    for entry in range(50):
        assert await bench.add(1, entry, b"%d" % entry) == OK
    dirty = bench.directory / "ledgers/current/DIRTY"
    assert dirty.exists()
    bench.close()
    assert not dirty.exists()
    assert bench.open().state.write_caches.count() == 0
    assert [await bench.read(1, entry) for entry in range(50)] == [(OK, b"%d" % entry) for entry in range(50)]
    assert await bench.read(1, 50) == (NO_ENTRY, b"")


async def test_crash_keeps_all_acknowledged_entries(bench: Bench, tmp_path: Path) -> None:
    bench.open()
    adds = [bench.start_add(ledger, entry, b"%d" % entry) for entry in range(100) for ledger in (1, 2)]
    assert set(await asyncio.gather(*adds)) == {OK}
    after = crash(bench, tmp_path)
    assert (await after.batch(1, 0, 200))[1] == [b"%d" % entry for entry in range(100)]
    assert (await after.read(2, -1)) == (OK, b"99")
    after.close()


async def test_replay_starts_at_the_mark_after_a_checkpoint(bench: Bench, tmp_path: Path) -> None:
    bench.open()
    assert await bench.add(1, 0, b"before") == OK
    await bench.checkpoint()
    assert await bench.add(1, 1, b"after") == OK
    after = crash(bench, tmp_path)
    assert await after.read(1, 0) == (OK, b"before")
    assert await after.read(1, 1) == (OK, b"after")
    after.close()


@pytest.mark.parametrize("flush", ["no checkpoint", "checkpoint before", "checkpoint after", "both"])
@pytest.mark.parametrize("stop", ["crash", "clean"])
@pytest.mark.parametrize("entries", [0, 3])
async def test_fence_survives_a_restart(
    bench: Bench, tmp_path: Path, flush: str, stop: str, entries: int
) -> None:
    """BookKeeper 4.17 loses it without entries, and when the next checkpoint finds the write cache empty."""
    bench.open()
    for entry in range(entries):
        assert await bench.add(1, entry) == OK
    if flush in ("checkpoint before", "both"):
        await bench.checkpoint()
    assert (await bench.fence(1))[0] == (OK if entries else NO_ENTRY)
    if flush in ("checkpoint after", "both"):
        await bench.checkpoint()
        await bench.checkpoint()
    if stop == "clean":
        bench.reopen()
        after = bench
    else:
        after = crash(bench, tmp_path)
    assert await after.start_add(1, entries, key=b"?" * 20, recovery=True) == UNAUTHORIZED
    assert await after.add(1, entries) == FENCED
    assert await after.add(1, entries, b"recovered", recovery=True) == OK
    assert await after.read(1, -1) == (OK, b"recovered")
    after.close()


@pytest.mark.parametrize("stop", ["crash", "clean"])
async def test_replayed_fence_survives_a_second_restart(bench: Bench, tmp_path: Path, stop: str) -> None:
    """The ledger has its row in the index before; behind the replay the mark has passed the fence's record."""
    bench.open(flush_interval_s=3600)
    assert await bench.add(1, 0) == OK
    await bench.checkpoint()
    assert (await bench.fence(1))[0] == OK
    after = crash(bench, tmp_path)
    if stop == "clean":
        after.reopen()
    else:
        after = crash(after, tmp_path)
    assert await after.add(1, 1) == FENCED
    after.close()


async def test_replay_keeps_a_fence_without_a_master_key_record(bench: Bench) -> None:
    """BookKeeper leaves such a journal when a ledger without entries was fenced: the first key presented becomes its key."""
    bench.open()
    bench.close()
    journals = bench.directory / "journal/current"
    journal = (b"BKLG" + (6).to_bytes(4, "big")).ljust(512, b"\0") + fence_record(7)
    (journals / "1.txn").write_bytes(journal + bytes(1000))
    bench.open()
    assert await bench.add(7, 0) == FENCED
    assert await bench.start_add(7, 0, key=b"?" * 20, recovery=True) == UNAUTHORIZED
    assert await bench.fence(7) == (NO_ENTRY, b"")


async def test_fence_is_answered_after_its_record_is_synced(bench: Bench) -> None:
    bench.open()
    assert await bench.add(1, 0) == OK
    bench.file_system.fails["sync_data"] = 5
    assert (await bench.fence(1))[0] == IO_ERROR
    assert (await bench.fence(7))[0] == IO_ERROR
    bench.file_system.fails.clear()
    assert await bench.fence(1) == (OK, b"payload")
    assert (await bench.fence(7))[0] == NO_ENTRY
    assert await bench.add(7, 0) == FENCED


async def test_rewritten_entry_is_never_served_in_its_old_version(bench: Bench) -> None:
    bench.open()
    for entry in range(5):
        assert await bench.add(1, entry, b"old %d" % entry) == OK
    await bench.checkpoint()
    assert await bench.add(1, 2, b"new 2") == OK
    expected = [b"old 0", b"old 1", b"new 2", b"old 3", b"old 4"]
    assert (await bench.batch(1, 0, 10))[1] == expected
    assert (await bench.batch(1, 2, 1))[1] == [b"new 2"]
    await bench.checkpoint()
    assert (await bench.batch(1, 0, 10))[1] == expected
    assert await bench.read(1, 2) == (OK, b"new 2")
    bench.reopen()
    assert (await bench.batch(1, 0, 10))[1] == expected


async def test_entries_of_many_ledgers_and_flushes_read_back(bench: Bench) -> None:
    rng = random.Random(3)
    bench.open(write_cache_bytes=20_000, entry_log_bytes_max=100_000)
    payloads: dict[tuple[int, int], bytes] = {}
    for _ in range(30):
        adds = []
        for _ in range(20):
            ledger = rng.randrange(5)
            entry = rng.randrange(60)
            payloads[ledger, entry] = rng.randbytes(rng.randrange(1, 900))
            adds.append(bench.start_add(ledger, entry, payloads[ledger, entry]))
        assert set(await asyncio.gather(*adds)) == {OK}
    for _ in range(2):
        for ledger in range(5):
            first = 0
            while first < 60:
                rc, entries = await bench.batch(ledger, first, 10)
                assert rc == (OK if (ledger, first) in payloads else NO_ENTRY)
                for offset, payload in enumerate(entries):
                    assert payload == payloads[ledger, first + offset]
                first += max(1, len(entries))
        for (ledger, entry), payload in payloads.items():
            assert await bench.read(ledger, entry) == (OK, payload)
        bench.reopen(write_cache_bytes=20_000, entry_log_bytes_max=100_000)
    assert len(log_ids(bench.directory / "ledgers/current")) > 2


async def test_adds_are_held_and_kept_when_both_write_caches_are_full(bench: Bench) -> None:
    bookie = bench.open(write_cache_bytes=40_000)
    adds = [bench.start_add(1, entry, b"x" * 100) for entry in range(500)]
    sizes: list[int] = []
    for add in adds:
        add.add_done_callback(lambda _: sizes.append(bookie.state.write_caches.size))
    assert set(await asyncio.gather(*adds)) == {OK}
    assert bookie.stats.adds_held > 0
    assert max(sizes) < 40_000 + 2 * 1000  # each half may overshoot by an entry
    got = 0
    while got < 500:
        got += len((await bench.batch(1, got, 1000))[1])


async def test_held_add_is_answered_too_many_requests_after_its_limit(bench: Bench) -> None:
    bookie = bench.open(write_cache_bytes=4000, throttle_s_max=0.05, entry_log_bytes_max=2000)
    assert await bench.add(1, 0) == OK
    await bench.checkpoint()
    bench.file_system.fails["create"] = 28  # no second entry log: the next checkpoint cannot end
    adds = [bench.start_add(1, entry, b"x" * 100) for entry in range(1, 200)]
    answers = await asyncio.gather(*adds)
    assert set(answers) == {OK, 106}
    assert answers == sorted(answers)
    bench.file_system.fails.clear()
    await bench.until(lambda: not bookie.checkpoints.running)
    assert await bench.add(1, 500) == OK


async def test_add_is_refused_when_its_arguments_are_wrong(bench: Bench) -> None:
    bench.open()
    assert await bench.add(1, -5) == BAD_REQUEST
    assert await bench.add(-1, 0) == BAD_REQUEST
    assert await bench.start_add(1, 0, key=b"short") == UNAUTHORIZED
    assert await bench.read(1, 0) == (NO_LEDGER, b"")


async def test_read_only_bookie_refuses_plain_adds(bench: Bench) -> None:
    bench.open()
    assert await bench.add(1, 0) == OK
    bench.reopen(read_only=True)
    assert await bench.add(1, 1) == 105
    assert await bench.read(1, 0) == (OK, b"payload")
    assert await bench.fence(1) == (OK, b"payload")
    assert await bench.add(1, 1, b"recovered", recovery=True) == OK


async def test_read_answers_io_error_when_the_log_is_damaged(bench: Bench) -> None:
    bench.open()
    for entry in range(3):
        assert await bench.add(1, entry, b"x" * 5000) == OK
    bench.close()
    logs = bench.directory / "ledgers/current"
    (log_id,) = log_ids(logs)
    path = logs / f"{log_id:x}.log"
    content = path.read_bytes()
    path.write_bytes(content[: 1024 + 5040 + 8] + bytes(64) + content[1024 + 5040 + 72 :])
    bench.open()
    assert (await bench.read(1, 0))[0] == OK
    assert (await bench.read(1, 1))[0] == IO_ERROR
    assert (await bench.batch(1, 1, 5))[0] == IO_ERROR
    assert len((await bench.batch(1, 0, 5))[1]) == 1
    assert (await bench.read(1, 2))[0] == OK
    bench.close()
    path.write_bytes(content[:8000])
    bench.open()
    assert (await bench.read(1, 2))[0] == IO_ERROR
    bench.close()
    path.unlink()
    bench.open()
    assert (await bench.read(1, 0))[0] == IO_ERROR


@pytest.mark.parametrize("stop", ["crash", "clean"])
@pytest.mark.parametrize("flushed", [False, True])
async def test_deleted_ledger_stays_deleted_after_restarts(
    bench: Bench, tmp_path: Path, stop: str, flushed: bool
) -> None:
    """A late request of any kind is refused."""
    bench.open()
    assert await bench.add(1, 0, b"gone") == OK
    assert await bench.add(2, 0, b"stays") == OK
    if flushed:
        await bench.checkpoint()
    assert bench.bookie is not None
    bench.bookie.delete_ledger(1)
    await assert_gone(bench, 1)
    assert await bench.add(2, 1, b"the journal's next group") == OK
    if flushed:
        await bench.checkpoint()
        await assert_gone(bench, 1)
    if stop == "clean":
        bench.reopen()
        after = bench
    else:
        after = crash(bench, tmp_path)
    for _ in range(3):
        await assert_gone(after, 1)
        assert await after.read(2, 0) == (OK, b"stays")
        after.reopen()
    after.close()


async def assert_gone(bench: Bench, ledger: int) -> None:
    assert await bench.read(ledger, 0) == (NO_LEDGER, b"")
    assert await bench.add(ledger, 1, b"late") == FENCED
    assert await bench.add(ledger, 1, b"late", recovery=True) == FENCED
    assert await bench.fence(ledger) == (NO_LEDGER, b"")
    assert await bench.read(ledger, 1) == (NO_LEDGER, b"")


@pytest.mark.parametrize("flushed", [False, True])
async def test_deletion_refuses_the_held_first_add_of_its_ledger(bench: Bench, flushed: bool) -> None:
    """The add is held because both write caches are full. A later add is refused too."""
    bench.open(write_cache_bytes=4000, throttle_s_max=20)
    assert bench.bookie is not None
    bench.file_system.may_sync.clear()
    before = [bench.start_add(1, entry, b"x" * 1000) for entry in range(8)]
    held = bench.start_add(2, 0)
    assert bench.bookie.stats.adds_held
    assert len(bench.bookie.state.ledgers.by_id) == 1
    bench.bookie.delete_ledger(2)
    bench.bookie.delete_ledger(3)
    bench.file_system.may_sync.set()
    assert await asyncio.wait_for(asyncio.gather(*before), 60) == [OK] * 8
    assert await asyncio.wait_for(held, 60) == FENCED
    if flushed:
        await bench.checkpoint()
    for _ in range(2):
        await assert_gone(bench, 2)
        await assert_gone(bench, 3)
        assert bench.bookie.stats.deleted_ledgers == 0
        bench.reopen()


async def test_start_finishes_a_checkpoint_killed_after_the_tombstones(
    bench: Bench,
) -> None:
    """The journal may have no record of the deletion."""
    bench.open()
    assert await bench.add(1, 0) == OK
    await bench.fence(1)
    await bench.checkpoint()
    bench.close()
    tombstones = Tombstones(bench.directory / "ledgers/current/deleted", bench.file_system)
    tombstones.add([1])
    bench.open()
    await assert_gone(bench, 1)
    bench.close()
    for name in ("deleted", "inventory"):  # which says that there was a tombstone
        (bench.directory / "ledgers/current" / name).unlink()
    bench.open()
    assert await bench.read(1, 0) == (NO_LEDGER, b"")  # it is in no index any more


async def test_replay_does_not_bring_a_deleted_ledger_back(bench: Bench, tmp_path: Path) -> None:
    """The record of the deletion failed, the checkpoint did not, and died before it moved the mark."""
    bench.open()
    assert await bench.add(1, 0) == OK
    await bench.fence(1)
    await bench.fence(2)
    image = Bench(tmp_path.with_name(tmp_path.name + "-crash"))
    shutil.copytree(bench.directory, image.directory)
    Tombstones(image.directory / "ledgers/current/deleted", image.file_system).add([1, 2])
    image.open()
    await assert_gone(image, 1)
    await assert_gone(image, 2)
    image.close()


@pytest.mark.parametrize("directories", [1, 2])
async def test_highest_ledger_id_includes_deleted_ledgers_after_every_start(
    bench: Bench, tmp_path: Path, directories: int
) -> None:
    """A broker takes new ids above it, so no id of a deleted ledger is used again."""
    paths = tuple(tmp_path / f"ledgers{number}" for number in range(directories))
    settings = {"ledger_directories": paths, "index_directories": paths}
    highest = bench.open(**settings).highest_ledger_id
    assert highest == -1
    for ledger in (3, 7, 20):
        assert await bench.add(ledger, 0) == OK
    assert bench.bookie is not None
    assert bench.bookie.highest_ledger_id == 20
    assert bench.reopen(**settings).highest_ledger_id == 20
    bench.bookie.delete_ledger(20)
    assert bench.bookie.highest_ledger_id == 20
    await bench.checkpoint()
    assert bench.bookie.highest_ledger_id == 20
    bookie = bench.reopen(**settings)
    assert (bookie.highest_ledger_id, len(bookie.state.ledgers.by_id)) == (20, 2)


async def test_collector_removes_logs_without_an_existing_ledger(bench: Bench) -> None:
    settings = {"entry_log_bytes_max": 3000}
    bench.open(**settings)
    for ledger in (1, 2):
        for entry in range(10):
            assert await bench.add(ledger, entry, b"x" * 500) == OK
        await bench.checkpoint()
    logs = bench.directory / "ledgers/current"
    before = log_ids(logs)
    assert bench.bookie is not None
    bench.bookie.delete_ledger(1)
    await bench.checkpoint()
    await bench.until(lambda: len(log_ids(logs)) < len(before))
    assert [await bench.read(2, entry) for entry in range(10)] == [(OK, b"x" * 500)] * 10
    bench.reopen(**settings)
    assert [await bench.read(2, entry) for entry in range(10)] == [(OK, b"x" * 500)] * 10
    bench.bookie.delete_ledger(2)
    await bench.checkpoint()
    await bench.until(lambda: not log_ids(logs))


async def test_journal_file_is_allocated_ahead_and_cut_at_its_end(bench: Bench) -> None:
    bench.open(journal_allocate_bytes=64 << 10, journal_bytes_max=100 << 10)
    journals = bench.directory / "journal/current"
    for entry in range(10):
        assert await bench.add(1, entry, b"x" * 20_000) == OK
        newest = journals / f"{journal_ids(journals)[-1]:x}.txn"
        assert newest.stat().st_size in (64 << 10, 128 << 10)
    assert await bench.add(1, 10) == OK
    bench.close()
    assert all(path.stat().st_size % 4096 == 0 for path in journals.glob("*.txn"))
    assert all(path.stat().st_size < 128 << 10 for path in journals.glob("*.txn"))


async def test_checkpoint_removes_the_journals_it_covers(bench: Bench) -> None:
    bench.open(journal_bytes_max=10_000, journal_allocate_bytes=8192, journal_backups=2)
    for entry in range(40):
        assert await bench.add(1, entry, b"x" * 1000) == OK
    journals = bench.directory / "journal/current"
    assert len(journal_ids(journals)) > 10
    await bench.checkpoint()
    assert len(journal_ids(journals)) <= 3
    bench.reopen()
    assert (await bench.batch(1, 0, 100))[1] == [b"x" * 1000] * 40


async def test_checkpoint_keeps_the_configured_number_of_old_journals(bench: Bench) -> None:
    bench.open(journal_bytes_max=10_000, journal_allocate_bytes=8192, journal_backups=5)
    journals = bench.directory / "journal/current"
    entry = 0
    while len(journal_ids(journals)) < 5:
        assert await bench.add(1, entry, b"x" * 1000) == OK
        entry += 1
    before = journal_ids(journals)
    await bench.checkpoint()
    assert journal_ids(journals)[: len(before)] == before


async def test_damaged_index_is_not_taken_for_one_that_is_in_use(bench: Bench) -> None:
    """RocksDB's text has "block" in it, which contains "lock"."""
    bench.open()
    await bench.add_signed(1, range(200), b"a" * 100)
    await bench.checkpoint()
    bench.running.state.storages.all[0].locations.compact()
    bench.close()
    (table,) = (bench.directory / "ledgers/current/ledgers").glob("*.sst")
    refusals = list[str]()
    for offset in range(0, table.stat().st_size, 64):
        flip(table, offset)
        try:
            bench.open()
            bench.close()
        except BookieStorageError as error:
            refusals.append(str(error))
        flip(table, offset)
    assert any("block checksum mismatch" in text for text in refusals)
    assert [text for text in refusals if "; run `magnetar bookie " not in text] == []


async def test_start_refuses_a_directory_in_use_or_of_another_bookie(bench: Bench, tmp_path: Path) -> None:
    bench.open()
    other = Bench(tmp_path)
    with pytest.raises(BookieInUse):
        other.open()
    bench.close()
    (tmp_path / "journal/current/VERSION").unlink()
    with pytest.raises(ForeignDirectory, match="VERSION"):
        bench.open()
    foreign = tmp_path / "foreign"
    (foreign / "journal/current").mkdir(parents=True)
    (foreign / "journal/current/something").touch()
    with pytest.raises(ForeignDirectory, match="not empty"):
        Bench(foreign).open()


async def test_start_refuses_when_the_marked_journal_is_missing(bench: Bench) -> None:
    bench.open()
    assert await bench.add(1, 0) == OK
    bench.close()
    for path in (bench.directory / "journal/current").glob("*.txn"):
        path.unlink()
    with pytest.raises(CorruptJournal, match="lastMark names, is missing"):
        bench.open()


async def test_master_key_survives_a_restart(bench: Bench, tmp_path: Path) -> None:
    bench.open()
    assert await bench.add(1, 0) == OK
    after = crash(bench, tmp_path)
    assert await after.start_add(1, 1, key=b"?" * 20) == UNAUTHORIZED
    assert await after.start_add(1, 1, key=MASTER_KEY) == OK
    after.close()


@pytest.mark.parametrize(
    "limit", [GroupSettings(wait_s=60.0, bytes_max=300), GroupSettings(wait_s=60.0, records_max=6)]
)
async def test_group_waits_until_it_has_enough_bytes_or_records(bench: Bench, limit: GroupSettings) -> None:
    bookie = bench.open(journal_group=limit)
    groups = bookie.stats.journals[0].groups
    first = [bench.start_add(1, entry) for entry in range(3)]
    await bench.until(lambda: bookie.state.journals.queue_length == 0)
    assert groups.count == 0
    assert not any(add.done() for add in first)
    rest = [bench.start_add(1, entry) for entry in range(3, 10)]
    assert set(await asyncio.gather(*first, *rest[:2])) == {OK}
    bench.close()
    assert set(await asyncio.gather(*rest)) == {OK}


async def test_group_waits_no_longer_than_its_time(bench: Bench) -> None:
    bookie = bench.open(journal_group=GroupSettings(wait_s=0.02, bytes_max=1 << 30))
    assert await bench.add(1, 0) == OK
    assert bookie.stats.journals[0].groups.sum == 2  # the master key record and the entry, together
