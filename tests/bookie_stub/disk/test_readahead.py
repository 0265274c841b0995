"""Readahead: limits as decisions, stop rules on real entry logs, BookKeeper's golden numbers."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest

from bookie_stub.base.file_system import FileSystem
from bookie_stub.base.record import KEY
from bookie_stub.disk.entry_log import LogScan, log_ids
from bookie_stub.disk.entry_log_reader import EntryLogReader
from bookie_stub.disk.entry_log_writer import EntryLogWriter
from bookie_stub.disk.readahead import LOAD_BYTES_MAX, Load, Readahead, readahead
from bookie_stub.disk.stored_entries import near_until
from tests.bookie_stub.conftest import Bench, record_of

OK, NO_ENTRY, IO_ERROR = 0, 2, 101
MANY = 1 << 30


def grown(load: Load, entries: list[tuple[int, int, int]]) -> list[int]:
    """Returns the ids that the load takes of rows (id, place, size); place counts bytes from the start of the log."""
    rows = [(entry_id, place + 4, bytes(size)) for entry_id, place, size in entries]
    assert load.add_run(*zip(*rows, strict=True)) == (len(load.ids) == len(rows))
    return load.ids


def in_a_row(count: int, size: int = 100, first: int = 0) -> list[tuple[int, int, int]]:
    return [(entry_id, (entry_id - first) * (size + 4), size) for entry_id in range(first, first + count)]


@pytest.mark.parametrize(
    ("entries_max", "bytes_max", "expected"),
    [
        (0, MANY, 1),
        (5, MANY, 6),  # the one asked for is not counted
        (50, 0, 1),
        (50, 1, 2),  # limits are tested before an entry is read
        (50, 200, 3),
        (50, 201, 4),
        (MANY, MANY, 20),
    ],
)
def test_load_stops_at_the_limits_of_reading_ahead(entries_max: int, bytes_max: int, expected: int) -> None:
    load = Load(0, 1, 0, Readahead(entries_max, bytes_max, True))
    assert len(grown(load, in_a_row(20))) == expected


@pytest.mark.parametrize(
    ("asked", "room", "expected"),
    [
        (3, MANY, 3),
        (MANY, 104 * 3, 3),
        (MANY, 104 * 3 + 1, 4),
        (MANY, -36, 1),  # the first one whatever the room
        (MANY, MANY, 20),
    ],
)
def test_load_brings_asked_entries_up_to_the_answer_size(asked: int, room: int, expected: int) -> None:
    load = Load(0, asked, room, Readahead(0, 0, True))
    assert len(grown(load, in_a_row(20))) == expected


def test_load_counts_asked_entries_as_read_ahead() -> None:
    assert len(grown(Load(0, 4, MANY, Readahead(10, MANY, True)), in_a_row(20))) == 11
    assert len(grown(Load(0, 15, MANY, Readahead(10, MANY, True)), in_a_row(20))) == 15


@pytest.mark.parametrize(
    ("rows", "stopping", "going_on"),
    [
        ([(0, 0, 100), (1, 104, 100), (2, 500, 100)], [0, 1], [0, 1]),  # another ledger's record between
        ([(0, 0, 100), (1, 104, 100), (3, 208, 100)], [0, 1], [0, 1, 3]),  # no entry 2 here
        ([(0, 0, 100), (1, 1 << 32, 100)], [0], [0]),  # in the next log
        ([(0, 2000, 100), (1, 104, 100)], [0], [0]),  # written before: an older place
        ([(1, 0, 100)], [], []),  # there is no entry 0
    ],
)
def test_load_stops_at_gap_other_place_or_rewritten_entry(
    rows: list[tuple[int, int, int]], stopping: list[int], going_on: list[int]
) -> None:
    assert grown(Load(0, 1, 0, Readahead(MANY, MANY, True)), rows) == stopping
    assert grown(Load(0, 1, 0, Readahead(MANY, MANY, False)), rows) == going_on


def test_load_fetches_asked_entries_from_any_place_up_to_a_gap() -> None:
    rows = [(0, 0, 100), (1, 104, 100), (2, 500, 100), (3, 5 << 32, 100), (5, (5 << 32) + 104, 100)]
    for stops_at_gap in (True, False):
        assert grown(Load(0, 9, MANY, Readahead(0, 0, stops_at_gap)), rows) == [0, 1, 2, 3]


def test_readahead_byte_limit_is_the_lowest_of_three() -> None:
    assert readahead(7, -1, 8 << 20, True) == (7, 4 << 20, True)
    assert readahead(7, 2 << 20, 8 << 20, False) == (7, 2 << 20, False)
    assert readahead(7, 0, 1 << 40, True) == (7, LOAD_BYTES_MAX, True)
    assert readahead(7, -1, 0, True).bytes_max == 0


def test_near_until_ends_at_other_log_far_entry_or_span_limit() -> None:
    near = [0, 1000, 2000, 3000]
    assert near_until(near, 0, MANY) == 4
    assert near_until(near, 1, MANY) == 4
    assert near_until(near, 0, 2000) == 3
    assert near_until([0, 1000, 1000 + (64 << 10) + 1], 0, MANY) == 2
    assert near_until([5000, 1000], 0, MANY) == 1
    assert near_until([n << 16 for n in range(100)], 0, MANY) == 65  # 4 MiB


async def loaded_by_reading(bench: Bench, ledger: int, entry: int) -> int:
    """Returns how many entries the read of this one brought from the logs."""
    assert bench.bookie is not None
    stats = bench.bookie.stats
    before = stats.readahead_entries.sum + stats.readahead_entries.count
    assert (await bench.read(ledger, entry))[0] == OK
    return int(stats.readahead_entries.sum + stats.readahead_entries.count - before)


async def test_readahead_stops_at_another_ledger_and_at_the_next_flush(bench: Bench) -> None:
    bench.open()
    for ledger in (1, 2):
        await bench.add_all(ledger, range(10))
    await bench.checkpoint()
    await bench.add_all(1, range(10, 15))
    await bench.checkpoint()
    assert await loaded_by_reading(bench, 1, 4) == 6
    assert await loaded_by_reading(bench, 2, 0) == 10
    assert await loaded_by_reading(bench, 1, 10) == 5


async def test_readahead_crosses_two_flushes_that_touch(bench: Bench) -> None:
    bench.open()
    for first in (0, 10):
        await bench.add_all(1, range(first, first + 10))
        await bench.checkpoint()
    assert await loaded_by_reading(bench, 1, 0) == 20


async def test_readahead_stops_at_the_end_of_a_log(bench: Bench) -> None:
    bench.open(entry_log_bytes_max=3000)
    await bench.add_all(1, range(40), b"x" * 100)
    await bench.checkpoint()
    directory = bench.directory / "ledgers/current"
    in_first = len(list(LogScan(directory / "0.log")))
    assert len(log_ids(directory)) > 2
    assert 0 < in_first < 40
    assert await loaded_by_reading(bench, 1, 0) == in_first
    assert await bench.batch(1, 0, 40) == (OK, [b"%d " % entry + b"x" * 100 for entry in range(40)])


@pytest.mark.parametrize(("stops_at_gap", "hits", "loads"), [(True, 0, 20), (False, 19, 1)])
async def test_readahead_crosses_gaps_when_gaps_do_not_stop_it(
    bench: Bench, stops_at_gap: bool, hits: int, loads: int
) -> None:
    bookie = bench.open(readahead_stops_at_gap=stops_at_gap)
    await bench.add_all(1, range(0, 40, 2))
    await bench.checkpoint()
    for entry in range(0, 40, 2):
        assert await bench.read(1, entry) == (OK, b"%d payload" % entry)
    assert (bookie.stats.read_cache_hits, bookie.stats.read_cache_misses) == (hits, loads)
    assert await bench.read(1, 3) == (NO_ENTRY, b"")
    assert (await bench.batch(1, 0, 10))[1] == [b"0 payload"]


async def test_readahead_skips_the_old_version_of_a_rewritten_entry(bench: Bench) -> None:
    """BookKeeper serves the old version, as it lies next in the log."""
    bench.open()
    await bench.add_all(1, range(6), b"old")
    await bench.checkpoint()
    assert await bench.add(1, 2, b"new") == OK
    await bench.checkpoint()
    assert await loaded_by_reading(bench, 1, 1) == 1
    assert await bench.read(1, 2) == (OK, b"new")
    assert await bench.read(1, 3) == (OK, b"3 old")
    assert (await bench.batch(1, 0, 6))[1] == [b"0 old", b"1 old", b"new", b"3 old", b"4 old", b"5 old"]


def damage(bench: Bench, entry: int, at: int, value: bytes) -> None:
    """Overwrites bytes of an entry's record; `at` counts from its size field."""
    path = bench.directory / "ledgers/current/0.log"
    offset = next(each.offset for each in LogScan(path) if each.entry_id == entry)
    with path.open("r+b") as file:
        file.seek(offset + at)
        file.write(value)


@pytest.mark.parametrize(
    ("at", "value"),
    [(4, b"\x55" * 8), (12, b"\x55" * 8), (0, b"\xff\xff\xff\xff"), (0, b"\x7f\xff\xff\xff")],
    ids=["ledger", "entry", "negative size", "huge size"],
)
async def test_damaged_entry_ends_a_load_and_fails_its_own_read(
    bench: Bench, at: int, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    bench.open()
    await bench.add_all(1, range(6))
    await bench.checkpoint()
    damage(bench, 3, at, value)
    with caplog.at_level(logging.WARNING):
        assert await loaded_by_reading(bench, 1, 0) == 3
    assert "a load of ledger entries ends early" in caplog.text
    assert await bench.read(1, 3) == (IO_ERROR, b"")
    assert await bench.batch(1, 3, 2) == (IO_ERROR, [])
    assert (await bench.batch(1, 1, 9))[1] == [b"1 payload", b"2 payload"]
    assert await bench.read(1, 4) == (OK, b"4 payload")


async def test_read_refuses_an_entry_larger_than_a_frame(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.open()
    assert await bench.add(1, 0, b"x" * 3000) == OK
    assert await bench.add(1, 1, b"y" * 1000) == OK
    bench.reopen(frame_bytes_max=2000)
    assert await bench.read(1, 0) == (IO_ERROR, b"")
    assert "3036 bytes, more than 2000" in caplog.text
    assert "nettyMaxFrameSizeBytes" in caplog.text
    assert await bench.read(1, 1) == (OK, b"y" * 1000)


@pytest.mark.parametrize("cache_bytes", [0, 100, 5000, 1 << 20])
async def test_batch_read_does_not_depend_on_the_read_cache_size(bench: Bench, cache_bytes: int) -> None:
    bookie = bench.open(read_cache_bytes=cache_bytes, readahead_entries=3)
    await bench.add_all(1, range(300), b"x" * 400)
    await bench.checkpoint()
    expected = [b"%d " % entry + b"x" * 400 for entry in range(300)]
    assert await bench.batch(1, 0, 300) == (OK, expected)
    assert bookie.stats.read_cache_misses == 1
    assert await bench.batch(1, 0, 300) == (OK, expected)
    assert bookie.state.read_cache.size <= cache_bytes


async def test_readahead_brings_large_entries(bench: Bench) -> None:
    bench.open(read_cache_bytes=64 << 20, readahead_bytes=1 << 20, write_cache_bytes=64 << 20)
    await bench.add_all(1, range(20), b"x" * 200_000)
    await bench.checkpoint()
    assert await loaded_by_reading(bench, 1, 0) == 1 + 6
    assert await loaded_by_reading(bench, 1, 7) == 1 + 6


@pytest.mark.parametrize(("readahead_bytes", "misses"), [(2 << 20, 8), (-1, 132)])
async def test_golden_misses_of_bookkeeper_hold_on_real_logs(
    bench: Bench, readahead_bytes: int, misses: int
) -> None:
    """Four ledgers read in turn, 512 of their 1,024 entries of 4,120 bytes; a ring of 2 x 8 MiB, batches of 1,024.

    Without a limit in bytes the four batches together are more than the cache.
    """
    bookie = bench.open(
        read_cache_bytes=16 << 20,
        readahead_entries=1024,
        readahead_bytes=readahead_bytes,
        read_cache_policy="ring",
    )
    payload = b"x" * (4120 - 36)
    for ledger in range(4):
        await asyncio.gather(*(bench.start_add(ledger, entry, payload) for entry in range(1024)))
    await bench.checkpoint()
    for entry in range(512):
        for ledger in range(4):
            assert await bench.read(ledger, entry) == (OK, payload)
    stats = bookie.stats
    assert stats.read_cache_misses == misses
    assert stats.read_cache_hits == 2048 - misses
    assert stats.readahead_entries.count == misses


def test_reader_closes_a_log_removed_while_it_is_opened(tmp_path: Path) -> None:
    writer = EntryLogWriter(tmp_path, 1 << 20, FileSystem())
    location = writer.append(record_of(1, 0, b"x" * 5000), 1)
    writer.finish()
    opened = []

    class RemovedMeanwhile(FileSystem):
        def open_to_read(self, path: Path) -> int:
            opened.append(super().open_to_read(path))
            path.unlink()
            reader.forget(0)
            return opened[-1]

    reader = EntryLogReader(tmp_path, 1 << 20, RemovedMeanwhile())
    assert reader.read(KEY.pack(1, 0), location).endswith(b"x" * 5000)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])


def test_reader_reads_on_while_logs_are_removed(tmp_path: Path) -> None:
    writer = EntryLogWriter(tmp_path, 1 << 20, FileSystem())
    locations = [writer.append(record_of(1, entry, b"x" * 5000), 1) for entry in range(3)]
    writer.finish()
    reader = EntryLogReader(tmp_path, 1 << 20, FileSystem())
    run = reader.read_run([KEY.pack(1, entry) for entry in range(3)], locations)
    next(run)
    reader.forget(0)
    (tmp_path / "0.log").unlink()
    assert len(list(run)) == 2
    reader.close()
