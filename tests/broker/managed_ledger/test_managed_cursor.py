"""A cursor: taking, reading from storage, replaying, seeking, and what survives of its acks."""

from __future__ import annotations

import asyncio
import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import MetadataError, PersistenceError, TooManyRequests
from broker.ledger_client.ledger_ids import LedgerIds
from broker.managed_ledger.inflight_reads_limiter import InflightReadsLimiter
from broker.managed_ledger.managed_cursor import ManagedCursor
from broker.managed_ledger.managed_ledger import Ground, ManagedLedger
from broker.metadata.sqlite_metadata_store import SqliteMetadataStore
from broker.model.entry import Entry
from broker.model.position import EARLIEST, LATEST, Position
from tests.broker.managed_ledger.ledger_fakes import World, fill, recorder, until

PLENTY = 1 << 30
EVERY_CHANGE = 0.0


@pytest.fixture
async def world():
    return World()


def numbers(entries: list[Entry]) -> list[int]:
    return [int(bytes(entry.body)) for entry in entries]


async def read(cursor: ManagedCursor, entries_max: int = 100, bytes_max: int = PLENTY) -> list[Entry]:
    taken = cursor.take(entries_max, bytes_max)
    if not taken and cursor.has_more():
        arrived = asyncio.Event()
        cursor.request(entries_max, bytes_max, arrived.set)
        await arrived.wait()
        if cursor.last_error is not None:
            raise cursor.last_error
        taken = cursor.take(entries_max, bytes_max)
    return taken


async def read_all(cursor: ManagedCursor, entries_max: int = 100) -> list[int]:
    found: list[int] = []
    while cursor.has_more():
        found += numbers(await read(cursor, entries_max))
    return found


def at(log: ManagedLedger, index: int) -> Position:
    return log.ledgers.position_at(index)


async def test_a_cursor_starts_where_it_was_told_to(world):
    log = await world.open(entries_per_ledger_max=4)
    await fill(log, 10)
    earliest = await log.open_cursor("earliest", EARLIEST)
    latest = await log.open_cursor("latest", LATEST)
    given_place = await log.open_cursor("place", at(log, 6))
    assert await read_all(earliest) == list(range(10))
    assert await read_all(latest) == []
    assert await read_all(given_place) == [6, 7, 8, 9]
    assert (earliest.backlog, latest.backlog, given_place.backlog) == (10, 0, 4)
    await fill(log, 1)
    assert await read_all(latest) == [10]


async def test_an_existing_cursor_keeps_its_place(world):
    log = await world.open()
    cursor = await log.open_cursor("s", LATEST, {"a": 1})
    await fill(log, 2)
    assert await log.open_cursor("s", EARLIEST) is cursor
    assert cursor.backlog == 2
    log = await world.after_crash().open()
    again = await log.open_cursor("s", LATEST)
    assert again.backlog == 2
    assert again.properties == {"a": 1}
    assert again.durable


async def test_two_who_open_the_same_new_cursor_get_one(world):
    log = await world.open()
    one, other = await asyncio.gather(log.open_cursor("s", EARLIEST), log.open_cursor("s", EARLIEST))
    assert one is other


async def test_take_minds_both_limits_and_ledger_ends(world):
    log = await world.open(entries_per_ledger_max=4)
    cursor = log.new_non_durable_cursor("r", EARLIEST)
    cursor.activate()
    await fill(log, 6)
    size = recorder(log).added[0].size
    assert numbers(cursor.take(3, PLENTY)) == [0, 1, 2]
    assert numbers(cursor.take(3, PLENTY)) == [3]
    assert numbers(cursor.take(3, 1)) == [4]
    assert cursor.read_position == at(log, 5)
    cursor.rewind()
    assert numbers(cursor.take(9, 2 * size)) == [0, 1]
    assert log.stats.entries_read == 7


async def test_take_answers_nothing_rather_than_wait(world):
    log = await world.open()
    await fill(log, 3)
    log = await world.after_crash().open()
    cursor = log.new_non_durable_cursor("r", EARLIEST)
    assert cursor.has_more()
    assert cursor.take(10, PLENTY) == []
    assert world.ledgers.batch_reads[-1][2] > 0


async def test_acknowledged_entries_are_not_taken_again(world):
    log = await world.open()
    cursor = await log.open_cursor("s", EARLIEST)
    cursor.activate()
    await fill(log, 10)
    cursor.acknowledge([at(log, index) for index in (0, 3, 4, 8)])
    assert numbers(cursor.take(100, PLENTY)) == [1, 2, 5, 6, 7, 9]
    assert [entry.expected_reads for entry in recorder(log).added[3:5]] == [-2, -2] or [
        entry.expected_reads for entry in recorder(log).added[3:5]
    ] == [0, 0]
    cursor.rewind()
    assert numbers(cursor.take(2, PLENTY)) == [1, 2]
    cursor.acknowledge([at(log, index) for index in (5, 6, 7, 9)])
    assert cursor.take(100, PLENTY) == []
    assert not cursor.has_more()
    assert cursor.backlog == 2


async def test_a_tail_of_acknowledged_entries_is_read_over_without_storage(world):
    log = await world.open()
    cursor = await log.open_cursor("s", EARLIEST)
    await fill(log, 5)
    log = await world.after_crash().open()
    cursor = log.cursors["s"]
    cursor.acknowledge([at(log, index) for index in (1, 2, 3, 4)])
    assert numbers(await read(cursor)) == [0]
    reads = len(world.ledgers.batch_reads)
    assert await read(cursor) == []
    assert not cursor.has_more()
    assert len(world.ledgers.batch_reads) == reads


async def test_a_storage_read_fills_the_cache_for_the_readers_behind(world):
    log = await world.open()
    await fill(log, 10)
    log = await world.after_crash().open()
    first, second = (log.new_non_durable_cursor(name, EARLIEST) for name in "ab")
    first.activate()
    second.activate()
    entries = await read(first, 4)
    assert numbers(entries) == [0, 1, 2, 3]
    assert [entry.expected_reads for entry in entries] == [2] * 4
    reads = len(world.ledgers.batch_reads)
    assert second.take(10, PLENTY) == entries
    assert len(world.ledgers.batch_reads) == reads
    assert (await read(first, 4))[0].expected_reads == 2
    assert (await read(second, 4))[0] in log.cache._ledgers[entries[0].ledger_id].entries.values()


async def test_the_rank_of_the_reading_cursor_counts_not_the_number_of_cursors(world):
    log = await world.open()
    await fill(log, 10)
    log = await world.after_crash().open()
    behind, ahead = log.new_non_durable_cursor("b", EARLIEST), log.new_non_durable_cursor("a", at(log, 5))
    behind.activate()
    ahead.activate()
    assert (await read(behind, 2))[0].expected_reads == 1
    assert (await read(ahead, 2))[0].expected_reads == 2


async def test_a_reader_that_is_not_active_does_not_fill_the_cache(world):
    log = await world.open()
    await fill(log, 5)
    log = await world.after_crash().open()
    assert await read_all(log.new_non_durable_cursor("r", EARLIEST)) == [0, 1, 2, 3, 4]
    assert log.cache.entries == 0


async def test_readers_of_the_same_range_share_one_storage_read(world):
    log = await world.open()
    await fill(log, 10)
    log = await world.after_crash().open()
    cursors = [log.new_non_durable_cursor(f"r{number}", EARLIEST) for number in range(3)]
    ready: list[ManagedCursor] = []
    for cursor in cursors:
        cursor.request(10, PLENTY, lambda cursor=cursor: ready.append(cursor))
        assert cursor.reading
    await until(lambda: len(ready) == 3)
    assert len([item for item in world.ledgers.batch_reads if item[2] == 10]) == 1
    assert [numbers(cursor.take(10, PLENTY)) for cursor in cursors] == [list(range(10))] * 3


async def test_a_request_ends_where_the_cache_or_an_ack_makes_reading_useless(world):
    log = await world.open()
    await fill(log, 10)
    log = await world.after_crash().open()
    filler = log.new_non_durable_cursor("filler", at(log, 6))
    filler.activate()
    await read(filler)
    cursor = log.new_non_durable_cursor("r", EARLIEST)
    cursor.acknowledge([at(log, 3)])
    assert numbers(await read(cursor)) == [0, 1, 2]
    assert numbers(await read(cursor)) == [4, 5]
    assert numbers(cursor.take(10, PLENTY)) == [6, 7, 8, 9]


async def test_a_request_asks_for_as_many_entries_as_fit_its_bytes(world):
    log = await world.open()
    await fill(log, 50, size=1000)
    log = await world.after_crash().open()
    cursor = log.new_non_durable_cursor("r", EARLIEST)
    assert len(await read(cursor, 100, 10_000)) == 9
    cursor.rewind()
    assert len(await read(cursor, 100, 1)) == 1


async def test_one_request_is_several_batch_reads_when_the_client_says_so(world):
    log = await world.open()
    await fill(log, 20, size=1000)
    log = await world.after_crash().open(read_bytes_max=5000)
    cursor = log.new_non_durable_cursor("r", EARLIEST)
    assert numbers(await read(cursor)) == list(range(20))
    assert len([item for item in world.ledgers.batch_reads if item[1] in (0, 4, 8, 12, 16)]) >= 5


async def test_a_failed_read_says_so_and_may_be_tried_again(world):
    log = await world.open()
    await fill(log, 3)
    log = await world.after_crash().open()
    cursor = log.new_non_durable_cursor("r", EARLIEST)
    world.ledgers.refuse_reads = 101
    with pytest.raises(PersistenceError):
        await read(cursor)
    assert log.stats.read_errors == 1
    world.ledgers.refuse_reads = 0
    assert await read_all(cursor) == [0, 1, 2]


async def test_a_read_that_a_rewind_overtakes_is_not_taken_for_the_new_place(world):
    log = await world.open()
    await fill(log, 10)
    log = await world.after_crash().open()
    cursor = log.new_non_durable_cursor("r", EARLIEST)
    assert numbers(await read(cursor, 5)) == [0, 1, 2, 3, 4]
    ready = asyncio.Event()
    cursor.request(5, PLENTY, ready.set)
    cursor.rewind()
    await ready.wait()
    assert cursor.take(5, PLENTY) == []
    assert await read_all(cursor) == list(range(10))


async def test_what_was_read_stays_with_the_cursor_though_the_cache_lets_it_go(world):
    log = await world.open()
    await fill(log, 4)
    log = await world.after_crash().open()
    cursor = log.new_non_durable_cursor("r", EARLIEST)
    cursor.activate()
    ready = asyncio.Event()
    cursor.request(10, PLENTY, ready.set)
    await ready.wait()
    log.cache.clear()
    assert numbers(cursor.take(3, PLENTY)) == [0, 1, 2]
    assert numbers(cursor.take(3, PLENTY)) == [3]


async def test_reads_wait_for_the_budget_of_reads_in_flight(world):
    limiter = InflightReadsLimiter(1, 1, 1_000)
    old = world.ground
    world.ground = Ground(
        old.metadata, old.ledgers, LedgerIds(old.metadata), old.caches, old.turn, old.now_ns, old.wall_ms,
        old.dirty_cursors, limiter,
    )  # fmt: skip
    log = await world.open()
    await fill(log, 5)
    log.cache.clear()
    first, second, third = (log.new_non_durable_cursor(name, EARLIEST) for name in "abc")
    ready: list[str] = []
    first.request(5, PLENTY, lambda: ready.append("a"))
    second.request(5, PLENTY, lambda: ready.append("b"))
    third.request(5, PLENTY, lambda: ready.append("c"))
    await until(lambda: len(ready) == 2)
    assert ready == ["a", "c"] or ready == ["c", "a"]
    assert isinstance(third.last_error, TooManyRequests)
    first.take(4, PLENTY)
    assert second.reading
    first.take(4, PLENTY)
    await until(lambda: len(ready) == 3)
    assert numbers(second.take(5, PLENTY)) == [0, 1, 2, 3, 4]
    assert limiter.remaining_bytes == 1
    first.rewind()
    first.request(5, PLENTY, lambda: ready.append("a"))
    second.rewind()
    second.request(5, PLENTY, lambda: ready.append("b"))
    await until(lambda: ready[3:] == ["a"])
    world.clock.advance(1_000)
    world.ground.tick(world.clock.now)
    assert isinstance(second.last_error, TooManyRequests)
    assert not second.reading
    await first.close()
    assert limiter.remaining_bytes == 1


async def test_replay_finds_what_is_cached_and_reads_the_rest(world):
    log = await world.open(entries_per_ledger_max=6)
    await fill(log, 10)
    log = await world.after_crash().open()
    cursor = await log.open_cursor("s", EARLIEST)
    filler = log.new_non_durable_cursor("filler", at(log, 8))
    filler.activate()
    await read(filler)
    cached = log.cache.entries
    cursor.acknowledge([at(log, 2)])
    wanted = [at(log, index) for index in (9, 8, 4, 5, 6, 0, 2)] + [Position(99, 0)]
    found, missing = cursor.get_positions(wanted)
    assert sorted(numbers(found)) == [8, 9]
    assert sorted(missing) == [at(log, index) for index in (0, 4, 5, 6)]
    answers: list[list[Entry]] = []
    cursor.request_positions(missing, answers.append)
    await until(lambda: answers)
    assert numbers(answers[0]) == [0, 4, 5, 6]
    assert cursor.last_error is None
    assert log.cache.entries == cached
    cursor.request_positions([Position(99, 0)], answers.append)
    assert len(answers) == 1
    await until(lambda: len(answers) == 2)
    assert answers[1] == []


async def test_replay_answers_what_could_be_read(world):
    log = await world.open()
    await fill(log, 5)
    ledger_id = log.current_ledger_id
    log = await world.after_crash().open()
    del world.ledgers.stored[ledger_id][3]
    cursor = log.new_non_durable_cursor("r", EARLIEST)
    answers: list[list[Entry]] = []
    cursor.request_positions([Position(ledger_id, 1), Position(ledger_id, 3)], answers.append)
    await until(lambda: answers)
    assert numbers(answers[0]) == [1]
    assert isinstance(cursor.last_error, PersistenceError)


async def test_nothing_acknowledged_is_left_to_read(world):
    log = await world.open(entries_per_ledger_max=4)
    cursor = await log.open_cursor("s", EARLIEST)
    await fill(log, 10)
    cursor.acknowledge_cumulative(at(log, 5))
    assert cursor.read_position == at(log, 6)
    cursor.acknowledge_cumulative(LATEST)
    assert not cursor.has_more()
    assert cursor.backlog == 0
    await fill(log, 1)
    assert await read_all(cursor) == [10]


async def test_positions_that_do_not_exist_are_ignored(world):
    log = await world.open()
    cursor = await log.open_cursor("s", EARLIEST)
    await fill(log, 3)
    ledger_id = log.current_ledger_id
    wild = [
        (ledger_id, 3),
        (ledger_id, -1),
        (77, 0),
        (-1, -1),
        LATEST,
        (2**64 - 1, 2**64 - 1),
        (ledger_id, 2**64 - 1),
    ]
    assert cursor.acknowledge(wild) == 0
    assert not cursor.acknowledge_batch(Position(ledger_id, 3), (0,), 3)
    cursor.acknowledge_cumulative(Position(ledger_id, -1))
    cursor.acknowledge_cumulative(Position(ledger_id, 2**64 - 1))
    assert cursor.backlog == 3
    cursor.acknowledge_cumulative(Position(ledger_id, 1), (0b110,))
    assert cursor.backlog == 2
    assert cursor.ack_set_of((ledger_id, 1)) == (0b110,)


async def test_seek_goes_back_and_forgets_acks_behind_it(world):
    log = await world.open(entries_per_ledger_max=4)
    cursor = await log.open_cursor("s", EARLIEST)
    await fill(log, 10)
    await read_all(cursor)
    cursor.acknowledge_cumulative(at(log, 4))
    cursor.acknowledge([at(log, 7)])
    await cursor.reset(at(log, 2))
    assert cursor.backlog == 8
    assert await read_all(cursor) == list(range(2, 10))
    again = (await world.after_crash().open()).cursors["s"]
    assert again.backlog == 8
    await again.reset(EARLIEST)
    assert again.backlog == 10
    await again.reset(LATEST)
    assert again.backlog == 0
    assert not again.has_more()
    await again.reset(Position(10**6, 5))
    assert again.backlog == 0


async def test_deleting_a_cursor_forgets_it_and_its_snapshot(world):
    log = await world.open()
    cursor = await log.open_cursor("a/b c", EARLIEST)
    cursor.activate()
    await fill(log, 1)
    cursor.acknowledge([log.last_confirmed])
    await log.delete_cursor("a/b c")
    await log.delete_cursor("a/b c")
    assert len(log.active) == 0
    assert (await world.after_crash().open()).cursors == {}
    assert (await log.open_cursor("a/b c", EARLIEST)).backlog == 1


async def test_every_change_is_written_once_per_turn_when_nothing_throttles(world):
    log = await world.open(mark_delete_rate=EVERY_CHANGE)
    cursor = await log.open_cursor("s", EARLIEST)
    await fill(log, 20)
    before = cursor._snapshots.writes
    durable: list[int] = []
    for index in range(10):
        cursor.acknowledge([at(log, index)])
        cursor.on_durable(lambda index=index: durable.append(index))
    assert durable == []
    await until(lambda: len(durable) == 10)
    assert durable == list(range(10))
    assert cursor._snapshots.writes == before + 1
    assert (await world.after_crash().open()).cursors["s"].backlog == 10
    cursor.on_durable(lambda: durable.append(99))
    assert durable[-1] == 99


async def test_a_throttled_cursor_writes_at_most_once_per_interval_and_then_everything(world):
    log = await world.open(mark_delete_rate=1.0)
    cursor = await log.open_cursor("s", EARLIEST)
    await fill(log, 20)
    world.clock.advance(1_000_000_000)
    cursor.acknowledge([at(log, 0)])
    await until(lambda: cursor._snapshots.writes == 2)
    for index in range(1, 5):
        cursor.acknowledge([at(log, index)])
        for _ in range(5):
            await asyncio.sleep(0)
    assert cursor._snapshots.writes == 2
    assert len(world.ground.dirty_cursors) == 1
    world.ground.tick(world.clock.now)
    assert cursor._snapshots.writes == 2
    world.clock.advance(1_000_000_000)
    world.ground.tick(world.clock.now)
    await until(lambda: cursor._snapshots.writes == 3)
    assert len(world.ground.dirty_cursors) == 0
    assert (await world.after_crash().open()).cursors["s"].backlog == 15


async def test_a_snapshot_that_could_not_be_written_is_written_later(world):
    log = await world.open(mark_delete_rate=EVERY_CHANGE)
    cursor = await log.open_cursor("s", EARLIEST)
    await fill(log, 5)
    plain_put = world.metadata.put

    async def full(key: str, value: bytes, expected: int | None = None) -> int:
        raise MetadataError("disk full")

    world.metadata.put = full
    durable: list[int] = []
    cursor.acknowledge([at(log, 0)])
    cursor.on_durable(lambda: durable.append(1))
    await until(lambda: len(world.ground.dirty_cursors) == 1)
    assert durable == []
    with pytest.raises(MetadataError):
        await cursor.reset(at(log, 3))
    world.metadata.put = plain_put
    world.ground.tick(world.clock.now)
    await until(lambda: durable)
    assert (await world.after_crash().open()).cursors["s"].backlog == 2


async def test_a_new_cursor_that_could_not_be_written_does_not_exist(world):
    log = await world.open()
    plain_put = world.metadata.put

    async def full(key: str, value: bytes, expected: int | None = None) -> int:
        raise MetadataError("disk full")

    world.metadata.put = full
    with pytest.raises(MetadataError):
        await log.open_cursor("s", EARLIEST)
    assert log.cursors == {}
    world.metadata.put = plain_put
    assert (await log.open_cursor("s", EARLIEST)).durable


async def test_holes_and_partly_acknowledged_batches_survive_a_crash(world):
    log = await world.open(entries_per_ledger_max=4, mark_delete_rate=EVERY_CHANGE)
    cursor = await log.open_cursor("s", EARLIEST)
    await fill(log, 10)
    cursor.acknowledge([at(log, index) for index in (0, 2, 3, 6, 9)])
    cursor.acknowledge_batch(at(log, 1), (0b101,), 3)
    await cursor.flush()
    again_log = await world.after_crash().open()
    again = again_log.cursors["s"]
    assert again.mark_delete_position == at(log, 0)
    assert [index for index in range(10) if again.is_acknowledged(at(log, index))] == [0, 2, 3, 6, 9]
    assert again.ack_set_of(at(log, 1)) == (0b101,)
    assert again.partly_acknowledged == 1
    assert again.backlog == 5
    assert await read_all(again) == [1, 4, 5, 7, 8]


async def test_closing_writes_what_the_throttle_held_back(world):
    log = await world.open(mark_delete_rate=0.001)
    cursor = await log.open_cursor("s", EARLIEST)
    await fill(log, 5)
    for index in range(4):
        cursor.acknowledge([at(log, index)])
        await asyncio.sleep(0)
    await cursor.close()
    assert not cursor.active
    assert (await world.after_crash().open()).cursors["s"].backlog == 1


async def test_acks_that_were_durable_survive_on_sqlite(tmp_path):
    store = SqliteMetadataStore(tmp_path / "m.db")
    world = World(store)
    log = await world.open(mark_delete_rate=EVERY_CHANGE)
    cursor = await log.open_cursor("s", EARLIEST)
    for number in range(10):
        log.add(b"%d" % number, 1, number)
    await until(lambda: len(recorder(log).added) == 10)
    cursor.acknowledge([at(log, index) for index in (0, 1, 5)])
    durable = asyncio.Event()
    cursor.on_durable(durable.set)
    await durable.wait()
    reopened = SqliteMetadataStore(tmp_path / "m.db")
    again = await World(reopened, world.ledgers).open()
    assert [index for index in range(10) if again.cursors["s"].is_acknowledged(at(again, index))] == [0, 1, 5]
    await reopened.close()
    await store.close()


def has_entries(log: ManagedLedger, count: int) -> bool:
    return log.number_of_entries == count


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
def test_whatever_happens_every_unacknowledged_entry_is_read_in_order(script):
    # A crash keeps what the storage has at that moment, also in the middle of a ledger roll.
    async def run() -> None:
        world = World()
        log = await world.open(entries_per_ledger_max=4, mark_delete_rate=EVERY_CHANGE)
        cursor = await log.open_cursor("s", EARLIEST)
        cursor.activate()
        total = 0
        acknowledged: set[int] = set()
        place = 0
        for name, *arguments in script:
            if name == "add":
                for number in range(total, total + arguments[0]):
                    log.add(b"%d" % number, 1, number)
                total += arguments[0]
                await until(functools.partial(has_entries, log, total))
            elif name == "take":
                expected = [n for n in range(place, total) if n not in acknowledged]
                got = numbers(await read(cursor, arguments[0]))
                assert got == expected[: len(got)]
                assert got or not expected
                place = got[-1] + 1 if got else total
            elif name == "ack" and arguments[0] < total:
                fresh = arguments[0] not in acknowledged
                assert cursor.acknowledge([at(log, arguments[0])]) == fresh
                acknowledged.add(arguments[0])
            elif name == "evict":
                log.cache.clear()
            elif name == "rewind":
                cursor.rewind()
                place = 0
            elif name == "crash":
                await cursor.flush()
                world = world.copy_after_crash()
                log = await world.open(entries_per_ledger_max=4, mark_delete_rate=EVERY_CHANGE)
                cursor = log.cursors["s"]
                cursor.activate()
                place = 0
            assert cursor.backlog == total - len(acknowledged)
            assert log.number_of_entries == total

    asyncio.run(run())


@pytest.mark.parametrize("with_entries", [False, True])
@pytest.mark.parametrize("active", [False, True])
async def test_what_was_not_handed_over_is_taken_again(world, active, with_entries):
    log = await world.open()
    await fill(log, 8)
    log = await world.after_crash().open()
    cursor = log.new_non_durable_cursor("r", EARLIEST)
    if active:
        cursor.activate()
    taken = await read(cursor)
    cursor.give_back(taken[5].position, taken[5:] if with_entries else ())
    assert cursor.read_position == at(log, 5)
    if active:
        assert log.active.position("r") == at(log, 5)
    if with_entries:
        log.cache.clear()
        assert numbers(cursor.take(2, PLENTY)) == [5, 6]
        assert log.stats.entries_read == 7
    assert await read_all(cursor) == ([7] if with_entries else [5, 6, 7])


async def test_properties_are_kept_with_the_position(world):
    log = await world.open(mark_delete_rate=EVERY_CHANGE)
    cursor = await log.open_cursor("dedup", EARLIEST)
    await fill(log, 3)
    cursor.acknowledge_cumulative(at(log, 1), properties={"producer": 7})
    await cursor.flush()
    assert (await world.after_crash().open()).cursors["dedup"].properties == {"producer": 7}
    cursor.acknowledge_cumulative(at(log, 1), properties={"producer": 8})
    await cursor.flush()
    assert (await world.after_crash().open()).cursors["dedup"].properties == {"producer": 8}
