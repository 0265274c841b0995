"""A broker dies at each of its writes of a cursor: no acknowledgement is lost, and audits find each ledger left."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from broker.managed_ledger.managed_ledger_info import cursor_key
from broker.managed_ledger.records.pulsar_records import decode_cursor
from broker.managed_ledger.removal.deletion import decide_deletion, delete_managed_ledger, no_tier
from foundation.model.errors import MetadataError
from magnetar.audit.facts import gather, judge
from magnetar.snapshot.node_rows import Node
from tests.broker.managed_ledger.ledger_fakes import (
    NAME,
    OK,
    WRITE_FAILED,
    FakeLedgers,
    World,
    at,
    fill,
    turns,
    until,
)
from tests.broker.managed_ledger.test_cursor_record import (
    ENTRIES,
    Store,
    acknowledge,
    acknowledge_in_passing,
    cursor_ledgers,
    in_node,
    opened,
)
from tests.fakes.metadata import WritesUntilCrash


async def live(world: World, done: list[set[int]], store: Store) -> None:
    """Acknowledges, rolls over, meets a refused add, sets a text, closes; `done` follows the stored entries."""
    ledger, cursor = await opened(world, cursor_entries_max=2, node_ranges_max=2)
    await fill(ledger, ENTRIES)
    so_far = set[int]()
    for index in (0, 2, 4, 1, 6, 8):
        if index == 1:
            world.ledgers.refuse = lambda ledger_id, entry_id: WRITE_FAILED
        so_far = so_far | {index}
        done.append(so_far)
        await store(ledger, cursor, index)
        world.ledgers.refuse = lambda ledger_id, entry_id: OK
        if index == 6:
            cursor.store.keep_properties({"team": "billing"})
            await cursor.store.flush()
        done[:-1] = []
    await ledger.close()
    ledger, cursor = await opened(world, cursor_entries_max=2, node_ranges_max=9)
    done.append(so_far | {10})
    await store(ledger, cursor, 10)
    done[:-1] = []
    await ledger.close()


async def writes_of_a_life(way_of_storing: Store) -> int:
    plenty = 1 << 20
    way = WritesUntilCrash(MemoryMetadataStore(), plenty)
    await live(World(way, shared_store=True), [], way_of_storing)
    return plenty - way.left


async def nodes_of(store: MemoryMetadataStore) -> Iterator[Node]:
    return iter([Node(key, one.value, one.version, None, None) for key, one in store._values.items()])


async def check(after: World, done: list[set[int]]) -> None:
    """Stored acknowledgements hold; that of the write under way may hold, and no other does."""
    ledger, cursor = await opened(after)
    entries = sum(info.entries for info in ledger.ledgers.infos())
    acked = {index for index in range(entries) if cursor.acks.is_acknowledged(at(ledger, index))}
    assert acked in done, (acked, done)
    await ledger.close()


@pytest.mark.parametrize("way_of_storing", [acknowledge, acknowledge_in_passing])
async def test_no_crash_loses_an_acknowledgement_or_hides_a_ledger(way_of_storing: Store) -> None:
    """The broker dies before each of its writes of the metadata store."""
    count = await writes_of_a_life(way_of_storing)
    hidden = 0
    for writes in range(2, count):
        store, bookie = MemoryMetadataStore(), FakeLedgers()
        way, done = WritesUntilCrash(store, writes), list[set[int]]()
        done.append(set())
        life = asyncio.ensure_future(live(World(way, bookie, shared_store=True), done, way_of_storing))
        await until(lambda way=way, life=life: way.dead or life.done())  # type: ignore[misc]  # bound for the loop
        # More than once: a close that is cancelled still waits for its background work, which waits for the dead store.
        while not life.done():
            life.cancel()
            await asyncio.sleep(0)
        if await store.get(cursor_key(NAME, "s")) is None:
            continue
        named = {decode_cursor(store._values[cursor_key(NAME, "s")].value).ledger_id}
        bookie.refuse = lambda ledger_id, entry_id: OK
        found = {one.subject for one in judge(gather(await nodes_of(store))) if one.kind == "orphan"}
        of_cursor = await cursor_ledgers(World(store, bookie, shared_store=True))
        # A former ledger may be left, and the audit finds it.
        assert {str(one) for one in of_cursor - named} <= found
        hidden += len(of_cursor - named)
        world = World(store, bookie, shared_store=True)
        await check(world, done)
        assert await decide_deletion(NAME, store)
        await delete_managed_ledger(NAME, store, world.environment.ledgers, no_tier)
        left = {key for key in store._values if key.startswith("/ledgers/0")}
        assert len(left) <= len(of_cursor - named)
    assert hidden, "a crash between the node and the deletion of the former ledger was tried"


async def test_entry_whose_confirmation_is_lost_may_be_the_position() -> None:
    shared = World(shared_store=True)
    ledger, cursor = await opened(shared)
    await fill(ledger, 3)
    await acknowledge(ledger, cursor, 0)
    shared.ledgers.hold()
    cursor.acknowledge([at(ledger, 1)])
    used = (await in_node(shared)).ledger_id
    await until(lambda: len(shared.ledgers.stored[used]) == 2)
    copy = shared.copy_after_crash()
    copied = World(copy.metadata, copy.ledgers, shared_store=True)
    _, again = await opened(copied)
    assert again.mark_delete_position == at(ledger, 1)


@pytest.mark.parametrize("ends_first", [True, False])
@pytest.mark.parametrize("is_full", [True, False])
async def test_deleted_topic_leaves_no_ledger_that_its_cursor_began(ends_first: bool, is_full: bool) -> None:
    """The write of the cursor ends before the deletion, or after all of it."""
    world = World(shared_store=True)
    ledger, cursor = await opened(world, cursor_entries_max=2)
    await fill(ledger, ENTRIES)
    if is_full:
        await acknowledge(ledger, cursor, 0)
        await acknowledge(ledger, cursor, 1)
    world.ledgers.hold()
    cursor.acknowledge([at(ledger, 2)])
    await until(lambda: world.ledgers.held)
    abandoning = asyncio.ensure_future(ledger.abandon())
    await turns()
    if ends_first:
        world.ledgers.answer_at_once_again()
    await abandoning
    assert await decide_deletion(NAME, world.metadata)
    await delete_managed_ledger(NAME, world.metadata, world.environment.ledgers, no_tier)
    world.ledgers.answer_at_once_again()
    await cursor.store.settle()
    assert await cursor_ledgers(world) == set()


async def test_node_that_cannot_be_written_costs_one_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(shared_store=True)
    ledger, cursor = await opened(world)
    await fill(ledger, ENTRIES)

    async def refuse(*arguments: object) -> None:
        raise MetadataError("refused by the test")

    with monkeypatch.context() as patch:
        patch.setattr(world.metadata, "put", refuse)
        for index in range(3):
            with pytest.raises(MetadataError):
                await acknowledge(ledger, cursor, index)
    (only,) = await cursor_ledgers(world)
    await acknowledge(ledger, cursor, 3)
    assert (await in_node(world)).ledger_id == only
    ledger, again = await opened(world.after_crash(shared_store=True))
    assert again.mark_delete_position == at(ledger, 3)
