"""ManagedCursor: taking, reading from storage, redelivery."""

from __future__ import annotations

import asyncio
import functools
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookkeeper.ensembles.stored_entries import decode_run
from broker.managed_ledger.managed_cursor import ManagedCursor
from broker.managed_ledger.managed_ledger import ManagedLedger
from foundation.model.entry import Entry
from foundation.model.errors import PersistenceError
from foundation.model.position import EARLIEST, LATEST, Position
from tests.broker.managed_ledger.ledger_fakes import (
    EVERY_CHANGE,
    PLENTY,
    World,
    at,
    fill,
    numbers,
    read,
    read_all,
    recorder,
    until,
)


async def test_new_cursor_starts_at_its_initial_position(world: World) -> None:
    ledger = await world.open(entries_per_ledger_max=4)
    await fill(ledger, 10)
    earliest = await ledger.cursors.open("earliest", EARLIEST)
    latest = await ledger.cursors.open("latest", LATEST)
    given_place = await ledger.cursors.open("place", at(ledger, 6))
    assert await read_all(earliest) == list(range(10))
    assert await read_all(latest) == []
    assert await read_all(given_place) == [6, 7, 8, 9]
    assert (earliest.backlog, latest.backlog, given_place.backlog) == (10, 0, 4)
    await fill(ledger, 1)
    assert await read_all(latest) == [10]


async def test_take_keeps_both_limits_and_ends_at_ledger_ends(world: World) -> None:
    ledger = await world.open(entries_per_ledger_max=4)
    cursor = ledger.cursors.open_non_durable("r", EARLIEST)
    cursor.activate()
    await fill(ledger, 6)
    size = recorder(ledger).added[0].size
    assert numbers(cursor.take(3, PLENTY)) == [0, 1, 2]
    assert numbers(cursor.take(3, PLENTY)) == [3]
    assert numbers(cursor.take(3, 1)) == [4]
    assert cursor.read_position == at(ledger, 5)
    cursor.rewind()
    assert numbers(cursor.take(9, 2 * size)) == [0, 1]
    assert ledger.stats.entries_read == 7


async def test_take_returns_nothing_when_no_entry_is_in_memory(world: World) -> None:
    ledger = await world.open()
    await fill(ledger, 3)
    ledger = await world.after_crash().open()
    cursor = ledger.cursors.open_non_durable("r", EARLIEST)
    assert cursor.has_more()
    assert cursor.take(10, PLENTY) == []
    assert world.ledgers.batch_reads[-1][2] > 0


async def test_acknowledged_entries_are_not_taken_again(world: World) -> None:
    ledger = await world.open()
    cursor = await ledger.cursors.open("s", EARLIEST)
    cursor.activate()
    await fill(ledger, 10)
    cursor.acknowledge([at(ledger, index) for index in (0, 3, 4, 8)])
    assert numbers(cursor.take(100, PLENTY)) == [1, 2, 5, 6, 7, 9]
    assert [entry.expected_reads for entry in recorder(ledger).added[3:5]] == [-2, -2] or [
        entry.expected_reads for entry in recorder(ledger).added[3:5]
    ] == [0, 0]
    cursor.rewind()
    assert numbers(cursor.take(2, PLENTY)) == [1, 2]
    cursor.acknowledge([at(ledger, index) for index in (5, 6, 7, 9)])
    assert cursor.take(100, PLENTY) == []
    assert not cursor.has_more()
    assert cursor.backlog == 2


async def test_acknowledged_tail_is_skipped_without_storage(world: World) -> None:
    ledger = await world.open()
    cursor = await ledger.cursors.open("s", EARLIEST)
    await fill(ledger, 5)
    ledger = await world.after_crash().open()
    cursor = ledger.cursors.by_name["s"]
    cursor.acknowledge([at(ledger, index) for index in (1, 2, 3, 4)])
    assert numbers(await read(cursor)) == [0]
    reads = len(world.ledgers.batch_reads)
    assert await read(cursor) == []
    assert not cursor.has_more()
    assert len(world.ledgers.batch_reads) == reads


async def test_storage_read_fills_the_cache_for_readers_behind(world: World) -> None:
    ledger = await world.open()
    await fill(ledger, 10)
    ledger = await world.after_crash().open()
    first, second = (ledger.cursors.open_non_durable(name, EARLIEST) for name in "ab")
    first.activate()
    second.activate()
    entries = await read(first, 4)
    assert numbers(entries) == [0, 1, 2, 3]
    assert [entry.expected_reads for entry in entries] == [2] * 4
    reads = len(world.ledgers.batch_reads)
    assert second.take(10, PLENTY) == entries
    assert len(world.ledgers.batch_reads) == reads
    assert (await read(first, 4))[0].expected_reads == 2
    assert (await read(second, 4))[0] in ledger.cache.ledgers[entries[0].ledger_id].entries.values()


async def test_expected_reads_of_fetched_entries_equal_the_cursor_rank(world: World) -> None:
    ledger = await world.open()
    await fill(ledger, 10)
    ledger = await world.after_crash().open()
    behind, ahead = (
        ledger.cursors.open_non_durable("b", EARLIEST),
        ledger.cursors.open_non_durable("a", at(ledger, 5)),
    )
    behind.activate()
    ahead.activate()
    assert (await read(behind, 2))[0].expected_reads == 1
    assert (await read(ahead, 2))[0].expected_reads == 2


async def test_inactive_cursor_does_not_fill_the_cache(world: World) -> None:
    ledger = await world.open()
    await fill(ledger, 5)
    ledger = await world.after_crash().open()
    assert await read_all(ledger.cursors.open_non_durable("r", EARLIEST)) == [0, 1, 2, 3, 4]
    assert ledger.cache.entries == 0


async def test_readers_of_the_same_range_share_one_storage_read(world: World) -> None:
    ledger = await world.open()
    await fill(ledger, 10)
    ledger = await world.after_crash().open()
    cursors = [ledger.cursors.open_non_durable(f"r{number}", EARLIEST) for number in range(3)]
    ready: list[ManagedCursor] = []
    for cursor in cursors:
        cursor.request(10, PLENTY, partial(ready.append, cursor))
        assert cursor.reading
    await until(lambda: len(ready) == 3)
    assert len([item for item in world.ledgers.batch_reads if item[2] == 10]) == 1
    assert [numbers(cursor.take(10, PLENTY)) for cursor in cursors] == [list(range(10))] * 3


async def test_request_ends_before_an_acknowledged_entry_and_includes_cached_ones(world: World) -> None:
    ledger = await world.open()
    await fill(ledger, 10)
    ledger = await world.after_crash().open()
    filler = ledger.cursors.open_non_durable("filler", at(ledger, 6))
    filler.activate()
    await read(filler, 2)
    cursor = ledger.cursors.open_non_durable("r", EARLIEST)
    cursor.acknowledge([at(ledger, 3)])
    assert numbers(await read(cursor)) == [0, 1, 2]
    asked = len(world.ledgers.batch_reads)
    assert numbers(await read(cursor)) == [4, 5, 6, 7, 8, 9]
    ledger_id = ledger.ledgers.infos()[0].ledger_id
    assert world.ledgers.batch_reads[asked:] == [(ledger_id, 4, 2), (ledger_id, 8, 2)]


async def test_entries_taken_from_the_cache_during_a_read_are_not_taken_again(world: World) -> None:
    ledger = await world.open()
    await fill(ledger, 10)
    ledger = await world.after_crash().open()
    cursor = ledger.cursors.open_non_durable("r", EARLIEST)
    world.ledgers.hold()
    ready = asyncio.Event()
    cursor.request(10, PLENTY, ready.set)
    stored = world.ledgers.stored[ledger.ledgers.infos()[0].ledger_id]
    ledger_id = ledger.ledgers.infos()[0].ledger_id
    entries: list[Entry] = []
    decode_run(ledger_id, 0, [stored[number] for number in range(4)], entries)
    ledger.cache.insert_run(entries, 1, world.clock.now)
    assert numbers(cursor.take(10, PLENTY)) == [0, 1, 2, 3]
    world.ledgers.answer_at_once_again()
    await ready.wait()
    assert numbers(cursor.take(10, PLENTY)) == [4, 5, 6, 7, 8, 9]


async def test_request_reads_as_many_entries_as_fit_its_bytes(world: World) -> None:
    ledger = await world.open()
    await fill(ledger, 50, size=1000)
    ledger = await world.after_crash().open()
    cursor = ledger.cursors.open_non_durable("r", EARLIEST)
    assert len(await read(cursor, 100, 10_000)) == 9
    cursor.rewind()
    assert len(await read(cursor, 100, 1)) == 1


async def test_request_takes_several_batch_reads_when_the_client_limits_bytes(world: World) -> None:
    ledger = await world.open()
    await fill(ledger, 20, size=1000)
    ledger = await world.after_crash().open(read_bytes_max=5000)
    cursor = ledger.cursors.open_non_durable("r", EARLIEST)
    assert numbers(await read(cursor)) == list(range(20))
    assert len([item for item in world.ledgers.batch_reads if item[1] in (0, 4, 8, 12, 16)]) >= 5


async def test_request_reports_the_error_and_may_be_repeated_when_a_read_failed(world: World) -> None:
    ledger = await world.open()
    await fill(ledger, 3)
    ledger = await world.after_crash().open()
    cursor = ledger.cursors.open_non_durable("r", EARLIEST)
    world.ledgers.refuse_reads = 101
    with pytest.raises(PersistenceError):
        await read(cursor)
    assert ledger.stats.read_errors == 1
    world.ledgers.refuse_reads = 0
    assert await read_all(cursor) == [0, 1, 2]


async def test_read_begun_before_a_rewind_is_dropped(world: World) -> None:
    ledger = await world.open()
    await fill(ledger, 10)
    ledger = await world.after_crash().open()
    cursor = ledger.cursors.open_non_durable("r", EARLIEST)
    assert numbers(await read(cursor, 5)) == [0, 1, 2, 3, 4]
    ready = asyncio.Event()
    cursor.request(5, PLENTY, ready.set)
    cursor.rewind()
    await ready.wait()
    assert cursor.take(5, PLENTY) == []
    assert await read_all(cursor) == list(range(10))


async def test_read_entries_stay_with_the_cursor_when_the_cache_evicts_them(world: World) -> None:
    ledger = await world.open()
    await fill(ledger, 4)
    ledger = await world.after_crash().open()
    cursor = ledger.cursors.open_non_durable("r", EARLIEST)
    cursor.activate()
    ready = asyncio.Event()
    cursor.request(10, PLENTY, ready.set)
    await ready.wait()
    ledger.cache.clear()
    assert numbers(cursor.take(3, PLENTY)) == [0, 1, 2]
    assert numbers(cursor.take(3, PLENTY)) == [3]


async def test_redelivery_takes_cached_entries_and_reads_the_rest(world: World) -> None:
    ledger = await world.open(entries_per_ledger_max=6)
    await fill(ledger, 10)
    ledger = await world.after_crash().open()
    cursor = await ledger.cursors.open("s", EARLIEST)
    filler = ledger.cursors.open_non_durable("filler", at(ledger, 8))
    filler.activate()
    await read(filler)
    cached = ledger.cache.entries
    cursor.acknowledge([at(ledger, 2)])
    wanted = [at(ledger, index) for index in (9, 8, 4, 5, 6, 0, 2)] + [Position(99, 0)]
    found, missing = cursor.redelivery.read_cached(wanted)
    assert sorted(numbers(found)) == [8, 9]
    assert sorted(missing) == [at(ledger, index) for index in (0, 4, 5, 6)]
    answers: list[list[Entry]] = []
    cursor.redelivery.request(missing, answers.append)
    await until(lambda: answers)
    assert numbers(answers[0]) == [0, 4, 5, 6]
    assert cursor.last_error is None
    assert ledger.cache.entries == cached, "a cursor without a consumer caches nothing"
    cursor.redelivery.request([Position(99, 0)], answers.append)
    assert len(answers) == 1
    await until(lambda: len(answers) == 2)
    assert answers[1] == []


async def test_redelivery_reads_are_cached_for_one_read_and_shared(world: World) -> None:
    ledger = await world.open()
    await fill(ledger, 10)
    ledger = await world.after_crash().open()
    cursors = [ledger.cursors.open_non_durable(name, EARLIEST) for name in "abc"]
    for cursor in cursors:
        cursor.activate()
    asked = len(world.ledgers.batch_reads)
    answers: list[list[Entry]] = []
    wanted = [[at(ledger, index) for index in indexes] for indexes in ([2, 3, 4, 7], [3, 4, 5], [7])]
    for cursor, positions in zip(cursors, wanted, strict=True):
        cursor.redelivery.request(positions, answers.append)
    await until(lambda: len(answers) == 3)
    assert [numbers(entries) for entries in answers] == [[2, 3, 4, 7], [7], [3, 4, 5]]
    assert [item[1:] for item in world.ledgers.batch_reads[asked:]] == [(2, 3), (7, 1), (5, 1)]
    assert ledger.cache.entries == 5
    assert {entry.expected_reads for entries in answers for entry in entries} == {1}
    assert [cursor.reader.reads.coalesced_entries for cursor in cursors] == [0, 2, 1]
    found, missing = cursors[2].redelivery.read_cached(wanted[0])
    assert (numbers(found), missing) == ([2, 3, 4, 7], [])


async def test_redelivery_read_returns_the_entries_that_could_be_read(world: World) -> None:
    ledger = await world.open()
    await fill(ledger, 5)
    ledger_id = ledger.ledgers.current.ledger_id
    ledger = await world.after_crash().open()
    del world.ledgers.stored[ledger_id][3]
    cursor = ledger.cursors.open_non_durable("r", EARLIEST)
    answers: list[list[Entry]] = []
    cursor.redelivery.request([Position(ledger_id, 1), Position(ledger_id, 3)], answers.append)
    await until(lambda: answers)
    assert numbers(answers[0]) == [1]
    assert isinstance(cursor.redelivery.last_error, PersistenceError)


def has_entries(ledger: ManagedLedger, count: int) -> bool:
    return ledger.ledgers.entries == count


steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 5)),
        st.tuples(st.just("take"), st.integers(1, 6)),
        st.tuples(st.just("ack"), st.integers(0, 30)),
        st.tuples(st.just("evict")),
        st.tuples(st.just("rewind")),
        st.tuples(st.just("crash")),
    ),
    max_size=25,
)


@given(steps)
@settings(max_examples=60, deadline=None)
def test_cursor_reads_every_unacknowledged_entry_in_order_in_any_history(
    script: list[tuple[Any, ...]],
) -> None:
    # A crash keeps what the storage has at that moment, also in the middle of a ledger roll.
    async def run() -> None:
        world = World()
        ledger = await world.open(entries_per_ledger_max=4, mark_delete_rate=EVERY_CHANGE)
        cursor = await ledger.cursors.open("s", EARLIEST)
        cursor.activate()
        total = 0
        acknowledged: set[int] = set()
        place = 0
        for name, *arguments in script:
            if name == "add":
                for number in range(total, total + arguments[0]):
                    ledger.writer.add([b"%d" % number], 1, number)
                total += arguments[0]
                await until(functools.partial(has_entries, ledger, total))
            elif name == "take":
                expected = [n for n in range(place, total) if n not in acknowledged]
                got = numbers(await read(cursor, arguments[0]))
                assert got == expected[: len(got)]
                assert got or not expected
                place = got[-1] + 1 if got else total
            elif name == "ack" and arguments[0] < total:
                fresh = arguments[0] not in acknowledged
                assert cursor.acknowledge([at(ledger, arguments[0])]) == fresh
                acknowledged.add(arguments[0])
            elif name == "evict":
                ledger.cache.clear()
            elif name == "rewind":
                cursor.rewind()
                place = 0
            elif name == "crash":
                await cursor.store.flush()
                world = world.copy_after_crash()
                ledger = await world.open(entries_per_ledger_max=4, mark_delete_rate=EVERY_CHANGE)
                cursor = ledger.cursors.by_name["s"]
                cursor.activate()
                place = 0
            assert cursor.backlog == total - len(acknowledged)
            assert ledger.ledgers.entries == total

    asyncio.run(run())


@pytest.mark.parametrize("with_entries", [False, True])
@pytest.mark.parametrize("active", [False, True])
async def test_entries_given_back_are_taken_again(world: World, active: bool, with_entries: bool) -> None:
    ledger = await world.open()
    await fill(ledger, 8)
    ledger = await world.after_crash().open()
    cursor = ledger.cursors.open_non_durable("r", EARLIEST)
    if active:
        cursor.activate()
    taken = await read(cursor)
    cursor.give_back(taken[5].position, taken[5:] if with_entries else ())
    assert cursor.read_position == at(ledger, 5)
    if active:
        assert ledger.reading_cursors.active.position("r") == at(ledger, 5)
    if with_entries:
        ledger.cache.clear()
        assert numbers(cursor.take(2, PLENTY)) == [5, 6]
        assert ledger.stats.entries_read == 7
    assert await read_all(cursor) == ([7] if with_entries else [5, 6, 7])
