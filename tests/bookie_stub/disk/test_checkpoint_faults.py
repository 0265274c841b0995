"""Checkpoints whose last steps fail: tried again, without the entries being written once more each time."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from bookie_stub.base.errors import BookieStorageError
from bookie_stub.disk import checkpoint
from bookie_stub.journal.journal_file import journal_ids
from bookie_stub.journal.journals import Journals
from tests.bookie_stub.conftest import Bench
from tests.bookie_stub.files import crash
from tests.support.file_sizes import bytes_of

OK = 0


def bytes_in_logs(bench: Bench) -> int:
    return bytes_of(bench.directory / "ledgers/current", "*.log")


async def test_checkpoint_writes_entries_once_when_only_a_mark_fails(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "_RETRY_S", 0.001)
    bookie = bench.open(flush_interval_s=3600)
    await bench.add_all(1, range(20), b"x" * 1000)
    replace = bench.file_system.replace

    def replace_others(path: Path, content: bytes) -> None:
        if path.name.startswith("lastMark"):
            raise OSError(errno.EIO, "the mark fails on purpose")
        replace(path, content)

    monkeypatch.setattr(bench.file_system, "replace", replace_others)
    bookie.checkpoints.start()
    await bench.until(lambda: bookie.stats.checkpoint_failures >= 20)
    assert 20_000 < bytes_in_logs(bench) < 30_000
    assert await bench.add(1, 20, b"meanwhile") == OK
    after = crash(bench, tmp_path)
    assert len((await after.batch(1, 0, 99))[1]) == 21
    after.close()
    monkeypatch.setattr(bench.file_system, "replace", replace)
    await bench.until(lambda: not bookie.checkpoints.running)
    await bench.checkpoint()  # what comes next is written
    assert bookie.state.write_caches.count() == 0
    assert len((await bench.batch(1, 0, 99))[1]) == 21


async def test_close_writes_entries_once_when_marks_fail(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookie = bench.open(flush_interval_s=3600)
    await bench.add_all(1, range(20), b"x" * 1000)
    replace = bench.file_system.replace
    refused = 0

    def replace_others(path: Path, content: bytes) -> None:
        nonlocal refused
        if path.name.startswith("lastMark"):
            refused += 1
            raise OSError(errno.EIO, "the mark fails on purpose")
        replace(path, content)

    monkeypatch.setattr(bench.file_system, "replace", replace_others)
    bookie.checkpoints.start()
    await bench.until(lambda: refused > 0)
    monkeypatch.setattr(bench.file_system, "replace", replace)
    bench.close()
    assert 20_000 < bytes_in_logs(bench) < 30_000
    bench.open()
    assert len((await bench.batch(1, 0, 99))[1]) == 20


@pytest.mark.parametrize("collected", [False, True])
async def test_checkpoint_appends_entries_once_while_an_index_fails(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collected: bool
) -> None:
    """A look for dead logs in between would take the appended log for garbage, so its entries are appended anew."""
    monkeypatch.setattr(checkpoint, "_RETRY_S", 0.001)
    bookie = bench.open(flush_interval_s=3600)
    await bench.add_all(1, range(20), b"x" * 1000)
    (storage,) = bookie.state.storages.all

    def refuse(*_values: object) -> None:
        raise BookieStorageError("the index fails on purpose")

    with monkeypatch.context() as failing:
        failing.setattr(storage.locations, "write", refuse)
        bookie.checkpoints.start()
        await bench.until(lambda: bookie.stats.checkpoint_failures >= 20)
        assert 20_000 < bytes_in_logs(bench) < 30_000
        if collected:
            await asyncio.to_thread(storage.settled_logs)
            failures = bookie.stats.checkpoint_failures
            await bench.until(lambda: bookie.stats.checkpoint_failures > failures + 2)
            assert 40_000 < bytes_in_logs(bench) < 60_000
        after = crash(bench, tmp_path)
        assert len((await after.batch(1, 0, 99))[1]) == 20
        after.close()
    await bench.until(lambda: not bookie.checkpoints.running)
    for _ in range(2):
        assert (await bench.batch(1, 0, 99))[1] == [b"%d " % entry + b"x" * 1000 for entry in range(20)]
        bench.reopen()


async def test_checkpoint_ends_when_old_journals_cannot_be_removed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bookie = bench.open(journal_bytes_max=2000, journal_allocate_bytes=512, journal_backups=0)
    for entry in range(20):
        assert await bench.add(1, entry, b"x" * 1000) == OK
    journals = bench.directory / "journal/current"
    before = journal_ids(journals)

    def refuse(*_values: object) -> None:
        raise OSError(errno.EIO, "the directory cannot be read, on purpose")

    with monkeypatch.context() as failing:
        failing.setattr(Journals, "remove_older", refuse)
        await bench.checkpoint()
    assert bookie.stats.checkpoint_failures == 0
    assert "old journals stay until the next checkpoint: [Errno 5]" in caplog.text
    assert journal_ids(journals) == before
    assert await bench.add(1, 20) == OK
    await bench.checkpoint()
    assert len(journal_ids(journals)) <= 2
