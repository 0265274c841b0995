"""Schemas on a shared store: Pulsar's locators and ledgers, those of Apache's brokers, and the take-over of former nodes."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from broker.schemas.schema import HASH_BYTES, Schema, SchemaType
from broker.schemas.schema_ledgers import SchemaLedgers
from broker.schemas.schema_registry import SchemaRegistry
from broker.schemas.schema_store import ROOT, SchemaStore
from broker.schemas.strategy import Strategy
from foundation.model.errors import BadVersion, MetadataError, PersistenceError
from protocol.ledger_metadata import LedgerState, decode
from protocol.pulsar_metadata_pb2 import SchemaEntry, SchemaInfo, SchemaLocator
from tests.broker.managed_ledger.ledger_fakes import OK, WRITE_FAILED, World
from tests.broker.schemas.test_schema_registry import ANY, NOW_MS, TOPIC, avro
from tests.fakes.metadata import WritesUntilCrash

LOCATOR = "/schemas/public/default/orders%252F%20%26%20co"


@pytest.fixture
async def world() -> World:
    return World()


def registry_of(world: World) -> SchemaRegistry:
    one = world.environment
    store = SchemaLedgers(one.metadata, one.ledgers, one.ids, one.turn, one.now_ns)
    return SchemaRegistry(store, lambda: NOW_MS)


async def locator_of(world: World) -> SchemaLocator:
    found = await world.metadata.get(LOCATOR)
    assert found is not None
    return SchemaLocator.FromString(found.value)


def entry_of(world: World, one: SchemaLocator.IndexEntry) -> SchemaEntry:
    """The entry that the bookie has: 32 bytes of header and 4 of the digest come before it."""
    stored = world.ledgers.stored[one.position.ledgerId]
    return SchemaEntry.FromString(stored[one.position.entryId][36:])


def ledgers_of(world: World) -> dict[str, bytes]:
    assert isinstance(world.metadata, MemoryMetadataStore)
    return {key: one.value for key, one in world.metadata._values.items() if key.startswith("/ledgers/0")}


async def written_by_apache(world: World) -> None:
    """Drops the fields that Pulsar's brokers do not know, as they do when they add a version."""
    locator = await locator_of(world)
    for one in (*locator.index, locator.info):
        one.ClearField("type")
        one.ClearField("canonicalHash")
    await world.metadata.put(LOCATOR, locator.SerializeToString())


async def test_version_is_a_ledger_and_a_line_of_the_locator(world: World) -> None:
    schema = avro("a")._replace(properties={"k": "v"})
    assert await registry_of(world).add(TOPIC, schema, ANY) == 0
    locator = await locator_of(world)
    assert (locator.info, len(locator.index)) == (locator.index[0], 1)
    assert (locator.info.version, locator.info.hash) == (0, hashlib.sha256(schema.data).digest())
    entry = entry_of(world, locator.info)
    assert [(one.version, one.position.ledgerId, one.position.entryId) for one in entry.index] == [
        (0, -1, -1)
    ]
    info = SchemaInfo.FromString(entry.schemaData)
    assert (info.schemaId, info.user, info.type) == ("public/default/orders%252F%20%26%20co", "", 5)
    assert (info.schema, info.timestamp, info.deleted) == (schema.data, NOW_MS, False)
    assert [(one.key, one.value) for one in info.props] == [("k", "v")]
    (value,) = ledgers_of(world).values()
    metadata = decode(value)
    assert (metadata.state, metadata.last_entry_id) == (LedgerState.CLOSED, 0)
    assert metadata.custom == {
        "application": b"pulsar",
        "component": b"schema",
        "pulsar/schemaId": info.schemaId.encode(),
    }


async def test_later_versions_name_those_before_them(world: World) -> None:
    registry = registry_of(world)
    for name in ("a", "b", "c"):
        await registry.add(TOPIC, avro(name), ANY)
    locator = await locator_of(world)
    places = [(one.version, one.position.ledgerId) for one in locator.index]
    entry = entry_of(world, locator.info)
    assert [(one.version, one.position.ledgerId) for one in entry.index] == places[:2]
    found = await registry_of(world).versions(TOPIC)
    assert [one.schema for one in found] == [avro(name) for name in ("a", "b", "c")]
    assert {one.created_ms for one in found} == {NOW_MS}


@pytest.mark.parametrize("apache", [False, True])
@pytest.mark.parametrize(
    "schema",
    [
        avro("a"),
        Schema(SchemaType.STRING, b"", {"k": "v"}),
        Schema(SchemaType.EXTERNAL, b"x", {}),
        Schema(SchemaType.LOCAL_DATE_TIME, b"", {}),
    ],
    ids=lambda schema: schema.type.name,
)
async def test_schema_is_read_as_it_was_written(world: World, schema: Schema, apache: bool) -> None:
    await registry_of(world).add(TOPIC, schema, ANY)
    if apache:
        await written_by_apache(world)
    later = registry_of(world)
    found = await later.get(TOPIC, 0)
    assert found is not None
    assert found.schema == schema
    assert await later.find_same(TOPIC, schema) == 0
    assert await later.add(TOPIC, schema, Strategy.FULL) == 0


@pytest.mark.parametrize("apache", [False, True])
async def test_equal_schema_is_found_by_its_canonical_form(world: World, apache: bool) -> None:
    await registry_of(world).add(TOPIC, avro("a"), ANY)
    if apache:
        await written_by_apache(world)
    assert await registry_of(world).find_equal(TOPIC, avro("a", doc="the same")) == 0


async def test_places_name_the_ledger_of_each_version_and_deletion(world: World) -> None:
    registry = registry_of(world)
    assert await registry.places(TOPIC) == []
    for name in ("a", "b"):
        await registry.add(TOPIC, avro(name), ANY)
    await registry.delete(TOPIC)
    await registry.add(TOPIC, avro("z"), ANY)
    found = await registry_of(world).places(TOPIC)
    assert [version for version, _ in found] == [0, 1, 2, 3]
    # Each entry has the definition of its version, so the places are those of the ledgers.
    stored = [world.ledgers.stored[place.ledger_id][place.entry_id] for _, place in found]
    infos = [SchemaInfo.FromString(SchemaEntry.FromString(one[36:]).schemaData) for one in stored]
    assert [one.schema for one in infos] == [avro("a").data, avro("b").data, b"", avro("z").data]


async def test_deletion_is_a_version_and_hides_those_before_it(world: World) -> None:
    registry = registry_of(world)
    await registry.add(TOPIC, avro("a"), ANY)
    assert await registry.delete(TOPIC) == 1
    locator = await locator_of(world)
    info = SchemaInfo.FromString(entry_of(world, locator.info).schemaData)
    assert (locator.info.version, locator.info.hash, info.type, info.deleted) == (1, b"", 1, True)
    assert info.timestamp == NOW_MS
    later = registry_of(world)
    assert not await later.exists(TOPIC)
    newest = await later.get(TOPIC)
    assert newest is not None
    assert (newest.version, newest.schema) == (1, None)
    assert await later.add(TOPIC, avro("z"), Strategy.FULL) == 2
    assert [one.version for one in await registry_of(world).versions(TOPIC)] == [2]


async def test_forgotten_schema_leaves_no_ledger_and_begins_at_version_0(world: World) -> None:
    registry = registry_of(world)
    await registry.add(TOPIC, avro("a"), ANY)
    await registry.delete(TOPIC)
    await registry.add(TOPIC, avro("b"), ANY)
    assert await registry.ids("public/default") == [TOPIC]
    await registry.forget(TOPIC)
    assert (ledgers_of(world), await world.metadata.get(LOCATOR)) == ({}, None)
    assert await registry.ids("public/default") == []
    assert await registry.add(TOPIC, avro("z"), ANY) == 0


async def test_version_of_another_broker_is_kept_and_the_ledger_of_the_loser_deleted(world: World) -> None:
    mine, other = registry_of(world), registry_of(world)
    index = await mine._store.index(TOPIC)
    await other.add(TOPIC, avro("a"), ANY)
    with pytest.raises(BadVersion):
        await mine._store.add(TOPIC, index, avro("b"), None, NOW_MS)
    assert await mine.add(TOPIC, avro("b"), ANY) == 1
    assert [one.version for one in await registry_of(world).versions(TOPIC)] == [0, 1]
    assert len(ledgers_of(world)) == 2


async def test_loser_of_two_brokers_at_the_same_moment_deletes_its_ledger(world: World) -> None:
    mine, other = registry_of(world), registry_of(world)
    put = world.metadata.put

    async def other_first(key: str, value: bytes, expected: int | None = None) -> int:
        if key == LOCATOR:
            world.metadata.put = put  # type: ignore[method-assign]  # once
            await other.add(TOPIC, avro("a"), ANY)
        return await put(key, value, expected)

    world.metadata.put = other_first  # type: ignore[method-assign]  # the other broker comes in between
    assert await mine.add(TOPIC, avro("b"), ANY) == 1
    assert len(ledgers_of(world)) == 2


async def test_refused_add_stores_no_version(world: World) -> None:
    registry = registry_of(world)
    world.ledgers.refuse = lambda ledger_id, entry_id: WRITE_FAILED
    with pytest.raises(PersistenceError):
        await registry.add(TOPIC, avro("a"), ANY)
    world.ledgers.refuse = lambda ledger_id, entry_id: OK
    assert not await registry.exists(TOPIC)
    assert await registry.add(TOPIC, avro("a"), ANY) == 0


async def test_damaged_locator_is_told(world: World) -> None:
    for value in (b"\xff", b"\x12\x00"):
        await world.metadata.put(LOCATOR, value)
        with pytest.raises(MetadataError, match="cannot be read"):
            await registry_of(world).get(TOPIC)


@pytest.mark.parametrize("ends", ["schema", "deletion", "deletion alone"])
async def test_former_nodes_are_taken_over_once(world: World, ends: str) -> None:
    former = SchemaRegistry(SchemaStore(world.metadata), lambda: NOW_MS)
    if ends != "deletion alone":
        await former.add(TOPIC, avro("a"), ANY)
    await former.delete(TOPIC)
    if ends == "schema":
        await former.add(TOPIC, avro("b"), ANY)
        await former.add(TOPIC, avro("c"), ANY)
    wanted = await former.versions(TOPIC), await former.get(TOPIC)
    registry = registry_of(world)
    await registry.open()
    got = await registry.versions(TOPIC), await registry.get(TOPIC)
    assert got == wanted
    assert await world.metadata.children(ROOT) == []
    before = await world.metadata.get(LOCATOR)
    await registry.open()
    assert await world.metadata.get(LOCATOR) == before
    assert await registry.find_equal(TOPIC, avro("c", doc="d")) == (3 if ends == "schema" else None)
    index = await registry._store.index(TOPIC)
    assert all(len(one.data_hash) == HASH_BYTES for one in index.entries)


@pytest.mark.parametrize("writes", range(1, 12))
async def test_take_over_that_dies_is_done_again(world: World, writes: int) -> None:
    """The broker dies before a write of the metadata store; the next one begins again."""
    former = SchemaRegistry(SchemaStore(world.metadata), lambda: NOW_MS)
    for name in ("a", "b"):
        await former.add(TOPIC, avro(name), ANY)
    wanted = await former.versions(TOPIC)
    dying = World(WritesUntilCrash(world.metadata, writes), world.ledgers)
    opening = asyncio.ensure_future(registry_of(dying).open())
    for _ in range(500):
        await asyncio.sleep(0)
    opening.cancel()
    await asyncio.wait((opening,))
    registry = registry_of(World(world.metadata, world.ledgers))
    await registry.open()
    assert await registry.versions(TOPIC) == wanted
    assert await world.metadata.children(ROOT) == []


async def test_change_by_another_broker_or_a_tool_is_seen_at_once(world: World) -> None:
    one, other = registry_of(world), registry_of(world)
    assert not await other.exists(TOPIC)
    await one.add(TOPIC, avro("a"), ANY)
    assert [found.schema for found in await other.versions(TOPIC)] == [avro("a")]
    await other.add(TOPIC, avro("b"), ANY)
    assert [found.schema for found in await one.versions(TOPIC)] == [avro("a"), avro("b")]
    await world.metadata.delete(LOCATOR)
    assert not await one.exists(TOPIC)
    # Its versions begin with 0 again.
    await other.add(TOPIC, avro("c"), ANY)
    assert [found.schema for found in await one.versions(TOPIC)] == [avro("c")]
