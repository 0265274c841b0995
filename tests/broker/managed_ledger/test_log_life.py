"""Ends of a log and of its ledgers, and what is there when it is opened again."""

from __future__ import annotations

import asyncio

import pytest

from broker.ledger_client.memory import MemoryLedgerClient
from broker.managed_ledger.managed_ledger import LogState
from broker.metadata.sqlite_metadata_store import SqliteMetadataStore
from broker.model.errors import (
    LedgerFenced,
    MetadataError,
    NoSuchEntry,
    NoSuchLedger,
    PersistenceError,
    ServiceNotReady,
    TopicTerminated,
)
from broker.model.position import EARLIEST, LATEST, Position
from protocol.ledger_metadata import ledger_key
from tests.broker.managed_ledger.ledger_fakes import (
    WRITE_FAILED,
    RefusingStore,
    World,
    all_bodies,
    fill,
    indexes,
    recorder,
    shape,
    until,
)


async def test_terminate_lets_adds_under_way_finish_and_refuses_others_for_ever(world):
    log = await world.open()
    await fill(log, 2)
    world.ledgers.hold()
    log.add(b"under way", 1, "under way")
    ending = asyncio.ensure_future(log.terminate())
    await asyncio.sleep(0)
    with pytest.raises(TopicTerminated):
        log.add(b"x", 1, None)
    world.ledgers.answer_at_once_again()
    last = Position(log.current_ledger_id, 2)
    assert await ending == last
    assert log.is_terminated
    assert await log.terminate() == last
    await log.close()
    again = await world.after_crash().open()
    assert again.record.terminated == last
    assert again.last_confirmed == last
    with pytest.raises(TopicTerminated):
        again.add(b"x", 1, None)
    assert len(await all_bodies(again)) == 3


async def test_close_waits_for_adds_and_an_open_afterwards_needs_no_recovery(world):
    log = await world.open()
    cursor = await log.open_cursor("s", EARLIEST)
    await fill(log, 3)
    world.ledgers.hold()
    log.add(b"under way", 1, "under way")
    cursor.acknowledge([Position(log.current_ledger_id, 0)])
    closing = asyncio.ensure_future(log.close())
    await asyncio.sleep(0)
    with pytest.raises(ServiceNotReady):
        log.add(b"x", 1, None)
    world.ledgers.answer_at_once_again()
    await closing
    assert recorder(log).contexts[-1] == "under way"
    assert log.state is LogState.CLOSED
    again = await world.after_crash().open()
    assert world.ledgers.recovery_adds == []
    assert world.ledgers.fenced == set()
    assert len(await all_bodies(again)) == 4
    assert again.cursors["s"].mark_delete_position.entry_id == 0
    await fill(again, 1)
    assert indexes(again) == [4]


async def test_adds_that_wait_for_a_ledger_fail_when_the_log_is_closed():
    world = World(RefusingStore())
    log = await world.open()
    log.add(b"x", 1, "waits")
    await log.close()
    assert recorder(log).failed + recorder(log).contexts == ["waits"]
    assert log.last_confirmed.entry_id == len(recorder(log).added) - 1


async def test_after_a_crash_everything_confirmed_is_there_and_the_old_writer_is_fenced(world):
    log = await world.open(entries_per_ledger_max=4)
    await fill(log, 6)
    old_ledger = log.current_ledger_id
    again = await world.after_crash().open(entries_per_ledger_max=4)
    assert shape(again) == [4, 2, 0]
    assert [bytes(body) for body in await all_bodies(again)] == [b"%010d" % n for n in range(6)]
    assert old_ledger in world.ledgers.fenced
    log.add(b"from the past", 1, "stale")
    await until(lambda: recorder(log).failed)
    await fill(again, 1)
    assert indexes(again) == [6]
    assert again.last_confirmed == Position(again.current_ledger_id, 0)


async def test_the_index_goes_on_after_any_number_of_crashes(world):
    log = await world.open()
    await fill(log, 3)
    for _ in range(3):
        log = await world.after_crash().open()
    await fill(log, 1)
    assert indexes(log) == [3]
    log = await world.after_crash().open()
    await fill(log, 1)
    assert indexes(log) == [4]


async def test_recovery_writes_back_what_was_not_known_to_be_confirmed(world):
    log = await world.open()
    world.ledgers.hold()
    for number in range(5):
        log.add(b"%d" % number, 1, number)
    await until(lambda: len(world.ledgers.held) == 5)
    ledger_id = log.current_ledger_id
    world.ledgers.held = None
    del world.ledgers.stored[ledger_id][3]
    again = await world.after_crash().open()
    assert shape(again) == [3, 0]
    assert world.ledgers.recovery_adds == [(ledger_id, 0), (ledger_id, 1), (ledger_id, 2)]


async def test_a_ledger_closed_by_its_metadata_is_not_longer_than_that(world):
    """An entry behind a failed one may be in the bookie; the close cut it off."""
    log = await world.open()
    await fill(log, 2)
    ledger_id = log.current_ledger_id
    world.ledgers.refuse = lambda ledger, entry_id: WRITE_FAILED if entry_id == 2 else 0
    log.add(b"refused", 1, None)
    log.add(b"stored behind it", 1, None)
    await until(lambda: len(recorder(log).failed) == 2)
    assert 3 in world.ledgers.stored[ledger_id]
    world.ledgers.refuse = lambda ledger, entry_id: 0
    await fill(log, 1)
    again = await world.after_crash().open()
    assert shape(again) == [2, 1, 0]


async def test_a_ledger_that_was_listed_but_never_made_is_dropped(world):
    log = await world.open()
    await fill(log, 1)
    await world.metadata.delete(ledger_key(log.current_ledger_id))
    del world.ledgers.stored[log.current_ledger_id]
    again = await world.after_crash().open()
    assert shape(again) == [0]
    await fill(again, 1)


async def test_an_empty_ledger_leaves_nothing_behind(world):
    log = await world.open()
    await fill(log, 1)
    for _ in range(3):
        world.ledgers.refuse = lambda ledger, entry_id: WRITE_FAILED
        log.add(b"x", 1, "refused")
        failed = len(recorder(log).failed)
        await until(lambda before=failed: len(recorder(log).failed) > before)
        await until(lambda: log.state is LogState.OPEN)
    world.ledgers.refuse = lambda ledger, entry_id: 0
    await fill(log, 1)
    assert shape(log) == [1, 1]
    await log.close()
    kept = [info.ledger_id for info in log.ledger_infos()]
    listed = await world.metadata.children("/ledgers/00/0000")
    assert listed == sorted(f"L{ledger_id:04}" for ledger_id in kept)


async def test_ledgers_that_every_durable_cursor_has_consumed_are_removed(world):
    log = await world.open(keep=False, entries_per_ledger_max=3)
    slow, fast = await log.open_cursor("slow", EARLIEST), await log.open_cursor("fast", EARLIEST)
    reader = log.new_non_durable_cursor("reader", EARLIEST)
    await fill(log, 10)
    ids = [info.ledger_id for info in log.ledger_infos()]
    fast.acknowledge_cumulative(log.last_confirmed)
    slow.acknowledge_cumulative(Position(ids[0], 1))
    assert [info.ledger_id for info in log.ledger_infos()] == ids
    slow.acknowledge_cumulative(Position(ids[1], 0))
    assert [info.ledger_id for info in log.ledger_infos()] == ids[1:]
    slow.acknowledge_cumulative(Position(ids[2], 2))
    assert [info.ledger_id for info in log.ledger_infos()] == ids[3:]
    await until(lambda: world.ledgers.deleted == ids[:3])
    assert await world.metadata.get(ledger_key(ids[0])) is None
    assert reader.has_more()
    assert reader.take(10, 1000)[0].position == Position(ids[3], 0)
    again = await world.after_crash().open()
    assert shape(again) == [1, 0]
    assert again.cursors["slow"].backlog == 1


async def test_retention_keeps_consumed_ledgers_for_a_time(world):
    log = await world.open(entries_per_ledger_max=2)
    log.keep_ms = 1000
    await fill(log, 5)
    world.wall += 999
    assert log.trim(world.wall, without_cursors=True) == []
    world.wall += 1
    assert len(log.trim(world.wall, without_cursors=True)) == 2


async def test_retention_keeps_so_many_bytes(world):
    log = await world.open(entries_per_ledger_max=2)
    await fill(log, 9)
    log.keep_bytes = log.total_size - 1
    assert len(log.trim(world.wall, without_cursors=True)) == 1
    log.keep_bytes = 0
    log.trim(world.wall, without_cursors=True)
    assert shape(log) == [1]


async def test_a_log_without_cursors_waits_for_the_periodic_check(world):
    log = await world.open(keep=False, entries_per_ledger_max=2)
    await fill(log, 4)
    log.add(b"begins the third ledger", 1, None)
    await until(lambda: len(recorder(log).added) == 5)
    assert shape(log) == [2, 2, 1]
    log.new_non_durable_cursor("reader", EARLIEST)
    assert log.trim(world.wall) == []
    log.trim(world.wall, without_cursors=True)
    assert shape(log) == [1]


async def test_a_log_without_any_entry_left_is_empty(world):
    log = await world.open(keep=False, rollover_ns_max=1000)
    await fill(log, 4)
    world.clock.advance(1000)
    log.roll_if_due(world.clock.now)
    await until(lambda: log.state is LogState.OPEN)
    log.trim(world.wall, without_cursors=True)
    assert log.last_confirmed == Position(log.current_ledger_id, -1)
    assert log.number_of_entries == 0


async def test_a_removal_that_a_crash_interrupted_is_finished_at_the_next_open(world):
    log = await world.open(keep=False, entries_per_ledger_max=2)
    cursor = await log.open_cursor("s", EARLIEST)
    await fill(log, 5)
    first = log.ledger_infos()[0].ledger_id
    deleted: list[str] = []
    plain_delete = world.metadata.delete

    async def crash_before(key: str, expected: int | None = None) -> None:
        deleted.append(key)
        raise MetadataError("crashed here")

    world.metadata.delete = crash_before
    cursor.acknowledge_cumulative(Position(first, 1))
    await until(lambda: deleted)
    await cursor.flush()
    world.metadata.delete = plain_delete
    assert world.ledgers.deleted == []
    await world.after_crash().open()
    assert world.ledgers.deleted == [first]
    assert await world.metadata.get(ledger_key(first)) is None


async def test_delete_leaves_no_key_and_no_entry(world):
    log = await world.open(entries_per_ledger_max=2)
    await log.open_cursor("a/b", EARLIEST)
    await fill(log, 5)
    await log.delete()
    assert sorted(world.metadata._values) == ["/ledgers/idgen"]
    assert world.ledgers.stored == {}
    fresh = await world.open()
    assert fresh.cursors == {}
    assert fresh.number_of_entries == 0


async def test_a_delete_that_a_crash_interrupted_is_finished_at_the_next_open(world):
    log = await world.open()
    await log.open_cursor("s", EARLIEST)
    await fill(log, 2)
    plain_delete = world.metadata.delete

    async def crash_before(key: str, expected: int | None = None) -> None:
        raise MetadataError("crashed here")

    world.metadata.delete = crash_before
    with pytest.raises(MetadataError):
        await log.delete()
    world.metadata.delete = plain_delete
    again = await world.after_crash().open()
    assert (again.number_of_entries, again.cursors) == (0, {})
    assert world.ledgers.stored == {}


async def test_single_entries_are_read_through_the_cache_and_do_not_fill_it(world):
    log = await world.open()
    await fill(log, 3)
    log = await world.after_crash().open()
    position = Position(log.ledger_infos()[0].ledger_id, 1)
    assert bytes((await log.read_entry(position)).body) == b"0000000001"
    assert log.cache.entries == 0
    with pytest.raises(NoSuchEntry):
        await log.read_entry(Position(position.ledger_id, 3))
    with pytest.raises(NoSuchLedger):
        await log.read_entry(Position(77, 0))


async def test_an_entry_whose_bytes_have_changed_is_not_served(world):
    log = await world.open()
    await fill(log, 3)
    ledger_id = log.current_ledger_id
    log = await world.after_crash().open()
    stored = bytearray(world.ledgers.stored[ledger_id][1])
    stored[-1] ^= 1
    world.ledgers.stored[ledger_id][1] = bytes(stored)
    with pytest.raises(PersistenceError, match=f"{ledger_id}:1"):
        await log.read_entry(Position(ledger_id, 1))


@pytest.mark.parametrize("older", range(8))
async def test_find_newest_searches_all_ledgers(world, older):
    log = await world.open(entries_per_ledger_max=3)
    await fill(log, 7)
    found = await log.find_newest(lambda entry: int(bytes(entry.body)) < older)
    expected = log.ledgers.position_at(older - 1) if older else None
    assert found == expected


async def test_a_hundred_logs_open_together_on_a_durable_store(tmp_path):
    store = SqliteMetadataStore(tmp_path / "m.db")
    world = World(store)
    logs = await asyncio.gather(*(world.open(f"t/n/persistent/{number}") for number in range(100)))
    await asyncio.gather(*(log.open_cursor("s", LATEST) for log in logs))
    for log in logs:
        log.add(b"x", 1, None)
    await until(lambda: all(recorder(log).added for log in logs))
    await store.close()
    again = World(SqliteMetadataStore(tmp_path / "m.db"), world.ledgers)
    for number in range(100):
        log = await again.open(f"t/n/persistent/{number}")
        assert log.number_of_entries == 1
        assert log.cursors["s"].backlog == 1
    await again.metadata.close()


async def test_a_property_is_durable_when_it_has_been_set(world):
    log = await world.open()
    await fill(log, 1)
    await log.set_property("owner", "somebody")
    again = await world.after_crash().open()
    assert again.properties == {"owner": "somebody", "index": "0"}


async def test_an_empty_log_can_be_terminated(world):
    log = await world.open()
    await log.terminate()
    assert log.record.terminated == log.last_confirmed
    again = await world.after_crash().open()
    assert again.is_terminated
    assert again.number_of_entries == 0


async def test_it_works_the_same_on_the_client_that_is_used_without_a_disk():
    ledgers = MemoryLedgerClient(asyncio.get_running_loop().call_soon)
    world = World(None, ledgers)
    log = await world.open(entries_per_ledger_max=4)
    await fill(log, 6)
    again = await world.after_crash().open()
    assert shape(again) == [4, 2, 0]
    assert await all_bodies(again) == [b"%010d" % number for number in range(6)]
    log.add(b"from the past", 1, "stale")
    await until(lambda: recorder(log).failed)
    assert isinstance(recorder(log).errors[0], LedgerFenced)
    assert log.state is LogState.FENCED
