"""Cursor info: when acknowledgements are written, and which survive a crash."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.metadata.sqlite_metadata_store import SqliteMetadataStore
from broker.managed_ledger import cursor_info_writer, ledger_cursors
from broker.managed_ledger.acks import StoredInfo, encode_within
from broker.managed_ledger.cursor_info_writer import CursorInfoWriter
from broker.managed_ledger.managed_cursor import ManagedCursor
from broker.managed_ledger.managed_ledger_info import cursor_key
from foundation.model.errors import MetadataError
from foundation.model.position import EARLIEST, LATEST, Position
from tests.broker.managed_ledger.ledger_fakes import (
    EVERY_CHANGE,
    World,
    at,
    fill,
    read_all,
    recorder,
    until,
)
from tests.fakes.metadata import FakeMetadata


async def test_existing_cursor_keeps_its_place_when_opened_again(world: World) -> None:
    ledger = await world.open()
    cursor = await ledger.cursors.open("s", LATEST, {"a": 1})
    await fill(ledger, 2)
    assert await ledger.cursors.open("s", EARLIEST) is cursor
    assert cursor.backlog == 2
    ledger = await world.after_crash().open()
    again = await ledger.cursors.open("s", LATEST)
    assert again.backlog == 2
    assert again.acks.properties == {"a": 1}
    assert again.durable


async def test_concurrent_opens_of_a_new_cursor_return_the_same_one(world: World) -> None:
    ledger = await world.open()
    one, other = await asyncio.gather(ledger.cursors.open("s", EARLIEST), ledger.cursors.open("s", EARLIEST))
    assert one is other


async def test_acknowledged_entries_are_not_left_to_read(world: World) -> None:
    ledger = await world.open(entries_per_ledger_max=4)
    cursor = await ledger.cursors.open("s", EARLIEST)
    await fill(ledger, 10)
    cursor.acknowledge_cumulative(at(ledger, 5))
    assert cursor.read_position == at(ledger, 6)
    cursor.acknowledge_cumulative(LATEST)
    assert not cursor.has_more()
    assert cursor.backlog == 0
    await fill(ledger, 1)
    assert await read_all(cursor) == [10]


async def test_acknowledging_positions_without_an_entry_is_ignored(world: World) -> None:
    ledger = await world.open()
    cursor = await ledger.cursors.open("s", EARLIEST)
    await fill(ledger, 3)
    ledger_id = ledger.ledgers.current.ledger_id
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
    assert cursor.acks.ack_set_of((ledger_id, 1)) == (0b110,)


async def test_seek_forgets_acknowledgements_behind_its_position(world: World) -> None:
    ledger = await world.open(entries_per_ledger_max=4)
    cursor = await ledger.cursors.open("s", EARLIEST)
    await fill(ledger, 10)
    await read_all(cursor)
    cursor.acknowledge_cumulative(at(ledger, 4))
    cursor.acknowledge([at(ledger, 7)])
    await cursor.reset(at(ledger, 2))
    assert cursor.backlog == 8
    assert await read_all(cursor) == list(range(2, 10))
    again = (await world.after_crash().open()).cursors.by_name["s"]
    assert again.backlog == 8
    await again.reset(EARLIEST)
    assert again.backlog == 10
    await again.reset(LATEST)
    assert again.backlog == 0
    assert not again.has_more()
    await again.reset(Position(10**6, 5))
    assert again.backlog == 0


def writer_of(cursor: ManagedCursor) -> CursorInfoWriter:
    """Returns the writer of a durable cursor."""
    assert isinstance(cursor.store, CursorInfoWriter)
    return cursor.store


async def test_delete_cursor_removes_it_and_its_stored_info(world: World) -> None:
    ledger = await world.open()
    cursor = await ledger.cursors.open("a/b c", EARLIEST)
    cursor.activate()
    await fill(ledger, 1)
    cursor.acknowledge([ledger.last_confirmed])
    await ledger.cursors.delete("a/b c")
    await ledger.cursors.delete("a/b c")
    assert len(ledger.reading_cursors.active) == 0
    assert (await world.after_crash().open()).cursors.by_name == {}
    assert (await ledger.cursors.open("a/b c", EARLIEST)).backlog == 1


async def test_cursor_info_is_written_once_per_turn_when_not_throttled(world: World) -> None:
    ledger = await world.open(mark_delete_rate=EVERY_CHANGE)
    cursor = await ledger.cursors.open("s", EARLIEST)
    await fill(ledger, 20)
    before = writer_of(cursor).writes
    durable: list[int] = []
    for index in range(10):
        cursor.acknowledge([at(ledger, index)])
        cursor.store.on_durable(partial(durable.append, index))
    assert durable == []
    await until(lambda: len(durable) == 10)
    assert durable == list(range(10))
    assert writer_of(cursor).writes == before + 1
    assert (await world.after_crash().open()).cursors.by_name["s"].backlog == 10
    cursor.store.on_durable(lambda: durable.append(99))
    assert durable[-1] == 99


async def test_throttled_cursor_writes_once_per_interval_and_then_everything(world: World) -> None:
    ledger = await world.open(mark_delete_rate=1.0)
    cursor = await ledger.cursors.open("s", EARLIEST)
    await fill(ledger, 20)
    world.clock.advance(1_000_000_000)
    cursor.acknowledge([at(ledger, 0)])
    await until(lambda: writer_of(cursor).writes == 2)
    for index in range(1, 5):
        cursor.acknowledge([at(ledger, index)])
        for _ in range(5):
            await asyncio.sleep(0)
    assert writer_of(cursor).writes == 2
    assert len(world.environment.unsaved_cursors) == 1
    world.tick()
    assert writer_of(cursor).writes == 2
    world.clock.advance(1_000_000_000)
    world.tick()
    await until(lambda: writer_of(cursor).writes == 3)
    assert len(world.environment.unsaved_cursors) == 0
    assert (await world.after_crash().open()).cursors.by_name["s"].backlog == 15


async def test_another_rate_of_writes_is_in_force_from_the_next_write_on(world: World) -> None:
    ledger = await world.open(mark_delete_rate=0.001)
    cursor = await ledger.cursors.open("s", EARLIEST)
    await fill(ledger, 2)
    ledger.reconfigure(replace(ledger.context.settings, mark_delete_rate=EVERY_CHANGE))
    cursor.acknowledge([at(ledger, 0)])
    await until(lambda: writer_of(cursor).writes == 2)
    cursor.acknowledge([at(ledger, 1)])
    await until(lambda: writer_of(cursor).writes == 3)


async def test_cursor_info_is_written_later_when_a_write_failed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = await world.open(mark_delete_rate=EVERY_CHANGE)
    cursor = await ledger.cursors.open("s", EARLIEST)
    await fill(ledger, 5)

    async def full(key: str, value: bytes, expected: int | None = None) -> int:
        raise MetadataError("disk full")

    monkeypatch.setattr(world.metadata, "put", full)
    durable: list[int] = []
    cursor.acknowledge([at(ledger, 0)])
    cursor.store.on_durable(lambda: durable.append(1))
    await until(lambda: len(world.environment.unsaved_cursors) == 1)
    assert durable == []
    with pytest.raises(MetadataError):
        await cursor.reset(at(ledger, 3))
    monkeypatch.undo()
    world.tick()
    await until(lambda: durable)
    assert (await world.after_crash().open()).cursors.by_name["s"].backlog == 2


async def test_cursor_logs_once_that_another_broker_stores_its_acknowledgements(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = await world.open(mark_delete_rate=EVERY_CHANGE)
    cursor = await ledger.cursors.open("s", EARLIEST)
    await fill(ledger, 5)
    key = cursor_key(ledger.context.name, "s")
    stored = await world.metadata.get(key)
    assert stored is not None
    # The write of another broker that has taken the managed ledger over.
    await world.metadata.put(key, stored.value, stored.version)
    for index in range(3):
        cursor.acknowledge([at(ledger, index)])
        await until(lambda: writer_of(cursor).closed)
    (line,) = [text for text in caplog.messages if key in text]
    assert "is stored by another broker" in line
    assert recorder(ledger).takeovers == 1, "the topic closes"
    assert (await world.after_crash().open()).cursors.by_name["s"].backlog == 5


async def test_new_cursor_does_not_exist_when_its_write_failed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = await world.open()

    async def full(key: str, value: bytes, expected: int | None = None) -> int:
        raise MetadataError("disk full")

    monkeypatch.setattr(world.metadata, "put", full)
    with pytest.raises(MetadataError):
        await ledger.cursors.open("s", EARLIEST)
    assert ledger.cursors.by_name == {}
    monkeypatch.undo()
    assert (await ledger.cursors.open("s", EARLIEST)).durable


async def test_holes_and_partly_acknowledged_batches_survive_a_crash(world: World) -> None:
    ledger = await world.open(entries_per_ledger_max=4, mark_delete_rate=EVERY_CHANGE)
    cursor = await ledger.cursors.open("s", EARLIEST)
    await fill(ledger, 10)
    cursor.acknowledge([at(ledger, index) for index in (0, 2, 3, 6, 9)])
    cursor.acknowledge_batch(at(ledger, 1), (0b101,), 3)
    await cursor.store.flush()
    again_log = await world.after_crash().open()
    again = again_log.cursors.by_name["s"]
    assert again.mark_delete_position == at(ledger, 0)
    assert [index for index in range(10) if again.acks.is_acknowledged(at(ledger, index))] == [0, 2, 3, 6, 9]
    assert again.acks.ack_set_of(at(ledger, 1)) == (0b101,)
    assert again.acks.partly_acknowledged == 1
    assert again.backlog == 5
    assert await read_all(again) == [1, 4, 5, 7, 8]


async def test_close_writes_acknowledgements_that_the_throttle_held_back(world: World) -> None:
    ledger = await world.open(mark_delete_rate=0.001)
    cursor = await ledger.cursors.open("s", EARLIEST)
    await fill(ledger, 5)
    for index in range(4):
        cursor.acknowledge([at(ledger, index)])
        await asyncio.sleep(0)
    await cursor.close()
    assert not cursor.active
    assert (await world.after_crash().open()).cursors.by_name["s"].backlog == 1


async def test_acks_that_were_durable_survive_on_sqlite(tmp_path: Path) -> None:
    store = SqliteMetadataStore(tmp_path / "m.db")
    world = World(store)
    ledger = await world.open(mark_delete_rate=EVERY_CHANGE)
    cursor = await ledger.cursors.open("s", EARLIEST)
    for number in range(10):
        ledger.writer.add([b"%d" % number], 1, number)
    await until(lambda: len(recorder(ledger).added) == 10)
    cursor.acknowledge([at(ledger, index) for index in (0, 1, 5)])
    durable = asyncio.Event()
    cursor.store.on_durable(durable.set)
    await durable.wait()
    reopened = SqliteMetadataStore(tmp_path / "m.db")
    again = await World(reopened, world.ledgers).open()
    assert [
        index for index in range(10) if again.cursors.by_name["s"].acks.is_acknowledged(at(again, index))
    ] == [0, 1, 5]
    await reopened.close()
    await store.close()


async def test_cursor_properties_are_stored_with_the_position(world: World) -> None:
    ledger = await world.open(mark_delete_rate=EVERY_CHANGE)
    cursor = await ledger.cursors.open("dedup", EARLIEST)
    await fill(ledger, 3)
    cursor.acknowledge_cumulative(at(ledger, 1), properties={"producer": 7})
    await cursor.store.flush()
    assert (await world.after_crash().open()).cursors.by_name["dedup"].acks.properties == {"producer": 7}
    cursor.acknowledge_cumulative(at(ledger, 1), properties={"producer": 8})
    await cursor.store.flush()
    assert (await world.after_crash().open()).cursors.by_name["dedup"].acks.properties == {"producer": 8}


async def test_acknowledgements_are_stored_after_a_flush_that_was_cancelled(tmp_path: Path) -> None:
    world = World(SqliteMetadataStore(tmp_path / "m.db"))
    ledger = await world.open()
    cursor = await ledger.cursors.open("s", EARLIEST)
    await fill(ledger, 3)
    cursor.acknowledge_cumulative(at(ledger, 0))
    flush = asyncio.create_task(cursor.store.flush())
    await asyncio.sleep(0)
    flush.cancel()
    await asyncio.wait([flush])
    cursor.acknowledge_cumulative(at(ledger, 1))
    await cursor.store.flush()
    again = await (await world.after_crash().open()).cursors.open("s", EARLIEST)
    assert again.backlog == 1
    await world.metadata.close()


async def test_large_info_is_made_in_a_thread_and_misses_no_acknowledgement(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursor_info_writer, "THREAD_PARTS_MIN", 0)
    monkeypatch.setattr(ledger_cursors, "THREAD_BYTES_MIN", 0)
    ledger = await world.open(mark_delete_rate=EVERY_CHANGE)
    cursor = await ledger.cursors.open("s", EARLIEST)
    await fill(ledger, 40)
    cursor.acknowledge([at(ledger, entry) for entry in range(1, 30, 2)])
    flushed = asyncio.ensure_future(cursor.store.flush())
    # In slices of the loop, so that some come before the copy is made, and some while the thread encodes it.
    for entry in range(31, 40, 2):
        cursor.acknowledge([at(ledger, entry)])
        await asyncio.sleep(0)
    await flushed
    await cursor.store.flush()
    ledger = await world.after_crash().open()
    again = await ledger.cursors.open("s", EARLIEST)
    assert again.backlog == 20
    assert again.acks.beyond.count_ranges() == 20


async def test_large_info_takes_a_twentieth_of_the_time_at_most(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursor_info_writer, "THREAD_PARTS_MIN", 0)
    ledger = await world.open(mark_delete_rate=1.0)
    cursor = await ledger.cursors.open("s", EARLIEST)
    await fill(ledger, 10)

    def slow(*arguments: Any) -> StoredInfo:
        # The clock of the test moves, as it would while a million holes are encoded.
        world.clock.now += 500_000_000
        return encode_within(*arguments)

    monkeypatch.setattr(cursor_info_writer, "encode_within", slow)
    world.clock.now += 10_000_000_000
    cursor.acknowledge([at(ledger, 5)])
    await cursor.store.flush()
    writes = writer_of(cursor).writes
    cursor.acknowledge([at(ledger, 7)])
    for _ in range(9):
        world.clock.now += 1_000_000_000
        world.tick()
        await asyncio.sleep(0)
    assert writer_of(cursor).writes == writes, "half a second of work lets ten seconds pass"
    world.clock.now += 2_000_000_000
    world.tick()
    await until(lambda: writer_of(cursor).writes == writes + 1)


async def test_acknowledgements_beyond_the_limits_are_told_of_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = await world.open(mark_delete_rate=EVERY_CHANGE, ack_ranges_max=3)
    cursor = await ledger.cursors.open("s", EARLIEST)
    await fill(ledger, 20)
    cursor.acknowledge([at(ledger, entry) for entry in (1, 3, 5)])
    await cursor.store.flush()
    assert (cursor.store.left_out, cursor.store.stores_all_acks) == (0, True)
    for entry in (7, 9):
        cursor.acknowledge([at(ledger, entry)])
        await cursor.store.flush()
    assert (cursor.store.left_out, cursor.store.stores_all_acks) == (2, False)
    told = [record.getMessage() for record in caplog.records if "in memory only" in record.getMessage()]
    assert len(told) == 1
    assert "managedLedgerMaxUnackedRangesToPersist (3)" in told[0]
    cursor.acknowledge([at(ledger, entry) for entry in (0, 2, 4)])
    await cursor.store.flush()
    assert (cursor.store.left_out, cursor.store.stores_all_acks) == (0, True)


async def test_cut_acknowledgements_are_counted_at_each_write_and_told_of_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = await world.open(mark_delete_rate=EVERY_CHANGE, ack_ranges_max=1, batch_ack_sets_max=1)
    cuts = ledger.environment.ack_cuts
    cursor = await ledger.cursors.open("s", EARLIEST)
    await fill(ledger, 10)
    cursor.acknowledge([at(ledger, 2)])
    cursor.acknowledge_batch(at(ledger, 4), [0b01], 2)
    await cursor.store.flush()
    assert (cuts.ranges, cuts.batches) == (0, 0)
    cursor.acknowledge_batch(at(ledger, 5), [0b01], 2)
    await cursor.store.flush()
    assert (cuts.ranges, cuts.batches) == (0, 1)
    cursor.acknowledge([at(ledger, 7)])
    await cursor.store.flush()
    assert (cuts.ranges, cuts.batches) == (1, 2)
    told = [record.getMessage() for record in caplog.records if "in memory only" in record.getMessage()]
    assert [line.partition(": raise ")[2].partition(" (")[0] for line in told] == [
        "managedLedgerMaxBatchDeletedIndexToPersist",
        "managedLedgerMaxUnackedRangesToPersist",
    ]
    cursor.acknowledge_cumulative(at(ledger, 8))
    await cursor.store.flush()
    assert (cuts.ranges, cuts.batches) == (1, 2)


async def test_store_with_small_values_gets_the_lowest_acknowledgements(tmp_path: Path) -> None:
    metadata = FakeMetadata()
    # As ZooKeeper refuses a value above its limit, for ever: a cursor with many holes would never be stored again.
    metadata.value_bytes_max = 5000
    world = World(metadata)
    ledger = await world.open(mark_delete_rate=EVERY_CHANGE)
    cursor = await ledger.cursors.open("s", EARLIEST)
    await fill(ledger, 20_000)
    cursor.acknowledge([at(ledger, entry) for entry in range(1, 20_000, 2)])
    await cursor.store.flush()
    stored = await metadata.get(cursor_key(ledger.name, "s"))
    assert stored is not None
    assert len(stored.value) <= 5000
    ledger = await world.after_crash().open()
    again = await ledger.cursors.open("s", EARLIEST)
    assert 0 < again.acks.beyond.count < 10_000
    assert again.acks.beyond.count + cursor.store.left_out == 10_000
