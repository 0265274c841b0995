"""Logs whose expected reads are not counted: what the slowest reader no longer needs goes, what lags behind does not
count, and who reads from storage for others caches it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.entry_cache.cache_stats import Reason
from broker.managed_ledger.backlog_caching import followed_closely
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.model.entry import Entry
from broker.model.position import EARLIEST, LATEST
from tests.broker.managed_ledger.ledger_fakes import PLENTY, World, at, fill, numbers, read, turns, until


def present(log: ManagedLedger) -> list[int]:
    """Which entries of the log are cached."""
    positions = [at(log, index) for index in range(log.number_of_entries)]
    return [index for index, position in enumerate(positions) if log.cache.peek(*position) is not None]


async def an_older_log(world: World, **settings: object) -> ManagedLedger:
    return await world.open(expected_reads=False, **settings)


@pytest.mark.parametrize("entries_per_ledger", [1000, 4])
async def test_what_stands_before_the_slowest_read_position_goes(world, entries_per_ledger):
    log = await an_older_log(world, entries_per_ledger_max=entries_per_ledger)
    quick, slow = [await log.open_cursor(name, EARLIEST) for name in ("quick", "slow")]
    quick.activate()
    slow.activate()
    await fill(log, 10)
    assert {entry.expected_reads for entry in cached_entries(log)} == {None}
    while quick.take(3, PLENTY):
        pass
    await turns()
    assert present(log) == list(range(10))
    assert numbers(slow.take(3, PLENTY)) == [0, 1, 2]
    await turns()
    assert present(log) == list(range(3, 10))
    slow.acknowledge_cumulative(at(log, 7))
    await turns()
    assert present(log) == [8, 9], "reading goes on behind what is acknowledged"
    slow.deactivate()
    await turns()
    assert present(log) == []
    assert log.ground.caches.stats.evicted_entries[Reason.INVALIDATE] == 10


def cached_entries(log: ManagedLedger) -> list[Entry]:
    return [entry for entry in log.ground.caches.policy if entry.cached]


async def test_by_setting_the_slowest_mark_delete_position_counts_and_its_entry_stays(world):
    log = await an_older_log(world, track_mark_delete=True)
    first, second = [await log.open_cursor(name, EARLIEST) for name in "ab"]
    first.activate()
    second.activate()
    await fill(log, 10)
    for cursor in (first, second):
        assert len(cursor.take(10, PLENTY)) == 10
    await turns()
    assert present(log) == list(range(10))
    first.acknowledge_cumulative(at(log, 6))
    second.acknowledge([at(log, index) for index in (0, 1, 2, 5)])
    await turns()
    assert present(log) == list(range(2, 10))
    second.deactivate()
    await turns()
    assert present(log) == list(range(6, 10))


async def test_with_expected_reads_nothing_is_invalidated_by_position(world):
    log = await world.open()
    cursor = await log.open_cursor("s", EARLIEST)
    cursor.activate()
    await fill(log, 10)
    assert len(cursor.take(10, PLENTY)) == 10
    cursor.deactivate()
    await turns()
    assert present(log) == list(range(10))


async def test_many_moves_are_one_task_and_a_reader_that_comes_back_in_time_loses_nothing(world):
    log = await an_older_log(world)
    cursor = await log.open_cursor("s", EARLIEST)
    cursor.activate()
    await fill(log, 10)
    invalidated: list[object] = []
    invalidate = log.cache.invalidate_before

    class Counting:
        """The log's cache, with a count of its invalidations."""

        def __getattr__(self, name: str) -> object:
            return getattr(log.cache, name)

        def invalidate_before(self, position: object) -> object:
            invalidated.append(position)
            return invalidate(position)  # type: ignore[arg-type]

    log.readers._cache = Counting()  # type: ignore[assignment]
    for _ in range(6):
        cursor.take(1, PLENTY)
    cursor.deactivate()
    cursor.activate()
    await turns()
    assert invalidated == [at(log, 6)]
    assert present(log) == [6, 7, 8, 9]
    log.cache.clear()
    cursor.take(1, PLENTY)
    cursor.rewind()
    await turns()
    assert len(invalidated) == 1, "an empty cache has nothing to invalidate"


async def test_a_reader_far_behind_does_not_count_until_it_has_caught_up(world):
    log = await an_older_log(world, cursor_backlogged_threshold=5)
    quick, slow, alone = [await log.open_cursor(name, EARLIEST) for name in ("quick", "slow", "alone")]
    quick.activate()
    slow.activate()
    await fill(log, 10)
    quick.take(8, PLENTY)
    quick.acknowledge_cumulative(at(log, 7))
    assert (quick.backlog, slow.backlog, alone.backlog) == (2, 10, 10)
    await turns()
    assert present(log) == list(range(10))
    log.check_backlogs()
    await turns()
    assert present(log) == [8, 9]
    assert list(log.readers.active) == ["quick"]
    slow.acknowledge_cumulative(at(log, 4))
    assert slow.backlog == 5
    log.check_backlogs()
    assert sorted(log.readers.active) == ["quick", "slow"]
    assert slow.active
    slow.deactivate()
    log.check_backlogs()
    assert list(log.readers.active) == ["quick"], "nobody reads with it"


async def test_storage_reads_are_cached_only_for_cursors_that_others_follow(world):
    log = await an_older_log(world)
    await fill(log, 20)
    for name, start in (("a", 0), ("b", 2), ("c", 12)):
        await log.open_cursor(name, at(log, start))
    options = {
        "backlog_cursors_min_for_caching": 2,
        "backlog_entries_min_for_caching": 5,
        "backlog_between_cursors_max_for_caching": 3,
        "cursor_backlogged_threshold": 1000,
    }
    world = world.after_crash()
    log = await an_older_log(world, **options)
    a, b, c = (log.cursors[name] for name in "abc")
    for cursor in (a, b, c):
        cursor.activate()
    assert numbers(await read(a, 2)) == [0, 1]
    assert present(log) == []
    log.check_backlogs()
    assert [cursor.caches_reads for cursor in (a, b, c)] == [True, True, False]
    assert numbers(await read(c, 2)) == [12, 13]
    assert present(log) == []
    entries = await read(a, 4)
    assert numbers(entries) == [2, 3, 4, 5]
    assert {entry.expected_reads for entry in entries} == {1}
    reads = len(world.ledgers.batch_reads)
    assert b.take(4, PLENTY) == entries
    assert len(world.ledgers.batch_reads) == reads
    answers: list[list[Entry]] = []
    b.request_positions([at(log, 16)], answers.append)
    c.request_positions([at(log, 18)], answers.append)
    await until(lambda: len(answers) == 2)
    assert 16 in present(log)
    assert 18 not in present(log)
    a.deactivate()
    assert not a.caches_reads


async def test_a_reader_in_memory_neither_follows_nor_is_followed(world):
    log = await an_older_log(world, backlog_cursors_min_for_caching=2, backlog_entries_min_for_caching=1)
    await fill(log, 5)
    durable = await log.open_cursor("s", EARLIEST)
    reader = log.new_non_durable_cursor("r", EARLIEST)
    log.check_backlogs()
    assert (durable.caches_reads, reader.caches_reads) == (False, False)


async def test_with_expected_reads_backlogs_change_nothing(world):
    log = await world.open(cursor_backlogged_threshold=1, backlog_cursors_min_for_caching=1)
    cursor = await log.open_cursor("s", EARLIEST)
    cursor.activate()
    await log.open_cursor("t", LATEST)
    await fill(log, 5)
    log.check_backlogs()
    assert list(log.readers.active) == ["s"]
    assert not cursor.caches_reads


@given(
    st.dictionaries(st.integers(0, 20), st.integers(0, 40), max_size=12),
    st.integers(-1, 5),
    st.integers(0, 30),
    st.integers(0, 10),
)
def test_who_is_followed_is_what_comparing_each_with_each_gives(backlogs, cursors_min, entries_min, between):
    behind = {name: backlog for name, backlog in backlogs.items() if backlog >= entries_min}
    expected = {
        name
        for name, backlog in behind.items()
        if 0 < cursors_min <= sum(abs(backlog - other) <= between for other in behind.values())
    }
    found = followed_closely(backlogs, cursors_min=cursors_min, entries_min=entries_min, between_max=between)
    assert found == expected
