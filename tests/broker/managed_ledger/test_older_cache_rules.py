"""Pulsar's cache rules before PIP-430: invalidation by position, backlogged cursors, backlog caching."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.managed_ledger.backlog_caching import followed_closely
from broker.managed_ledger.managed_ledger import ManagedLedger
from entry_cache.cache_stats import Reason
from foundation.model.entry import Entry
from foundation.model.position import EARLIEST, LATEST
from tests.broker.managed_ledger.ledger_fakes import PLENTY, World, at, fill, numbers, read, turns, until


def present(ledger: ManagedLedger) -> list[int]:
    """The numbers of the cached entries."""
    positions = [at(ledger, index) for index in range(ledger.ledgers.entries)]
    return [index for index, position in enumerate(positions) if ledger.cache.peek(*position) is not None]


async def an_older_log(world: World, **settings: Any) -> ManagedLedger:
    """Opens a log with the rules of before PIP-430; `settings` are fields of `ManagedLedgerSettings`."""
    return await world.open(expected_reads=False, **settings)


@pytest.mark.parametrize("entries_per_ledger", [1000, 4])
async def test_entries_before_the_slowest_read_position_are_invalidated(
    world: World, entries_per_ledger: int
) -> None:
    ledger = await an_older_log(world, entries_per_ledger_max=entries_per_ledger)
    quick, slow = [await ledger.cursors.open(name, EARLIEST) for name in ("quick", "slow")]
    quick.activate()
    slow.activate()
    await fill(ledger, 10)
    assert {entry.expected_reads for entry in cached_entries(ledger)} == {None}
    while quick.take(3, PLENTY):
        pass
    await turns()
    assert present(ledger) == list(range(10))
    assert numbers(slow.take(3, PLENTY)) == [0, 1, 2]
    await turns()
    assert present(ledger) == list(range(3, 10))
    slow.acknowledge_cumulative(at(ledger, 7))
    await turns()
    assert present(ledger) == [8, 9], "reading goes on behind what is acknowledged"
    slow.deactivate()
    await turns()
    assert present(ledger) == []
    assert ledger.environment.caches.stats.evicted_entries[Reason.INVALIDATE] == 10


def cached_entries(ledger: ManagedLedger) -> list[Entry]:
    return [entry for entry in ledger.environment.caches.policy if entry.cached]


async def test_invalidation_uses_the_slowest_mark_delete_when_so_configured(world: World) -> None:
    ledger = await an_older_log(world, track_mark_delete=True)
    first, second = [await ledger.cursors.open(name, EARLIEST) for name in "ab"]
    first.activate()
    second.activate()
    await fill(ledger, 10)
    for cursor in (first, second):
        assert len(cursor.take(10, PLENTY)) == 10
    await turns()
    assert present(ledger) == list(range(10))
    first.acknowledge_cumulative(at(ledger, 6))
    second.acknowledge([at(ledger, index) for index in (0, 1, 2, 5)])
    await turns()
    assert present(ledger) == list(range(2, 10))
    second.deactivate()
    await turns()
    assert present(ledger) == list(range(6, 10))


async def test_positions_invalidate_nothing_when_expected_reads_are_counted(world: World) -> None:
    ledger = await world.open()
    cursor = await ledger.cursors.open("s", EARLIEST)
    cursor.activate()
    await fill(ledger, 10)
    assert len(cursor.take(10, PLENTY)) == 10
    cursor.deactivate()
    await turns()
    assert present(ledger) == list(range(10))


async def test_cursor_moves_of_one_turn_cause_one_invalidation(world: World) -> None:
    ledger = await an_older_log(world)
    cursor = await ledger.cursors.open("s", EARLIEST)
    cursor.activate()
    await fill(ledger, 10)
    invalidated: list[object] = []
    invalidate = ledger.cache.invalidate_before

    class Counting:
        """The cache, with a count of its invalidations."""

        def __getattr__(self, name: str) -> object:
            return getattr(ledger.cache, name)

        def invalidate_before(self, position: object) -> object:
            invalidated.append(position)
            return invalidate(position)  # type: ignore[arg-type]

    ledger.reading_cursors._cache = Counting()  # type: ignore[assignment]
    for _ in range(6):
        cursor.take(1, PLENTY)
    cursor.deactivate()
    cursor.activate()
    await turns()
    assert invalidated == [at(ledger, 6)]
    assert present(ledger) == [6, 7, 8, 9]
    ledger.cache.clear()
    cursor.take(1, PLENTY)
    cursor.rewind()
    await turns()
    assert len(invalidated) == 1, "an empty cache has nothing to invalidate"


async def test_backlogged_cursor_is_inactive_until_it_has_caught_up(world: World) -> None:
    ledger = await an_older_log(world, cursor_backlogged_threshold=5)
    quick, slow, alone = [await ledger.cursors.open(name, EARLIEST) for name in ("quick", "slow", "alone")]
    quick.activate()
    slow.activate()
    await fill(ledger, 10)
    quick.take(8, PLENTY)
    quick.acknowledge_cumulative(at(ledger, 7))
    assert (quick.backlog, slow.backlog, alone.backlog) == (2, 10, 10)
    await turns()
    assert present(ledger) == list(range(10))
    ledger.cursors.check_backlogs()
    await turns()
    assert present(ledger) == [8, 9]
    assert list(ledger.reading_cursors.active) == ["quick"]
    slow.acknowledge_cumulative(at(ledger, 4))
    assert slow.backlog == 5
    ledger.cursors.check_backlogs()
    assert sorted(ledger.reading_cursors.active) == ["quick", "slow"]
    assert slow.active
    slow.deactivate()
    ledger.cursors.check_backlogs()
    assert list(ledger.reading_cursors.active) == ["quick"], "nobody reads with it"


async def test_storage_reads_are_cached_for_cursors_that_others_follow_closely(world: World) -> None:
    ledger = await an_older_log(world)
    await fill(ledger, 20)
    for name, start in (("a", 0), ("b", 2), ("c", 12)):
        await ledger.cursors.open(name, at(ledger, start))
    options = {
        "backlog_cursors_min_for_caching": 2,
        "backlog_entries_min_for_caching": 5,
        "backlog_between_cursors_max_for_caching": 3,
        "cursor_backlogged_threshold": 1000,
    }
    world = world.after_crash()
    ledger = await an_older_log(world, **options)
    a, b, c = (ledger.cursors.by_name[name] for name in "abc")
    for cursor in (a, b, c):
        cursor.activate()
    assert numbers(await read(a, 2)) == [0, 1]
    assert present(ledger) == []
    ledger.cursors.check_backlogs()
    assert [cursor.caches_reads for cursor in (a, b, c)] == [True, True, False]
    assert numbers(await read(c, 2)) == [12, 13]
    assert present(ledger) == []
    entries = await read(a, 4)
    assert numbers(entries) == [2, 3, 4, 5]
    assert {entry.expected_reads for entry in entries} == {1}
    reads = len(world.ledgers.batch_reads)
    assert b.take(4, PLENTY) == entries
    assert len(world.ledgers.batch_reads) == reads
    answers: list[list[Entry]] = []
    b.redelivery.request([at(ledger, 16)], answers.append)
    c.redelivery.request([at(ledger, 18)], answers.append)
    await until(lambda: len(answers) == 2)
    assert 16 in present(ledger)
    assert 18 not in present(ledger)
    a.deactivate()
    assert not a.caches_reads


async def test_non_durable_cursor_does_not_count_for_backlog_caching(world: World) -> None:
    ledger = await an_older_log(world, backlog_cursors_min_for_caching=2, backlog_entries_min_for_caching=1)
    await fill(ledger, 5)
    durable = await ledger.cursors.open("s", EARLIEST)
    reader = ledger.cursors.open_non_durable("r", EARLIEST)
    ledger.cursors.check_backlogs()
    assert (durable.caches_reads, reader.caches_reads) == (False, False)


async def test_check_backlogs_does_nothing_when_expected_reads_are_counted(world: World) -> None:
    ledger = await world.open(cursor_backlogged_threshold=1, backlog_cursors_min_for_caching=1)
    cursor = await ledger.cursors.open("s", EARLIEST)
    cursor.activate()
    await ledger.cursors.open("t", LATEST)
    await fill(ledger, 5)
    ledger.cursors.check_backlogs()
    assert list(ledger.reading_cursors.active) == ["s"]
    assert not cursor.caches_reads


@given(
    st.dictionaries(st.integers(0, 20), st.integers(0, 40), max_size=12),
    st.integers(-1, 5),
    st.integers(0, 30),
    st.integers(0, 10),
)
def test_followed_closely_agrees_with_comparing_all_pairs(
    backlogs: dict[int, int], cursors_min: int, entries_min: int, between: int
) -> None:
    behind = {name: backlog for name, backlog in backlogs.items() if backlog >= entries_min}
    expected = {
        name
        for name, backlog in behind.items()
        if 0 < cursors_min <= sum(abs(backlog - other) <= between for other in behind.values())
    }
    found = followed_closely(backlogs, cursors_min=cursors_min, entries_min=entries_min, between_max=between)
    assert found == expected
