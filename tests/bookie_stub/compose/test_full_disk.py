"""Disks without space: dead entries leave the newest files too, deletions pass entries that wait, a start writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bookie_stub.base.disk_reserve import kept_by_adds
from bookie_stub.config.settings import CollectionSettings, DiskSettings
from bookie_stub.disk.entry_log import log_ids
from bookie_stub.journal.journal_file import bytes_after, journal_ids
from bookie_stub.upkeep.directory_compactions import ForcedRound
from tests.bookie_stub.conftest import Bench
from tests.bookie_stub.files import crash
from tests.bookie_stub.upkeep.test_compaction import compact
from tests.support.file_sizes import bytes_of

OK, NO_LEDGER, READ_ONLY = 0, 1, 105
BODY = b"x" * 500
LARGE = bytes(100_000)
ENTRIES = range(20)
FULL = 0.995
FORCED = CollectionSettings(rate=0, force_when_full=True)
SHORT = DiskSettings(full=0.999, warn=0.99, low=0.999)
QUICK = replace(SHORT, interval_s=0.05)


def logs_of(bench: Bench) -> Path:
    return bench.directory / "ledgers/current"


def bytes_in_logs(bench: Bench) -> int:
    return bytes_of(logs_of(bench), "*.log")


def journals_of(bench: Bench) -> Path:
    return bench.directory / "journal/current"


async def fill(bench: Bench, ledgers: Sequence[int]) -> None:
    for ledger in ledgers:
        await bench.add_all(ledger, ENTRIES, BODY)


async def assert_whole(bench: Bench, ledger: int) -> None:
    assert (await bench.batch(ledger, 0, 100))[1] == [b"%d " % entry + BODY for entry in ENTRIES]


# The current entry log.


async def test_current_log_is_removed_when_all_of_its_ledgers_are_deleted(bench: Bench) -> None:
    bookie = bench.open()
    await fill(bench, (1, 2))
    await bench.checkpoint()
    bookie.delete_ledger(1)
    await bench.checkpoint()
    rounds = bookie.stats.collection.rounds.ok
    await bench.until(lambda: rounds.count >= 1)
    assert len(log_ids(logs_of(bench))) == 1, "ledger 2 lives"
    await assert_whole(bench, 2)
    bookie.delete_ledger(2)
    await bench.checkpoint()
    await bench.until(lambda: not log_ids(logs_of(bench)))
    await fill(bench, (3,))
    await bench.checkpoint()
    bench.reopen()
    await assert_whole(bench, 3)


@pytest.mark.parametrize("full", [True, False])
async def test_current_log_is_compacted_on_a_full_disk_alone(bench: Bench, *, full: bool) -> None:
    bench.file_system.share = lambda _path: FULL if full else 0.5
    bookie = bench.open(collection=FORCED, disk=SHORT)
    await fill(bench, range(1, 11))
    await bench.checkpoint()
    before = bytes_in_logs(bench)
    for ledger in range(2, 11):
        bookie.delete_ledger(ledger)
    await bench.checkpoint()
    if full:
        # Without a request: the deletions are reason enough.
        await bench.until(lambda: bytes_in_logs(bench) < before / 5)
    await compact(bench, ForcedRound(minor=True, major=True))
    assert (bytes_in_logs(bench) < before / 5) == full
    await assert_whole(bench, 1)
    bench.reopen()
    await assert_whole(bench, 1)


# Journals.


async def test_full_disk_keeps_no_journal_that_a_checkpoint_covers(bench: Bench, tmp_path: Path) -> None:
    settings = {"journal_bytes_max": 100_000, "journal_allocate_bytes": 8192, "journal_backups": 5}
    bookie = bench.open(disk=SHORT, flush_interval_s=0.05, **settings)
    while len(journal_ids(journals_of(bench))) < 3:
        await fill(bench, (1,))
    await fill(bench, (2, 3))
    await bench.checkpoint()
    await bench.checkpoint()  # the first one may have begun before the last add
    newest = max(journal_ids(journals_of(bench)))
    assert len(journal_ids(journals_of(bench))) == 3, "the disk has space, so these are backups"
    # From here on no add comes, as on a disk that other programs have filled.
    bench.file_system.share = lambda _path: FULL
    await bench.until(lambda: journal_ids(journals_of(bench)) == [newest + 1])
    await bench.until(lambda: bookie.state.journals.marks[0].journal_id == newest + 1)
    assert bytes_after(journals_of(bench), bookie.state.journals.marks[0]) <= 8192
    await fill(bench, (4,))
    after = crash(bench, tmp_path)
    for ledger in (1, 2, 3, 4):
        await assert_whole(after, ledger)
    after.close()
    bench.reopen()
    await assert_whole(bench, 4)


async def test_covered_journal_leaves_a_short_disk_before_the_next_checkpoint_is_due(bench: Bench) -> None:
    """The disk is below every threshold, with less free than the journal takes."""
    settings = {"journal_allocate_bytes": 1 << 20, "flush_interval_s": 3600}
    bench.open(disk=QUICK, **settings)
    for entry in range(30):
        assert await bench.add(1, entry, bytes(500_000)) == OK
    await bench.checkpoint()
    assert bytes_of(journals_of(bench), "*.txn") > 15_000_000
    bench.file_system.share = lambda _path: 0.95
    bench.file_system.free = 12_000_000
    await bench.until(lambda: bytes_of(journals_of(bench), "*.txn") <= 1 << 20)
    bench.reopen()
    assert await bench.read(1, 29) == (OK, bytes(500_000))


# Adds.


async def test_adds_leave_the_space_of_a_checkpoint_and_of_a_start(bench: Bench, tmp_path: Path) -> None:
    bookie = bench.open(journal_allocate_bytes=1 << 16, disk=QUICK)
    bench.file_system.free = kept_by_adds(bench.directory) + (4 << 20)
    stored = await add_until_refused(bench)
    assert 1 << 20 < stored * len(LARGE) < 4 << 20, "the rest is for the entry log"
    assert bookie.availability.read_only
    assert await bench.add(1, stored + 1, LARGE) == READ_ONLY
    assert (await bench.fence(1))[0] == OK, "a record that is no add"
    after = crash(bench, tmp_path, free=bench.file_system.free)
    assert await after.read(1, stored - 1) == (OK, LARGE)
    assert not after.running.checkpoints.running, "its replay found the space"
    after.close()
    bench.file_system.free = None
    await bench.until(lambda: not bookie.availability.read_only)
    assert await bench.add(2, 0, LARGE) == OK


async def add_until_refused(bench: Bench) -> int:
    """Returns the number of entries that ledger 1 has then."""
    entry = 0
    while await bench.add(1, entry, LARGE) == OK:
        entry += 1
    return entry


# Entries that find no space.


@pytest.mark.parametrize("stop", ["close", "crash", "space"])
async def test_deletions_pass_a_checkpoint_without_space(bench: Bench, tmp_path: Path, stop: str) -> None:
    """Space comes from deletions; they must not wait for entries that wait for space."""
    bookie = bench.open()
    await fill(bench, (1, 2))
    await bench.checkpoint()
    await fill(bench, (3, 4))
    bench.file_system.free = 0
    bookie.delete_ledger(1)
    bookie.checkpoints.start()
    await bench.until(lambda: bookie.stats.checkpoint_failures > 0)
    for ledger in (2, 3):
        bookie.delete_ledger(ledger)
    await bench.until(lambda: not log_ids(logs_of(bench)))
    assert bookie.state.storages.all[0].locations.count() == 0, "a row names a log that is gone"
    assert bookie.checkpoints.running, "ledger 4 finds no space"
    await assert_whole(bench, 4)
    if stop == "crash":
        bench = crash(bench, tmp_path)
    else:
        bench.file_system.free = None
        if stop == "space":
            await bench.until(lambda: not bookie.checkpoints.running)
            rows, _ = bookie.state.storages.all[0].ledger_index.load()
            assert set(rows) == {4}, "the checkpoint has the rows of before"
        bench.reopen()
    await assert_whole(bench, 4)
    for ledger in (1, 2, 3):
        assert await bench.read(ledger, 0) == (NO_LEDGER, b"")
    assert set(bench.running.state.ledgers.by_id) == {4}
    bench.reopen()
    assert set(bench.running.state.ledgers.by_id) == {4}
    bench.close()


async def test_stop_writes_a_removal_that_has_passed_nothing_yet(bench: Bench) -> None:
    bookie = bench.open()
    await fill(bench, (1, 2))
    bench.file_system.free = 0
    bookie.checkpoints.start()
    await bench.until(lambda: bookie.stats.checkpoint_failures > 0)
    bookie.delete_ledger(1)
    failures = bookie.stats.checkpoint_failures
    # The loop has answered this failure with the removal; the thread has a second until its next attempt.
    await bench.until(lambda: bookie.stats.checkpoint_failures > failures)
    await bench.until(lambda: not bookie.state.ledgers.deletions)
    bench.file_system.free = None
    bench.reopen()
    await assert_whole(bench, 2)
    assert set(bench.running.state.ledgers.by_id) == {2}


async def test_start_without_space_for_the_journal_writes_no_entry(bench: Bench, tmp_path: Path) -> None:
    """A replay of several write caches; each start would write the first ones again."""
    small = {"write_cache_bytes": 80_000}
    bench.open(write_cache_bytes=64 << 20)
    await fill(bench, range(1, 21))
    images = [bench]
    for _ in range(3):
        image = crash_on_a_full_disk(images[-1], tmp_path, small)
        for ledger in range(1, 21):
            await assert_whole(image, ledger)
        assert bytes_in_logs(image) == 0
        images.append(image)
    image.running.delete_ledger(7)
    image.file_system.free = None
    await image.until(lambda: not image.running.checkpoints.running)
    await image.checkpoint()
    assert bytes_in_logs(image) > 19 * len(ENTRIES) * len(BODY)
    image.reopen(**small)
    assert set(image.running.state.ledgers.by_id) == set(range(1, 21)) - {7}
    await assert_whole(image, 20)
    for each in images[1:]:
        each.file_system.free = None
        each.close()


def crash_on_a_full_disk(bench: Bench, tmp_path: Path, settings: dict[str, int]) -> Bench:
    """Opens a copy of the files as a kill leaves them, on a disk without space."""
    image = crash(bench, tmp_path, free=0, **settings)
    assert image.running.checkpoints.running
    return image
