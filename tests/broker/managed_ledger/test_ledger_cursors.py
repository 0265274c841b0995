"""Cursors whose position an Apache broker left in a cursor ledger: taken over with everything, the ledger deleted."""

from __future__ import annotations

from unittest.mock import create_autospec

import pytest

from bookkeeper.ensembles.ledger_handle import AddedRun, LedgerHandle
from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from broker.managed_ledger.managed_ledger_info import CursorInfo, cursor_key
from broker.managed_ledger.records.pulsar_records import (
    StoredCursor,
    StoredPosition,
    decode_cursor,
    encode_cursor,
    encode_position,
)
from broker.managed_ledger.removal.deletion import decide_deletion, delete_managed_ledger, no_tier
from foundation.model.errors import BadVersion, MetadataError, PersistenceError
from foundation.model.position import EARLIEST, Position
from protocol.ledger_metadata import ledger_key
from tests.broker.managed_ledger.ledger_fakes import NAME, World, at, fill, until

CURSOR_LEDGER = 77


async def left_by_apache(world: World, bodies: list[bytes], log_ledger: int) -> None:
    """Stores a cursor before the log's first entry, whose later positions are in a ledger that was not closed."""
    environment = world.environment
    own = await environment.ledgers.create(CURSOR_LEDGER, {})
    writer, owner = environment.ledgers.writer(own), create_autospec(AddedRun)
    handle = LedgerHandle(CURSOR_LEDGER, writer, environment.turn, owner, environment.ledgers.digest)
    for body in bodies:
        handle.add((b"",), (body,), 1, None, 0)
    await until(lambda: handle.last_confirmed == len(bodies) - 1)
    in_node = CursorInfo(Position(log_ledger, -1), cursor_properties={"team": "billing"})
    await world.metadata.put(cursor_key(NAME, "s"), encode_cursor(StoredCursor(in_node, CURSOR_LEDGER)))


async def log_of_ten(world: World) -> int:
    ledger = await world.open()
    await fill(ledger, 10)
    await ledger.close()
    return at(ledger, 0).ledger_id


async def test_position_in_a_cursor_ledger_is_taken_over(world: World) -> None:
    log = await log_of_ten(world)
    last = CursorInfo(Position(log, 3), {"x": 7}, [(log, 0, 1 << 5)], [(Position(log, 8), 0b01)])
    bodies = [
        encode_position(StoredPosition(info, has_texts=False))
        for info in (CursorInfo(Position(log, -1)), last)
    ]
    await left_by_apache(world, bodies, log)
    ledger = await world.open()
    cursor = ledger.cursors.by_name["s"]
    assert cursor.mark_delete_position == Position(log, 3)
    assert cursor.backlog == 5
    assert cursor.acks.properties == {"x": 7}
    assert cursor.acks.ack_set_of(Position(log, 8)) == (1,)
    assert cursor.store.cursor_properties == {"team": "billing"}
    found = await world.metadata.get(cursor_key(NAME, "s"))
    assert found is not None
    stored = decode_cursor(found.value)
    assert (stored.ledger_id, stored.info.mark_delete) == (-1, Position(log, 3))
    assert await world.metadata.get(ledger_key(CURSOR_LEDGER)) is None


@pytest.mark.parametrize("exists", [False, True])
async def test_position_in_the_node_holds_where_the_cursor_ledger_has_none(
    world: World, exists: bool
) -> None:
    log = await log_of_ten(world)
    await left_by_apache(world, [], log)
    if not exists:
        await world.metadata.delete(ledger_key(CURSOR_LEDGER))
    ledger = await world.open()
    cursor = await ledger.cursors.open("s", EARLIEST)
    assert (cursor.mark_delete_position, cursor.backlog) == (Position(log, -1), 10)


async def test_deletion_of_a_log_deletes_its_shared_store(world: World) -> None:
    log = await log_of_ten(world)
    await left_by_apache(world, [encode_position(StoredPosition(CursorInfo(Position(log, 1))))], log)
    assert await decide_deletion(NAME, world.metadata)
    await delete_managed_ledger(NAME, world.metadata, world.environment.ledgers, no_tier)
    assert await world.metadata.get(cursor_key(NAME, "s")) is None
    assert await world.metadata.get(ledger_key(CURSOR_LEDGER)) is None


async def test_ledger_of_a_write_under_way_is_deleted_with_its_log() -> None:
    class Late(MemoryMetadataStore):
        late = True

        async def delete(self, key: str, expected: int | None = None) -> None:
            if self.late and key == cursor_key(NAME, "s"):
                self.late = False
                await world.environment.ledgers.create(CURSOR_LEDGER + 1, {})
                in_node = CursorInfo(Position(1, 1))
                await self.put(key, encode_cursor(StoredCursor(in_node, CURSOR_LEDGER + 1)))
            await super().delete(key, expected)

    world = World(Late())
    log = await log_of_ten(world)
    await left_by_apache(world, [], log)
    assert await decide_deletion(NAME, world.metadata)
    await delete_managed_ledger(NAME, world.metadata, world.environment.ledgers, no_tier)
    assert await world.metadata.get(cursor_key(NAME, "s")) is None
    assert await world.metadata.get(ledger_key(CURSOR_LEDGER + 1)) is None


async def test_cursor_that_cannot_be_read_is_deleted_with_its_log(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await log_of_ten(world)
    await world.metadata.put(cursor_key(NAME, "s"), b"\xff")
    assert await decide_deletion(NAME, world.metadata)
    await delete_managed_ledger(NAME, world.metadata, world.environment.ledgers, no_tier)
    assert await world.metadata.get(cursor_key(NAME, "s")) is None
    assert "cannot be read" in caplog.text


async def test_cursor_ledger_that_cannot_be_read_refuses_the_open(world: World) -> None:
    log = await log_of_ten(world)
    await left_by_apache(world, [encode_position(StoredPosition(CursorInfo(Position(log, 1))))], log)
    world.ledgers.refuse_reads = 101
    with pytest.raises(PersistenceError):
        await world.open()
    # The position is kept for the next open.
    found = await world.metadata.get(cursor_key(NAME, "s"))
    assert found is not None
    assert decode_cursor(found.value).ledger_id == CURSOR_LEDGER
    assert await world.metadata.get(ledger_key(CURSOR_LEDGER)) is not None


class LosesOneAnswer(MemoryMetadataStore):
    """Carries out a write and does not answer it."""

    loses = False

    async def put(self, key: str, value: bytes, expected: int | None = None) -> int:
        version = await super().put(key, value, expected)
        if self.loses:
            self.loses = False
            raise MetadataError("the answer is lost")
        return version


async def test_cursor_whose_creation_was_not_answered_is_found_by_the_next_attempt() -> None:
    store = LosesOneAnswer()
    ledger = await World(store).open()
    await fill(ledger, 3)
    store.loses = True
    with pytest.raises(MetadataError, match="answer is lost"):
        await ledger.cursors.open("s", EARLIEST)
    cursor = await ledger.cursors.open("s", EARLIEST)
    assert cursor.backlog == 3
    assert ledger.cursors.by_name["s"] is cursor


async def test_cursor_that_another_broker_uses_is_not_taken_for_an_own_one() -> None:
    store = MemoryMetadataStore()
    ledger = await World(store).open()
    await fill(ledger, 3)
    used = CursorInfo(Position(at(ledger, 0).ledger_id, 1))
    await store.put(cursor_key(NAME, "s"), encode_cursor(StoredCursor(used, CURSOR_LEDGER)))
    with pytest.raises(BadVersion):
        await ledger.cursors.open("s", EARLIEST)
