"""Compaction: living entries move, space is freed, and reads and writes go on rightly meanwhile."""

from __future__ import annotations

import asyncio
import errno
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from bookie_stub.base.errors import BookieError
from bookie_stub.compose.bookie import Bookie
from bookie_stub.config.settings import CollectionSettings
from bookie_stub.disk.entry_log import file_name, log_ids
from bookie_stub.upkeep.compaction import EntryLogCompactor, is_named
from bookie_stub.upkeep.directory_compactions import ForcedRound
from bookie_stub.upkeep.throttler import CompactionStopped, Throttler
from tests.bookie_stub.conftest import Bench
from tests.bookie_stub.files import crash

OK, NO_ENTRY, IO_ERROR = 0, 2, 101
FAST = CollectionSettings(rate=0)
ENTRIES = 20


def logs_of(bench: Bench) -> Path:
    return bench.directory / "ledgers/current"


async def mostly_dead(bench: Bench, **settings: object) -> Bookie:
    """Ledgers 1 to 10 in one finished log, of which only ledger 1 lives."""
    bookie = bench.open(**{"collection": FAST, **settings})
    for ledger in range(1, 11):
        await bench.add_all(ledger, range(ENTRIES), b"x" * 500)
    await bench.checkpoint()
    bookie = bench.reopen(**{"collection": FAST, **settings})
    for ledger in range(2, 11):
        bookie.delete_ledger(ledger)
    await bench.checkpoint()
    return bookie


async def compact(bench: Bench, force: ForcedRound = ForcedRound(minor=True)) -> None:  # noqa: B008 - immutable
    assert bench.bookie is not None
    bench.bookie.upkeep.collector.force(force)
    await bench.until(lambda: bench.bookie is not None and not bench.bookie.upkeep.collector.forced)


async def all_of(bench: Bench, ledger: int) -> Sequence[tuple[int, bytes]]:
    return [await bench.read(ledger, entry) for entry in range(ENTRIES)]


EVERYTHING = [(OK, b"%d " % entry + b"x" * 500) for entry in range(ENTRIES)]


async def test_compaction_moves_living_entries_and_removes_the_old_log(bench: Bench) -> None:
    bookie = await mostly_dead(bench)
    (old,) = log_ids(logs_of(bench))
    size = (logs_of(bench) / file_name(old)).stat().st_size
    await compact(bench)
    (new,) = log_ids(logs_of(bench))
    assert new > old
    assert [path.name for path in logs_of(bench).glob("*.log*")] == [file_name(new)]
    assert (logs_of(bench) / file_name(new)).stat().st_size < size / 5
    stats = bookie.stats.collection
    assert stats.minors == 1
    assert 0.8 * size < stats.reclaimed_by_compaction < size
    assert await all_of(bench, 1) == EVERYTHING
    assert (await bench.batch(1, 0, 100))[1] == [payload for _, payload in EVERYTHING]
    bench.reopen()
    assert await all_of(bench, 1) == EVERYTHING
    assert await bench.read(2, 0) == (1, b"")


async def test_minor_compaction_leaves_a_half_living_log_to_a_major_one(bench: Bench) -> None:
    settings = replace(FAST, minor_threshold=0.05, major_threshold=0.5)
    bookie = await mostly_dead(bench, collection=settings)
    (old,) = log_ids(logs_of(bench))
    await compact(bench)
    assert log_ids(logs_of(bench)) == [old]
    await compact(bench, ForcedRound(major=True))
    assert log_ids(logs_of(bench)) != [old]
    assert (bookie.stats.collection.minors, bookie.stats.collection.majors) == (1, 1)
    assert await all_of(bench, 1) == EVERYTHING


async def test_compaction_keeps_the_new_version_of_a_rewritten_entry(bench: Bench) -> None:
    """Rewritten before the compaction and flushed; rewritten and not flushed; rewritten while it runs."""
    bookie = await mostly_dead(bench)
    assert await bench.add(1, 0, b"flushed") == OK
    await bench.checkpoint()
    assert await bench.add(1, 1, b"cached") == OK
    (storage,) = bookie.state.storages.all
    old = log_ids(logs_of(bench))[0]

    def pace(_size: int) -> None:
        """Between two copies: a flush of another version of what is being copied."""
        if not done:
            done.append(asyncio.run_coroutine_threadsafe(rewrite(), bench.loop).result(60))

    async def rewrite() -> int:
        rc = await bench.add(1, 2, b"while it runs")
        await bench.checkpoint()
        return rc

    done: list[int] = []
    await asyncio.to_thread(EntryLogCompactor(storage, lambda ledger: ledger == 1, pace).compact, old)
    assert done == [OK]
    expected = [(OK, b"flushed"), (OK, b"cached"), (OK, b"while it runs"), *EVERYTHING[3:]]
    assert await all_of(bench, 1) == expected
    bench.reopen()
    assert await all_of(bench, 1) == expected


async def test_compaction_keeps_the_new_version_when_an_entry_is_rewritten_before_the_index_changes(
    bench: Bench,
) -> None:
    """The copy is complete and has its name; then another version is flushed, before the index names the copy."""
    bookie = await mostly_dead(bench)
    (storage,) = bookie.state.storages.all
    (old,) = log_ids(logs_of(bench))
    link = bench.file_system.link

    def link_late(path: Path, new: Path) -> None:
        link(path, new)
        done.append(asyncio.run_coroutine_threadsafe(rewrite(), bench.loop).result(60))

    async def rewrite() -> int:
        rc = await bench.add(1, 2, b"new")
        await bench.checkpoint()
        return rc

    done: list[int] = []
    bench.file_system.link = link_late  # type: ignore[method-assign]
    await asyncio.to_thread(
        EntryLogCompactor(storage, lambda ledger: ledger == 1, lambda _: None).compact, old
    )
    assert done == [OK]
    expected = [*EVERYTHING[:2], (OK, b"new"), *EVERYTHING[3:]]
    assert await all_of(bench, 1) == expected
    bench.reopen()  # from the index, not from the cache
    assert await all_of(bench, 1) == expected


async def test_flush_during_a_compaction_writes_to_a_newer_log(bench: Bench) -> None:
    """Of two logs with one entry the newer log then has the newer version, the rule by which an index is rebuilt."""
    bookie = await mostly_dead(bench)
    old = log_ids(logs_of(bench))[0]
    await bench.add_all(3000, range(5))
    await bench.checkpoint()
    current = log_ids(logs_of(bench))[-1]
    (storage,) = bookie.state.storages.all
    await asyncio.to_thread(
        EntryLogCompactor(storage, lambda ledger: ledger == 1, lambda _: None).compact, old
    )
    copied = log_ids(logs_of(bench))[-1]
    await bench.add_all(3000, range(5, 10))
    await bench.checkpoint()
    assert old < current < copied < log_ids(logs_of(bench))[-1]


async def test_reads_return_the_right_entries_while_logs_are_compacted(bench: Bench) -> None:
    settings = {"entry_log_bytes_max": 30_000, "read_cache_bytes": 0}
    bookie = bench.open(collection=replace(FAST, minor_threshold=0.9), **settings)
    wrong: list[object] = []
    reads = 0
    for round_number in range(6):
        for ledger in range(1, 8):
            await bench.add_all(100 * round_number + ledger, range(ENTRIES), b"x" * 500)
        await bench.checkpoint()
        for ledger in range(2, 8):
            bookie.delete_ledger(100 * round_number + ledger)
        await bench.checkpoint()
        bookie.upkeep.collector.force(ForcedRound(minor=True))
        while bookie.upkeep.collector.forced:
            for ledger in range(1, 100 * round_number + 2, 100):
                found = await asyncio.gather(*(bench.start_read(ledger, entry) for entry in range(ENTRIES)))
                reads += ENTRIES
                wrong += [each for each in found if each not in EVERYTHING]
    assert not wrong
    assert reads > 100
    assert bookie.stats.collection.reclaimed_by_compaction > 0
    for ledger in range(1, 600, 100):
        assert await all_of(bench, ledger) == EVERYTHING


async def test_read_looks_into_the_index_again_when_its_log_is_removed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is compacted and removed between the look into the index and the log's opening."""
    bookie = await mostly_dead(bench)
    (storage,) = bookie.state.storages.all
    (old,) = log_ids(logs_of(bench))
    open_to_read = bench.file_system.open_to_read
    done: list[int] = []

    def late(path: Path) -> int:
        if path.name == file_name(old) and not done:
            done.append(1)
            EntryLogCompactor(storage, lambda ledger: ledger == 1, lambda _: None).compact(old)
        return open_to_read(path)

    monkeypatch.setattr(bench.file_system, "open_to_read", late)
    assert await bench.read(1, 3) == EVERYTHING[3]
    assert done
    assert not (logs_of(bench) / file_name(old)).exists()


async def test_compaction_pauses_among_dead_entries_and_paces_entries_it_looks_up(
    bench: Bench,
) -> None:
    bookie = bench.open()
    await bench.add_all(1, range(1000))  # dead as a whole
    await bench.add_all(2, range(300))
    await bench.checkpoint()
    await bench.add_all(2, range(290), b"again")  # all but ten entries are dead by that
    await bench.checkpoint()
    (storage,) = bookie.state.storages.all
    first, *_ = log_ids(logs_of(bench))
    with storage.flushing:
        storage.logs.finish()
    pauses: list[int] = []
    paced: list[int] = []

    def pause() -> None:
        pauses.append(len(paced))

    EntryLogCompactor(storage, lambda ledger: ledger == 2, paced.append, pause).compact(first)
    assert pauses[:7] == [0] * 7  # over ledger 1
    assert len(pauses) == (1000 + 300 + 290) // 128
    assert len(paced) == 300 + 290
    assert (await bench.batch(2, 289, 9))[1][:2] == [b"289 again", b"290 payload"]


async def test_compaction_stops_while_it_scans_dead_entries(bench: Bench) -> None:
    bookie = bench.open()
    await bench.add_all(1, range(1000))
    await bench.checkpoint()
    (storage,) = bookie.state.storages.all
    (log_id,) = log_ids(logs_of(bench))
    with storage.flushing:
        storage.logs.finish()
    stopping = Event()
    stopping.set()
    with pytest.raises(CompactionStopped):
        EntryLogCompactor(storage, lambda _: False, lambda _: None, Throttler(0, stopping).pause).compact(
            log_id
        )
    assert log_ids(logs_of(bench)) == [log_id]


async def test_log_is_removed_when_its_last_ledger_is_deleted(bench: Bench) -> None:
    bookie = await mostly_dead(bench)
    bookie.delete_ledger(1)
    await bench.checkpoint()
    await bench.until(lambda: not log_ids(logs_of(bench)))


OPERATIONS = ("create", "write", "sync_data")


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_compaction_leaves_the_old_log_when_the_disk_fails(bench: Bench, operation: str) -> None:
    await mostly_dead(bench)
    (old,) = log_ids(logs_of(bench))
    bench.file_system.fails[operation] = errno.ENOSPC
    await compact(bench)
    assert old in log_ids(logs_of(bench))
    bench.file_system.fails.clear()
    assert not list(logs_of(bench).glob("*.compacting"))
    assert await all_of(bench, 1) == EVERYTHING
    await compact(bench)
    assert old not in log_ids(logs_of(bench))
    assert await all_of(bench, 1) == EVERYTHING


@pytest.mark.parametrize(
    ("stop", "count"),
    [
        ("rename", 1),
        ("link", 1),
        ("remove", 1),
        ("remove", 2),
        ("sync_directory", 1),
        ("sync_directory", 2),
        ("sync_directory", 3),
        ("sync_directory", 4),
        ("sync_directory", 5),
    ],
)
async def test_start_finishes_a_compaction_killed_at_any_step(
    bench: Bench, tmp_path: Path, stop: str, count: int
) -> None:
    """The files as they were before the named operation, opened elsewhere."""
    bookie = await mostly_dead(bench)
    (storage,) = bookie.state.storages.all
    (old,) = log_ids(logs_of(bench))
    image = tmp_path.with_name(tmp_path.name + "-image")
    real = getattr(bench.file_system, stop)
    calls = 0

    def stopping(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls == count:
            shutil.copytree(bench.directory, image)
        return real(*arguments)

    setattr(bench.file_system, stop, stopping)
    await asyncio.to_thread(
        EntryLogCompactor(storage, lambda ledger: ledger == 1, lambda _: None).compact, old
    )
    assert image.exists(), f"no {count}. {stop} in a compaction"
    after = Bench(image)
    complete = list(logs_of(after).glob("*.compacted"))
    after.open()
    assert await all_of(after, 1) == EVERYTHING
    assert not list(logs_of(after).glob("*.compact*"))
    assert not (complete and old in log_ids(logs_of(after)))
    await compact(after)
    assert await all_of(after, 1) == EVERYTHING
    assert after.bookie is not None
    assert not is_named(after.bookie.state.storages.all[0], old, None) or old in log_ids(logs_of(after))
    after.close()


async def test_compaction_keeps_a_damaged_log(bench: Bench) -> None:
    """Its scan breaks off, but entries behind the damage can still be read by the index."""
    await mostly_dead(bench)
    (old,) = log_ids(logs_of(bench))
    path = logs_of(bench) / file_name(old)
    bench.close()
    with path.open("r+b") as file:
        file.seek(1024)
        file.write((1 << 30).to_bytes(4, "big"))
    bench.open(collection=FAST)
    await compact(bench)
    assert old in log_ids(logs_of(bench))
    assert await bench.read(1, 0) == (IO_ERROR, b"")
    assert [await bench.read(1, entry) for entry in range(1, ENTRIES)] == EVERYTHING[1:]


async def test_close_gives_up_a_slow_compaction(bench: Bench) -> None:
    bookie = await mostly_dead(bench, collection=replace(FAST, rate=0.5))
    bookie.upkeep.collector.force(ForcedRound(minor=True))
    await bench.until(lambda: bool(list(logs_of(bench).glob("*.compacting"))))
    bench.close()
    assert not list(logs_of(bench).glob("*.compacting"))
    bench.open()
    assert await all_of(bench, 1) == EVERYTHING


async def test_compaction_paces_every_record(bench: Bench) -> None:
    bookie = await mostly_dead(bench)
    (storage,) = bookie.state.storages.all
    sizes: list[int] = []

    def stop_late(size: int) -> None:
        sizes.append(size)
        if len(sizes) == 5:
            raise CompactionStopped("enough")

    (old,) = log_ids(logs_of(bench))
    with pytest.raises(BookieError, match="enough"):
        EntryLogCompactor(storage, lambda ledger: ledger == 1, stop_late).compact(old)
    assert sizes == [542, 542, 542, 542, 542]
    assert await all_of(bench, 1) == EVERYTHING


async def test_ledgers_in_several_directories_survive_crash_stop_and_compaction(
    bench: Bench, tmp_path: Path
) -> None:
    """Entries, fences and deletions of ledgers at home in each of them; crash, clean stop, compaction."""
    names = {
        "journal_directories": tuple(tmp_path / f"journal{index}" for index in range(2)),
        "ledger_directories": tuple(tmp_path / f"ledgers{index}" for index in range(3)),
        "index_directories": tuple(tmp_path / f"index{index}" for index in range(3)),
        "collection": replace(FAST, minor_threshold=0.6),
    }
    bookie = bench.open(**names)
    for ledger in range(1, 13):
        await bench.add_all(ledger, range(ENTRIES), b"x" * 500)
    assert (await bench.fence(5))[0] == OK
    await bench.checkpoint()
    for ledger in range(1, 13):
        await bench.add_all(ledger, range(ENTRIES, ENTRIES + 2)) if ledger != 5 else None
    bench.reopen(**names)
    for index in range(3):
        directory = tmp_path / f"ledgers{index}/current"
        assert log_ids(directory)
        assert (directory / "lastMark.0").exists()
        assert (directory / "lastMark.1").exists()
    for ledger in range(1, 13):
        assert await all_of(bench, ledger) == EVERYTHING
    assert await bench.add(5, 99) == 104
    bookie = bench.bookie or bookie
    for ledger in range(4, 13):
        bookie.delete_ledger(ledger)
    await bench.checkpoint()
    await compact(bench)
    assert bookie.stats.collection.reclaimed_by_compaction > 0
    bench.reopen(**names)
    for ledger in range(1, 4):
        assert await all_of(bench, ledger) == EVERYTHING
        assert await bench.read(ledger, ENTRIES + 1) == (OK, b"21 payload")


async def test_crash_with_several_directories_loses_no_entry(bench: Bench, tmp_path: Path) -> None:
    def names(root: Path) -> dict[str, object]:
        return {
            "journal_directories": tuple(root / f"journal{index}" for index in range(2)),
            "ledger_directories": tuple(root / f"ledgers{index}" for index in range(2)),
            "index_directories": tuple(root / f"ledgers{index}" for index in range(2)),
        }

    bench.open(**names(bench.directory))
    for ledger in range(1, 7):
        await bench.add_all(ledger, range(ENTRIES), b"x" * 500)
        if ledger == 3:
            await bench.checkpoint()
    image = tmp_path.with_name(tmp_path.name + "-image")
    shutil.copytree(bench.directory, image)
    after = Bench(image)
    after.open(**names(image))
    for ledger in range(1, 7):
        assert await all_of(after, ledger) == EVERYTHING
    after.close()


@pytest.mark.parametrize("change", [(1, 0), (0,), (0, 1, 2)])
async def test_start_refuses_directories_that_changed_places(
    bench: Bench, tmp_path: Path, change: tuple[int, ...]
) -> None:
    def names(places: Sequence[int]) -> dict[str, object]:
        directories = tuple(tmp_path / f"ledgers{place}" for place in places)
        return {"ledger_directories": directories, "index_directories": directories}

    bench.open(**names((0, 1)))
    assert await bench.add(1, 0) == OK
    bench.close()
    with pytest.raises(BookieError, match=r"number and order|no VERSION"):
        bench.open(**names(change))
    bench.open(**names((0, 1)))
    assert await bench.read(1, 0) == (OK, b"payload")


async def test_start_removes_the_files_of_killed_compactions(bench: Bench, tmp_path: Path) -> None:
    await mostly_dead(bench)
    (logs_of(bench) / "7f.log.compacting").write_bytes(b"cut short")
    after = crash(bench, tmp_path)
    assert not list(logs_of(after).glob("*.compact*"))
    assert await all_of(after, 1) == EVERYTHING
    after.close()
