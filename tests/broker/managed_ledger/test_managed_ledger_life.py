"""Closing, trimming, terminating and deleting a managed ledger, and opening it again."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from bookkeeper.client.memory import MemoryLedgerClient
from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.sqlite_metadata_store import SqliteMetadataStore
from broker.managed_ledger.ledger_writer import ManagedLedgerState
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.managed_ledger.managed_ledger_info import cursor_key, managed_ledger_key
from foundation.model.errors import (
    LedgerFenced,
    MetadataError,
    NoSuchEntry,
    NoSuchLedger,
    PersistenceError,
    ServiceNotReady,
    TopicTerminated,
)
from foundation.model.position import EARLIEST, LATEST, Position
from protocol.ledger_metadata import ledger_key
from tests.broker.managed_ledger.ledger_fakes import (
    NAME,
    WRITE_FAILED,
    RefusingStore,
    World,
    all_bodies,
    delete,
    fill,
    indexes,
    recorder,
    shape,
    until,
)


async def test_terminate_finishes_adds_in_flight_and_refuses_others_for_ever(world: World) -> None:
    ledger = await world.open()
    await fill(ledger, 2)
    world.ledgers.hold()
    ledger.writer.add([b"under way"], 1, "under way")
    ending = asyncio.ensure_future(ledger.terminate())
    await asyncio.sleep(0)
    ledger.writer.add([b"x"], 1, "too late")
    assert recorder(ledger).failed == []
    world.ledgers.answer_at_once_again()
    last = Position(ledger.ledgers.current.ledger_id, 2)
    assert await ending == last
    assert recorder(ledger).contexts[-1] == "under way"
    assert recorder(ledger).failed == ["too late"]
    assert isinstance(recorder(ledger).errors[0], TopicTerminated)
    with pytest.raises(TopicTerminated):
        ledger.writer.add([b"x"], 1, None)
    assert ledger.is_terminated
    assert await ledger.terminate() == last
    await ledger.close()
    again = await world.after_crash().open()
    assert again.store.terminated == last
    assert again.last_confirmed == last
    with pytest.raises(TopicTerminated):
        again.writer.add([b"x"], 1, None)
    assert len(await all_bodies(again)) == 3


async def test_close_waits_for_adds_and_the_next_open_needs_no_recovery(world: World) -> None:
    ledger = await world.open()
    cursor = await ledger.cursors.open("s", EARLIEST)
    await fill(ledger, 3)
    world.ledgers.hold()
    ledger.writer.add([b"under way"], 1, "under way")
    cursor.acknowledge([Position(ledger.ledgers.current.ledger_id, 0)])
    closing = asyncio.ensure_future(ledger.close())
    await asyncio.sleep(0)
    ledger.writer.add([b"x"], 1, "too late")
    world.ledgers.answer_at_once_again()
    await closing
    assert recorder(ledger).contexts[-1] == "under way"
    assert recorder(ledger).failed == ["too late"]
    assert isinstance(recorder(ledger).errors[0], ServiceNotReady)
    assert ledger.state is ManagedLedgerState.CLOSED
    again = await world.after_crash().open()
    assert world.ledgers.recovery_adds == []
    assert world.ledgers.fenced == set()
    assert len(await all_bodies(again)) == 4
    assert again.cursors.by_name["s"].mark_delete_position.entry_id == 0
    await fill(again, 1)
    assert indexes(again) == [4]


class ListWaits(MemoryMetadataStore):
    """A store that answers writes of the list when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = asyncio.Event()
        self.answers.set()

    async def put(self, key: str, value: bytes, expected: int | None = None) -> int:
        if key == managed_ledger_key(NAME):
            await self.answers.wait()
        return await super().put(key, value, expected)


async def test_close_stores_positions_while_the_list_is_written() -> None:
    world = World(store := ListWaits())
    ledger = await world.open()
    cursor = await ledger.cursors.open("s", EARLIEST)
    await fill(ledger, 2)
    cursor.acknowledge([Position(ledger.ledgers.current.ledger_id, 0)])
    key, first = cursor_key(NAME, "s"), await store.get(cursor_key(NAME, "s"))
    await until(lambda: store._values[key] != first)
    # Within the interval of writes, so the close stores it.
    cursor.acknowledge([Position(ledger.ledgers.current.ledger_id, 1)])
    store.answers.clear()
    before = await store.get(key)
    closing = asyncio.ensure_future(ledger.close())
    await until(lambda: store._values[key] != before)
    assert not closing.done()
    store.answers.set()
    await closing
    again = await world.after_crash().open()
    assert again.cursors.by_name["s"].mark_delete_position.entry_id == 1


async def test_waiting_adds_fail_when_the_managed_ledger_is_closed() -> None:
    world = World(RefusingStore())
    ledger = await world.open()
    ledger.writer.add([b"x"], 1, "waits")
    await ledger.close()
    assert recorder(ledger).failed + recorder(ledger).contexts == ["waits"]
    assert ledger.last_confirmed.entry_id == len(recorder(ledger).added) - 1


async def test_open_after_a_crash_has_all_confirmed_entries_and_fences_the_old_writer(world: World) -> None:
    ledger = await world.open(entries_per_ledger_max=4)
    await fill(ledger, 6)
    old_ledger = ledger.ledgers.current.ledger_id
    again = await world.after_crash().open(entries_per_ledger_max=4)
    assert shape(again) == [4, 2, 0]
    assert [bytes(body) for body in await all_bodies(again)] == [b"%010d" % n for n in range(6)]
    assert old_ledger in world.ledgers.fenced
    ledger.writer.add([b"from the past"], 1, "stale")
    await until(lambda: recorder(ledger).failed)
    await fill(again, 1)
    assert indexes(again) == [6]
    assert again.last_confirmed == Position(again.ledgers.current.ledger_id, 0)


async def test_message_index_continues_after_crashes(world: World) -> None:
    ledger = await world.open()
    await fill(ledger, 3)
    for _ in range(3):
        ledger = await world.after_crash().open()
    await fill(ledger, 1)
    assert indexes(ledger) == [3]
    ledger = await world.after_crash().open()
    await fill(ledger, 1)
    assert indexes(ledger) == [4]


async def test_recovery_writes_back_what_was_not_known_to_be_confirmed(world: World) -> None:
    ledger = await world.open()
    world.ledgers.hold()
    for number in range(5):
        ledger.writer.add([b"%d" % number], 1, number)
    await until(lambda: len(world.ledgers.held or ()) == 5)
    ledger_id = ledger.ledgers.current.ledger_id
    world.ledgers.held = None
    del world.ledgers.stored[ledger_id][3]
    again = await world.after_crash().open()
    assert shape(again) == [3, 0]
    assert world.ledgers.recovery_adds == [(ledger_id, 0), (ledger_id, 1), (ledger_id, 2)]


async def test_entries_behind_the_end_in_the_ledger_metadata_are_not_read(world: World) -> None:
    """An entry behind a failed one may be in the bookie; the close cut it off."""
    ledger = await world.open()
    await fill(ledger, 2)
    ledger_id = ledger.ledgers.current.ledger_id
    world.ledgers.refuse = lambda ledger, entry_id: WRITE_FAILED if entry_id == 2 else 0
    ledger.writer.add([b"refused"], 1, None)
    ledger.writer.add([b"stored behind it"], 1, None)
    await until(lambda: len(recorder(ledger).failed) == 2)
    assert 3 in world.ledgers.stored[ledger_id]
    world.ledgers.refuse = lambda ledger, entry_id: 0
    await fill(ledger, 1)
    again = await world.after_crash().open()
    assert shape(again) == [2, 1, 0]


async def test_listed_ledger_is_dropped_when_its_metadata_does_not_exist(world: World) -> None:
    ledger = await world.open()
    await fill(ledger, 1)
    await world.metadata.delete(ledger_key(ledger.ledgers.current.ledger_id))
    del world.ledgers.stored[ledger.ledgers.current.ledger_id]
    again = await world.after_crash().open()
    assert shape(again) == [0]
    await fill(again, 1)


def has_failed_more(ledger: ManagedLedger, before: int) -> bool:
    return len(recorder(ledger).failed) > before


async def test_ledgers_without_entries_leave_nothing_behind(world: World) -> None:
    ledger = await world.open()
    await fill(ledger, 1)
    for _ in range(3):
        world.ledgers.refuse = lambda ledger, entry_id: WRITE_FAILED
        ledger.writer.add([b"x"], 1, "refused")
        failed = len(recorder(ledger).failed)
        await until(partial(has_failed_more, ledger, failed))
        await until(lambda: ledger.state is ManagedLedgerState.OPEN)
    world.ledgers.refuse = lambda ledger, entry_id: 0
    await fill(ledger, 1)
    assert shape(ledger) == [1, 1]
    await ledger.close()
    kept = [info.ledger_id for info in ledger.ledgers.infos()]
    listed = await world.metadata.children("/ledgers/00/0000")
    assert listed == sorted(f"L{ledger_id:04}" for ledger_id in kept)


async def test_ledgers_are_trimmed_when_every_durable_cursor_has_consumed_them(world: World) -> None:
    ledger = await world.open(keep=False, entries_per_ledger_max=3)
    slow, fast = await ledger.cursors.open("slow", EARLIEST), await ledger.cursors.open("fast", EARLIEST)
    reader = ledger.cursors.open_non_durable("reader", EARLIEST)
    await fill(ledger, 10)
    ids = [info.ledger_id for info in ledger.ledgers.infos()]
    fast.acknowledge_cumulative(ledger.last_confirmed)
    slow.acknowledge_cumulative(Position(ids[0], 1))
    assert [info.ledger_id for info in ledger.ledgers.infos()] == ids
    slow.acknowledge_cumulative(Position(ids[1], 0))
    assert [info.ledger_id for info in ledger.ledgers.infos()] == ids[1:]
    slow.acknowledge_cumulative(Position(ids[2], 2))
    assert [info.ledger_id for info in ledger.ledgers.infos()] == ids[3:]
    await until(lambda: world.ledgers.deleted == ids[:3])
    assert await world.metadata.get(ledger_key(ids[0])) is None
    assert reader.has_more()
    assert reader.take(10, 1000)[0].position == Position(ids[3], 0)
    again = await world.after_crash().open()
    assert shape(again) == [1, 0]
    assert again.cursors.by_name["slow"].backlog == 1


async def test_retention_keeps_consumed_ledgers_for_a_time(world: World) -> None:
    ledger = await world.open(entries_per_ledger_max=2)
    ledger.trimming.keep_ms = 1000
    await fill(ledger, 5)
    world.wall += 999
    assert ledger.trimming.trim(world.wall, without_cursors=True) == []
    world.wall += 1
    assert len(ledger.trimming.trim(world.wall, without_cursors=True)) == 2


async def test_retention_keeps_consumed_ledgers_up_to_a_size(world: World) -> None:
    ledger = await world.open(entries_per_ledger_max=2)
    await fill(ledger, 9)
    ledger.trimming.keep_bytes = ledger.ledgers.size_bytes - 1
    assert len(ledger.trimming.trim(world.wall, without_cursors=True)) == 1
    ledger.trimming.keep_bytes = 0
    ledger.trimming.trim(world.wall, without_cursors=True)
    assert shape(ledger) == [1]


async def test_trimming_without_durable_cursors_waits_for_the_periodic_check(world: World) -> None:
    ledger = await world.open(keep=False, entries_per_ledger_max=2)
    await fill(ledger, 4)
    ledger.writer.add([b"begins the third ledger"], 1, None)
    await until(lambda: len(recorder(ledger).added) == 5)
    assert shape(ledger) == [2, 2, 1]
    ledger.cursors.open_non_durable("reader", EARLIEST)
    assert ledger.trimming.trim(world.wall) == []
    ledger.trimming.trim(world.wall, without_cursors=True)
    assert shape(ledger) == [1]


async def test_managed_ledger_is_empty_after_its_last_entry_was_trimmed(world: World) -> None:
    ledger = await world.open(keep=False, rollover_ns_max=1000)
    await fill(ledger, 4)
    world.clock.advance(1000)
    ledger.writer.roll_if_due(world.clock.now)
    await until(lambda: ledger.state is ManagedLedgerState.OPEN)
    ledger.trimming.trim(world.wall, without_cursors=True)
    assert ledger.last_confirmed == Position(ledger.ledgers.current.ledger_id, -1)
    assert ledger.ledgers.entries == 0


async def test_open_finishes_a_removal_that_a_crash_interrupted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = await world.open(keep=False, entries_per_ledger_max=2)
    cursor = await ledger.cursors.open("s", EARLIEST)
    await fill(ledger, 5)
    first = ledger.ledgers.infos()[0].ledger_id
    deleted: list[str] = []

    async def crash_before(key: str, expected: int | None = None) -> None:
        deleted.append(key)
        raise MetadataError("crashed here")

    monkeypatch.setattr(world.metadata, "delete", crash_before)
    cursor.acknowledge_cumulative(Position(first, 1))
    await until(lambda: deleted)
    await cursor.store.flush()
    monkeypatch.undo()
    assert world.ledgers.deleted == []
    await world.after_crash().open()
    assert world.ledgers.deleted == [first]
    assert await world.metadata.get(ledger_key(first)) is None


async def test_delete_leaves_no_metadata_and_no_entries(world: World) -> None:
    ledger = await world.open(entries_per_ledger_max=2)
    await ledger.cursors.open("a/b", EARLIEST)
    await fill(ledger, 5)
    await delete(ledger)
    assert isinstance(world.metadata, MemoryMetadataStore)
    assert sorted(world.metadata._values) == ["/ledgers/idgen"]
    assert world.ledgers.stored == {}
    fresh = await world.open()
    assert fresh.cursors.by_name == {}
    assert fresh.ledgers.entries == 0


async def test_open_finishes_a_delete_that_a_crash_interrupted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = await world.open()
    await ledger.cursors.open("s", EARLIEST)
    await fill(ledger, 2)

    async def crash_before(key: str, expected: int | None = None) -> None:
        raise MetadataError("crashed here")

    monkeypatch.setattr(world.metadata, "delete", crash_before)
    with pytest.raises(MetadataError):
        await delete(ledger)
    monkeypatch.undo()
    again = await world.after_crash().open()
    assert (again.ledgers.entries, again.cursors.by_name) == (0, {})
    assert world.ledgers.stored == {}


async def test_single_reads_use_the_cache_and_do_not_fill_it(world: World) -> None:
    ledger = await world.open()
    await fill(ledger, 3)
    ledger = await world.after_crash().open()
    position = Position(ledger.ledgers.infos()[0].ledger_id, 1)
    assert bytes((await ledger.read_entry(position)).body) == b"0000000001"
    assert ledger.cache.entries == 0
    with pytest.raises(NoSuchEntry):
        await ledger.read_entry(Position(position.ledger_id, 3))
    with pytest.raises(NoSuchLedger):
        await ledger.read_entry(Position(77, 0))


async def test_entry_with_changed_bytes_is_not_returned(world: World) -> None:
    ledger = await world.open()
    await fill(ledger, 3)
    ledger_id = ledger.ledgers.current.ledger_id
    ledger = await world.after_crash().open()
    stored = bytearray(world.ledgers.stored[ledger_id][1])
    stored[-1] ^= 1
    world.ledgers.stored[ledger_id][1] = bytes(stored)
    with pytest.raises(PersistenceError, match=f"{ledger_id}:1"):
        await ledger.read_entry(Position(ledger_id, 1))


async def test_hundred_managed_ledgers_open_together_on_sqlite(tmp_path: Path) -> None:
    store = SqliteMetadataStore(tmp_path / "m.db")
    world = World(store)
    ledgers = await asyncio.gather(*(world.open(f"t/n/persistent/{number}") for number in range(100)))
    await asyncio.gather(*(ledger.cursors.open("s", LATEST) for ledger in ledgers))
    for ledger in ledgers:
        ledger.writer.add([b"x"], 1, None)
    await until(lambda: all(recorder(ledger).added for ledger in ledgers))
    await store.close()
    again = World(SqliteMetadataStore(tmp_path / "m.db"), world.ledgers)
    for number in range(100):
        ledger = await again.open(f"t/n/persistent/{number}")
        assert ledger.ledgers.entries == 1
        assert ledger.cursors.by_name["s"].backlog == 1
    await again.metadata.close()


async def test_set_property_is_durable_when_it_returns(world: World) -> None:
    ledger = await world.open()
    await fill(ledger, 1)
    await ledger.set_properties({"owner": "somebody"})
    again = await world.after_crash().open()
    assert again.properties == {"owner": "somebody", "index": "0", "brokerTimestamp": "1700000000000"}


async def test_empty_managed_ledger_can_be_terminated(world: World) -> None:
    ledger = await world.open()
    await ledger.terminate()
    assert ledger.store.terminated == ledger.last_confirmed
    again = await world.after_crash().open()
    assert again.is_terminated
    assert again.ledgers.entries == 0


async def test_managed_ledger_works_on_the_memory_ledger_client() -> None:
    ledgers = MemoryLedgerClient(asyncio.get_running_loop().call_soon)
    world = World(None, ledgers)
    ledger = await world.open(entries_per_ledger_max=4)
    await fill(ledger, 6)
    again = await world.after_crash().open()
    assert shape(again) == [4, 2, 0]
    assert await all_bodies(again) == [b"%010d" % number for number in range(6)]
    ledger.writer.add([b"from the past"], 1, "stale")
    await until(lambda: recorder(ledger).failed)
    assert isinstance(recorder(ledger).errors[0], LedgerFenced)
    assert ledger.state is ManagedLedgerState.FENCED


async def test_list_is_stored_after_a_write_that_was_cancelled(tmp_path: Path) -> None:
    world = World(SqliteMetadataStore(tmp_path / "m.db"))
    ledger = await world.open()
    await fill(ledger, 1)
    change = asyncio.create_task(ledger.set_properties({"a": "1"}))
    await asyncio.sleep(0)
    change.cancel()
    await asyncio.wait([change])
    await ledger.set_properties({"b": "2"})
    assert (await world.after_crash().open()).properties["b"] == "2"
    await world.metadata.close()


async def test_ledger_is_deleted_whose_beginning_was_cancelled(tmp_path: Path) -> None:
    world = World(SqliteMetadataStore(tmp_path / "m.db"))
    ledger = await world.open()
    await fill(ledger, 1)
    begin = asyncio.create_task(ledger.store.begin_beside(77, {}))
    await asyncio.sleep(0)
    begin.cancel()
    await asyncio.wait([begin])
    assert ledger.store.beside == ()
    await ledger.store.save()
    assert await world.metadata.get(ledger_key(77)) is not None
    async with ledger.store.lock:
        await ledger.store.delete_marked()
    assert await world.metadata.get(ledger_key(77)) is None
    await world.metadata.close()
