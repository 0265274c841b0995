"""The location index without the rows of deleted ledgers; which compactions are due, and how far they go."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from bookie_stub.compose.bookie import Bookie
from bookie_stub.config.settings import CollectionSettings, DiskSettings
from bookie_stub.disk.entry_log import log_ids
from bookie_stub.upkeep.directory_compactions import ForcedRound
from tests.bookie_stub.conftest import Bench
from tests.bookie_stub.upkeep.test_compaction import FAST, OK, compact, logs_of
from tests.support.file_sizes import bytes_of

# The location index.


async def index_rows_of_the_dead(bench: Bench, **settings: object) -> Bookie:
    """Ten ledgers' rows in files of the index, of which nine are deleted."""
    bookie = bench.open(**settings)
    (storage,) = bookie.state.storages.all
    for ledger in range(10):
        await bench.add_all(ledger, range(4000), b"")
    await bench.checkpoint()
    storage.locations.compact()  # out of the write-ahead log, so that files can be compared
    for ledger in range(1, 10):
        bookie.delete_ledger(ledger)
    await bench.checkpoint()
    return bookie


async def test_index_compaction_drops_the_rows_of_deleted_ledgers(bench: Bench) -> None:
    bookie = await index_rows_of_the_dead(bench)
    (storage,) = bookie.state.storages.all
    tables = table_bytes(bench)
    bookie.upkeep.collector.compact_indexes([0])
    await bench.until(lambda: not bookie.upkeep.collector.is_compacting_index(0))
    assert table_bytes(bench) < 0.2 * tables
    assert bookie.stats.collection.indexes == 1
    assert storage.locations.count() == 4000
    assert storage.locations.last_entry(0) == 3999
    assert await bench.read(0, 3999) == (OK, b"3999 ")
    bench.reopen()
    assert await bench.read(0, 17) == (OK, b"17 ")
    assert await bench.read(1, 0) == (1, b"")


def table_bytes(bench: Bench) -> int:
    return bytes_of(bench.directory / "ledgers/current/locations", "*.sst")


async def test_adds_and_reads_go_on_beside_an_index_compaction(bench: Bench) -> None:
    bookie = await index_rows_of_the_dead(bench)
    bookie.upkeep.collector.compact_indexes([0])
    number = 0
    while bookie.upkeep.collector.is_compacting_index(0) or number < 20:
        assert await bench.add(100, number) == OK
        assert await bench.read(0, number) == (OK, b"%d " % number)
        await bench.checkpoint()
        number += 1
    (storage,) = bookie.state.storages.all
    assert storage.locations.last_entry(100) == number - 1


async def test_index_compaction_runs_at_its_interval(bench: Bench) -> None:
    settings = CollectionSettings(wait_s=0.01, minor_threshold=0, major_threshold=0, index_interval_s=0.001)
    bench.file_system.share = lambda _path: 0.99
    bookie = bench.open(collection=settings, disk=DiskSettings(interval_s=0.01))
    rounds = bookie.stats.collection.rounds.ok
    await bench.until(lambda: rounds.count >= 3)
    assert bookie.stats.collection.indexes == 0, "the disk is too full for it"
    bench.file_system.share = lambda _path: 0.1
    await bench.until(lambda: bookie.stats.collection.indexes >= 2)
    bookie = bench.reopen(collection=replace(settings, index_interval_s=0))
    rounds = bookie.stats.collection.rounds.ok
    await bench.until(lambda: rounds.count >= 3)
    assert bookie.stats.collection.indexes == 0


# What is due.


@pytest.mark.parametrize(("allowed", "compactions"), [(True, 1), (False, 0)])
async def test_forced_compaction_runs_when_its_interval_is_off(
    bench: Bench, *, allowed: bool, compactions: int
) -> None:
    settings = CollectionSettings(minor_interval_s=-1, major_interval_s=0, force_allowed=allowed)
    bookie = bench.open(collection=settings)
    await compact(bench, ForcedRound(major=True))
    assert bookie.stats.collection.majors == compactions


async def test_compactions_are_not_due_when_the_wall_clock_jumps(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = CollectionSettings(
        wait_s=0.01, minor_interval_s=3600, major_interval_s=3600, index_interval_s=3600
    )
    bookie = bench.open(collection=settings)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 86_400)
    rounds = bookie.stats.collection.rounds.ok
    begun = rounds.count
    await bench.until(lambda: rounds.count >= begun + 3)
    stats = bookie.stats.collection
    assert (stats.minors, stats.majors, stats.indexes) == (0, 0, 0)


async def test_compaction_begins_no_log_after_its_time_limit(bench: Bench) -> None:
    """The log that is begun is finished, no other one is."""
    bookie = bench.open(collection=replace(FAST, minor_threshold=0.9))
    for number in range(3):
        for ledger in range(10):
            await bench.add_all(10 * number + ledger, range(20), b"x" * 500)
        bench.reopen(collection=replace(FAST, minor_threshold=0.9))
    for ledger in range(30):
        if ledger % 10:
            bench.running.delete_ledger(ledger)
    await bench.checkpoint()
    bookie = bench.reopen(collection=replace(FAST, minor_threshold=0.9, minor_time_s_max=1e-9))
    assert await freed_by(bench) == 0
    bookie = bench.reopen(collection=replace(FAST, minor_threshold=0.9))
    assert await freed_by(bench) > 3 * 9 * 20 * 500 * 0.9
    assert bookie.stats.collection.minors == 1


async def freed_by(bench: Bench) -> int:
    await compact(bench)
    return bench.running.stats.collection.reclaimed_by_compaction


@pytest.mark.parametrize(("by_whole_logs", "logs"), [(True, 1), (False, 3)])
async def test_compaction_joins_small_logs_when_measured_by_whole_logs(
    bench: Bench, *, by_whole_logs: bool, logs: int
) -> None:
    """One ledger in nine of each log is dead: a small share of the log, a large one of a log's full size."""
    settings = replace(FAST, minor_threshold=0.5, by_whole_logs=by_whole_logs)
    for number in range(3):
        bench.reopen(collection=settings)
        for ledger in range(9):
            await bench.add_all(10 * number + ledger, range(20), b"x" * 500)
    bench.reopen(collection=settings)
    for number in range(3):
        bench.running.delete_ledger(10 * number)
    await bench.checkpoint()
    before = set(log_ids(logs_of(bench)))
    await compact(bench)
    assert len(before & set(log_ids(logs_of(bench)))) == (0 if by_whole_logs else logs)
