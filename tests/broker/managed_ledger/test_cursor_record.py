"""Cursors on a shared store: positions in ledgers, the node for what Pulsar keeps there, and every crash in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from broker.managed_ledger.managed_cursor import ManagedCursor
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.managed_ledger.managed_ledger_info import cursor_key
from broker.managed_ledger.records.pulsar_records import (
    StoredCursor,
    StoredPosition,
    decode_cursor,
    decode_position,
    encode_cursor,
)
from foundation.model.errors import BadVersion, MetadataError
from foundation.model.position import EARLIEST
from protocol.ledger_metadata import LedgerState, decode, ledger_key
from tests.broker.managed_ledger.ledger_fakes import (
    EVERY_CHANGE,
    NAME,
    OK,
    WRITE_FAILED,
    World,
    at,
    fill,
    turns,
    until,
)

ENTRIES = 12
Store = Callable[..., Awaitable[None]]


@pytest.fixture
async def shared() -> World:
    return World(shared_store=True)


async def opened(world: World, **settings: Any) -> tuple[ManagedLedger, ManagedCursor]:
    ledger = await world.open(mark_delete_rate=EVERY_CHANGE, **settings)
    return ledger, await ledger.cursors.open("s", EARLIEST)


async def acknowledge(ledger: ManagedLedger, cursor: ManagedCursor, *indexes: int) -> None:
    cursor.acknowledge([at(ledger, index) for index in indexes])
    await cursor.store.flush()


async def acknowledge_in_passing(ledger: ManagedLedger, cursor: ManagedCursor, *indexes: int) -> None:
    """As clients do: the writer decides when it stores the acknowledgements."""
    stored = asyncio.Event()
    cursor.acknowledge([at(ledger, index) for index in indexes])
    cursor.store.on_durable(stored.set)
    await until(lambda: stored.is_set() or getattr(cursor.store, "last_error", None) is not None)


async def in_node(world: World) -> StoredCursor:
    found = await world.metadata.get(cursor_key(NAME, "s"))
    assert found is not None
    return decode_cursor(found.value)


async def version(world: World) -> int:
    found = await world.metadata.get(cursor_key(NAME, "s"))
    assert found is not None
    return found.version


async def exists(world: World, ledger_id: int) -> bool:
    return await world.metadata.get(ledger_key(ledger_id)) is not None


async def cursor_ledgers(world: World) -> set[int]:
    assert isinstance(world.metadata, MemoryMetadataStore)
    return {
        int(key.rpartition("L")[2])
        for key, one in world.metadata._values.items()
        if key.startswith("/ledgers/0") and b"pulsar/cursor" in one.value
    }


def positions(world: World, ledger_id: int) -> list[StoredPosition]:
    """The entries that the bookie has: 32 bytes of header and 4 of the digest, then the position."""
    return [decode_position(entry[36:]) for entry in world.ledgers.stored[ledger_id].values()]


async def test_busy_cursor_adds_to_its_ledger_and_leaves_the_node(shared: World) -> None:
    ledger, cursor = await opened(shared)
    await fill(ledger, ENTRIES)
    assert (await in_node(shared)).ledger_id == -1
    await acknowledge(ledger, cursor, 0)
    stored, before = await in_node(shared), await version(shared)
    for index in range(1, 10):
        await acknowledge(ledger, cursor, index)
    assert await version(shared) == before
    found = positions(shared, stored.ledger_id)
    assert [one.info.mark_delete for one in found] == [at(ledger, index) for index in range(10)]
    assert cursor.store.ledger == (stored.ledger_id, 9)


async def test_ledger_of_a_cursor_tells_tools_its_owner(shared: World) -> None:
    ledger, cursor = await opened(shared)
    await fill(ledger, 1)
    await acknowledge(ledger, cursor, 0)
    found = await shared.metadata.get(ledger_key((await in_node(shared)).ledger_id))
    assert found is not None
    assert decode(found.value).custom == {
        "application": b"pulsar",
        "component": b"managed-ledger",
        "pulsar/managed-ledger": NAME.encode(),
        "pulsar/cursor": b"s",
    }


async def test_embedded_store_keeps_the_position_in_the_node(world: World) -> None:
    ledger, cursor = await opened(world)
    await fill(ledger, 2)
    await acknowledge(ledger, cursor, 0, 1)
    assert await in_node(world) == StoredCursor((await in_node(world)).info, -1, world.wall)
    assert (await in_node(world)).info.mark_delete == at(ledger, 1)


@pytest.mark.parametrize("as_bits", [True, False])
async def test_position_survives_a_kill(shared: World, as_bits: bool) -> None:
    ledger, cursor = await opened(shared, acks_as_bits=as_bits)
    await fill(ledger, ENTRIES)
    await acknowledge(ledger, cursor, 0, 1, 4, 7)
    cursor.acknowledge_batch(at(ledger, 9), [0b01], 2)
    await cursor.store.flush()
    marked = at(ledger, 1)
    ledger, cursor = await opened(shared.after_crash(shared_store=True))
    assert cursor.mark_delete_position == marked
    assert cursor.backlog == ENTRIES - 4
    assert cursor.acks.ack_set_of(at(ledger, 9)) == (1,)


async def test_full_ledger_is_followed_by_another_and_deleted(shared: World) -> None:
    ledger, cursor = await opened(shared, cursor_entries_max=3)
    await fill(ledger, ENTRIES)
    used = []
    for index in range(7):
        await acknowledge(ledger, cursor, index)
        used.append((await in_node(shared)).ledger_id)
    await cursor.store.settle()
    assert [used.count(one) for one in sorted(set(used))] == [3, 3, 1]
    assert [await exists(shared, one) for one in sorted(set(used))] == [False, False, True]


async def test_old_ledger_is_followed_by_another(shared: World) -> None:
    """After half of the time to all of it, by the cursor's name: those of a start would all roll over together."""
    ledger, cursor = await opened(shared, cursor_rollover_ns=1000)
    await fill(ledger, 3)
    await acknowledge(ledger, cursor, 0)
    first = (await in_node(shared)).ledger_id
    shared.clock.advance(499)
    await acknowledge(ledger, cursor, 1)
    assert (await in_node(shared)).ledger_id == first
    shared.clock.advance(501)
    await acknowledge(ledger, cursor, 2)
    assert (await in_node(shared)).ledger_id != first


async def test_close_brings_the_position_back_to_the_node(shared: World) -> None:
    ledger, cursor = await opened(shared)
    await fill(ledger, ENTRIES)
    await acknowledge(ledger, cursor, 0, 3, 5)
    used = (await in_node(shared)).ledger_id
    await ledger.close()
    stored = await in_node(shared)
    assert (stored.ledger_id, stored.info.mark_delete) == (-1, at(ledger, 0))
    assert not await exists(shared, used)
    ledger, cursor = await opened(shared.after_crash(shared_store=True))
    assert cursor.backlog == ENTRIES - 3


async def test_cursor_with_many_ranges_stays_in_its_ledger_at_a_close(shared: World) -> None:
    ledger, cursor = await opened(shared, node_ranges_max=2)
    await fill(ledger, ENTRIES)
    await acknowledge(ledger, cursor, 1, 3, 5)
    used = (await in_node(shared)).ledger_id
    await ledger.close()
    assert (await in_node(shared)).ledger_id == used
    found = await shared.metadata.get(ledger_key(used))
    assert found is not None
    assert decode(found.value).state is LedgerState.CLOSED
    # Opened and closed without a change: nothing is written.
    before = await version(shared)
    ledger, cursor = await opened(shared.after_crash(shared_store=True), node_ranges_max=2)
    assert cursor.backlog == ENTRIES - 3
    await ledger.close()
    assert await version(shared) == before
    # With fewer ranges it goes back to the node.
    ledger, cursor = await opened(shared.after_crash(shared_store=True), node_ranges_max=2)
    await acknowledge(ledger, cursor, 0, 2)
    await ledger.close()
    assert (await in_node(shared)).ledger_id == -1
    assert not await exists(shared, used)


async def test_ledger_that_has_more_than_the_node_can_take_stays(shared: World) -> None:
    assert isinstance(shared.metadata, MemoryMetadataStore)
    shared.metadata.value_bytes_max = 400
    ledger, cursor = await opened(shared, read_bytes_max=1 << 20)
    await fill(ledger, 100)
    await acknowledge(ledger, cursor, *range(1, 100, 2))
    assert cursor.store.left_out == 0
    await ledger.close()
    assert (await in_node(shared)).ledger_id >= 0
    ledger, cursor = await opened(shared.after_crash(shared_store=True))
    assert cursor.backlog == 50


async def test_add_to_the_open_ledger_begins_no_task(shared: World) -> None:
    ledger, cursor = await opened(shared)
    await fill(ledger, ENTRIES)
    await acknowledge(ledger, cursor, 0)
    used = (await in_node(shared)).ledger_id
    await cursor.store.settle()
    before = asyncio.all_tasks()
    shared.ledgers.hold()
    cursor.acknowledge([at(ledger, 1)])
    await until(lambda: shared.ledgers.held)
    assert asyncio.all_tasks() == before
    # One write is in flight at most, and the next one has all that came meanwhile.
    cursor.acknowledge([at(ledger, 2)])
    cursor.acknowledge([at(ledger, 4)])
    await turns()
    assert len(shared.ledgers.stored[used]) == 2
    shared.ledgers.answer_at_once_again()
    await until(lambda: len(shared.ledgers.stored[used]) == 3)
    _, again = await opened(shared.after_crash(shared_store=True))
    assert (again.mark_delete_position, again.backlog) == (at(ledger, 2), ENTRIES - 4)


async def test_texts_alone_begin_no_ledger(shared: World) -> None:
    ledger, cursor = await opened(shared)
    await fill(ledger, ENTRIES)
    cursor.store.keep_properties({"team": "billing"})
    await cursor.store.flush()
    stored = await in_node(shared)
    assert (stored.ledger_id, stored.info.cursor_properties) == (-1, {"team": "billing"})
    await acknowledge(ledger, cursor, 0)
    assert (await in_node(shared)).ledger_id >= 0


@pytest.mark.parametrize("end", ["close", "delete"])
async def test_end_of_a_cursor_waits_for_its_add(shared: World, end: str) -> None:
    ledger, cursor = await opened(shared)
    await fill(ledger, ENTRIES)
    await acknowledge(ledger, cursor, 0)
    used = (await in_node(shared)).ledger_id
    shared.ledgers.hold()
    cursor.acknowledge([at(ledger, 1)])
    await until(lambda: shared.ledgers.held)
    ending = asyncio.ensure_future(ledger.close() if end == "close" else ledger.cursors.delete("s"))
    await turns()
    assert not ending.done()
    shared.ledgers.answer_at_once_again()
    await ending
    assert not await exists(shared, used)
    if end == "close":
        assert (await in_node(shared)).info.mark_delete == at(ledger, 1)
    else:
        assert await shared.metadata.get(cursor_key(NAME, "s")) is None


@pytest.mark.parametrize("store", [acknowledge, acknowledge_in_passing])
async def test_refused_add_brings_the_position_to_the_node(shared: World, store: Store) -> None:
    ledger, cursor = await opened(shared)
    await fill(ledger, ENTRIES)
    await acknowledge(ledger, cursor, 0)
    used = (await in_node(shared)).ledger_id
    shared.ledgers.refuse = lambda ledger_id, entry_id: WRITE_FAILED
    await store(ledger, cursor, 1, 3)
    shared.ledgers.refuse = lambda ledger_id, entry_id: OK
    stored = await in_node(shared)
    assert (stored.ledger_id, stored.info.mark_delete) == (-1, at(ledger, 1))
    await cursor.store.settle()
    assert not await exists(shared, used)
    # The next one goes to a new ledger.
    await acknowledge(ledger, cursor, 2)
    again = (await in_node(shared)).ledger_id
    assert again not in (-1, used)
    ledger, cursor = await opened(shared.after_crash(shared_store=True))
    assert cursor.backlog == ENTRIES - 4


async def test_texts_and_position_change_in_one_entry(shared: World) -> None:
    """A transaction's acknowledgements are a text until they are made: no crash may keep one of both."""
    ledger, cursor = await opened(shared)
    await fill(ledger, 3)
    cursor.store.keep_properties({"magnetar.pending": "0"})
    await acknowledge(ledger, cursor, 1)
    before = await version(shared)
    cursor.store.keep_properties({})
    await acknowledge(ledger, cursor, 0)
    assert await version(shared) == before, "texts of Magnetar need no write of the node"
    last = positions(shared, (await in_node(shared)).ledger_id)[-1]
    assert (last.info.mark_delete, last.info.cursor_properties) == (at(ledger, 1), {})
    ledger, cursor = await opened(shared.after_crash(shared_store=True))
    assert cursor.store.cursor_properties == {}, "those of the node are older"


async def test_texts_of_a_subscription_are_in_the_node_for_other_brokers(shared: World) -> None:
    ledger, cursor = await opened(shared)
    await fill(ledger, 3)
    await acknowledge(ledger, cursor, 0)
    used = (await in_node(shared)).ledger_id
    cursor.store.keep_properties({"team": "billing"})
    await cursor.store.flush()
    stored = await in_node(shared)
    assert (stored.ledger_id, stored.info.cursor_properties) == (used, {"team": "billing"})
    ledger, cursor = await opened(shared.after_crash(shared_store=True))
    assert (cursor.store.cursor_properties, cursor.backlog) == ({"team": "billing"}, 2)


async def test_deleted_cursor_leaves_no_ledger(shared: World) -> None:
    ledger, cursor = await opened(shared)
    await fill(ledger, 1)
    await acknowledge(ledger, cursor, 0)
    used = (await in_node(shared)).ledger_id
    await ledger.cursors.delete("s")
    assert await shared.metadata.get(cursor_key(NAME, "s")) is None
    assert not await exists(shared, used)


async def test_broker_that_lost_the_cursor_stores_nothing_more(shared: World) -> None:
    """The new one reads the ledger, which fences it, and writes the node first."""
    ledger, cursor = await opened(shared)
    await fill(ledger, ENTRIES)
    await acknowledge(ledger, cursor, 0)
    second, found = await opened(shared.after_crash(shared_store=True))
    await acknowledge(second, found, 1)
    stored = await in_node(shared)
    with pytest.raises(BadVersion):
        await acknowledge(ledger, cursor, 5)
    assert await in_node(shared) == stored
    await acknowledge(second, found, 2)
    _, third = await opened(shared.after_crash(shared_store=True))
    assert (third.mark_delete_position, third.acks.beyond.count) == (at(second, 2), 0)


@pytest.mark.parametrize("write", ["put_all", "put"])
async def test_begin_whose_answer_is_lost_leaves_no_second_ledger(
    shared: World, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    """The ledger is made by `put_all`, and the node names it by `put`."""
    ledger, cursor = await opened(shared)
    await fill(ledger, 3)
    real = getattr(shared.metadata, write)

    async def then_lost(*arguments: Any) -> None:
        await real(*arguments)
        raise asyncio.CancelledError("the answer is lost")

    with monkeypatch.context() as patch:
        patch.setattr(shared.metadata, write, then_lost)
        cursor.acknowledge([at(ledger, 0)])
        with pytest.raises(asyncio.CancelledError):
            await cursor.store.flush()
    (first,) = await cursor_ledgers(shared)
    assert ((await in_node(shared)).ledger_id == first) is (write == "put")
    await acknowledge(ledger, cursor, 1)
    await cursor.store.settle()
    # A ledger that is known is named again; one whose making was not answered is deleted.
    (left,) = await cursor_ledgers(shared)
    assert left == (await in_node(shared)).ledger_id
    assert (left == first) is (write == "put")


async def test_node_names_a_ledger_only_after_its_first_entry(shared: World) -> None:
    """Apache's brokers forget all ranges of a cursor whose node names a ledger without entries."""
    ledger, cursor = await opened(shared, cursor_entries_max=2)
    await fill(ledger, ENTRIES)
    for index in range(4):
        before = (await in_node(shared)).ledger_id
        shared.ledgers.hold()
        cursor.acknowledge([at(ledger, index), at(ledger, 7)])
        await until(lambda: shared.ledgers.held)
        assert (await in_node(shared)).ledger_id == before
        assert cursor.store.ledger[0] == before, "as tools show it"
        assert (cursor.store.ledger[1] == -1) is (index % 2 == 0), "the entry is of a ledger without a name"
        shared.ledgers.answer_at_once_again()
        await cursor.store.flush()
    assert before != -1, "one ledger was full, and another followed"


async def test_ledger_without_an_entry_leaves_the_node_in_force(shared: World) -> None:
    """Former releases wrote the node first."""
    ledger, cursor = await opened(shared)
    await fill(ledger, ENTRIES)
    cursor.acknowledge([at(ledger, index) for index in (0, 1, 5)])
    await ledger.close()
    empty = await shared.environment.ids.next()
    await shared.environment.ledgers.create(empty, {})
    value = encode_cursor(StoredCursor((await in_node(shared)).info, empty, shared.wall))
    await shared.metadata.put(cursor_key(NAME, "s"), value, await version(shared))
    ledger, again = await opened(shared.after_crash(shared_store=True))
    assert (again.mark_delete_position, again.backlog) == (at(ledger, 1), ENTRIES - 3)


async def test_ledger_that_another_broker_kept_from_being_named_is_deleted(shared: World) -> None:
    ledger, cursor = await opened(shared)
    await fill(ledger, ENTRIES)
    second, found = await opened(shared.after_crash(shared_store=True))
    await acknowledge(second, found, 1)
    named = (await in_node(shared)).ledger_id
    with pytest.raises(BadVersion):
        await acknowledge(ledger, cursor, 5)
    assert (await in_node(shared)).ledger_id == named
    assert await cursor_ledgers(shared) == {named}


async def test_ledger_whose_id_is_taken_stays_and_the_next_try_takes_another(shared: World) -> None:
    ledger, cursor = await opened(shared)
    await fill(ledger, ENTRIES)
    taken = await shared.environment.ids.next() + 1
    await shared.environment.ledgers.create(taken, {})
    with pytest.raises(MetadataError, match=f"the ledger {taken} of its next positions exists already"):
        await acknowledge(ledger, cursor, 0)
    assert await exists(shared, taken)
    await cursor.store.flush()
    assert (await in_node(shared)).ledger_id == taken + 1
