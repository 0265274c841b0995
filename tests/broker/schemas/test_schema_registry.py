"""SchemaRegistry: versions in every metadata store, their numbers, deletions, and definitions that must not be stored."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import MetadataStore, Write
from broker.schemas import schema_store
from broker.schemas.definitions import SCHEMA_BYTES_MAX
from broker.schemas.schema import Schema, SchemaType
from broker.schemas.schema_registry import SchemaRegistry
from broker.schemas.schema_store import CACHE_BYTES_MAX, ROOT, SchemaStore
from broker.schemas.strategy import Strategy
from foundation.model.errors import BadVersion, IncompatibleSchema, InvalidSchemaData, MetadataError

TOPIC = "public/default/orders%2F & co"
NOW_MS = 1_700_000_000_000
ANY = Strategy.ALWAYS_COMPATIBLE


def avro(*fields: str, optional: bool = False, **more: str) -> Schema:
    """A record of integers; `optional` gives each a default."""
    default = {"default": 0} if optional else {}
    definition = {
        "type": "record",
        "name": "A",
        "fields": [{"name": name, "type": "int", **default} for name in fields],
        **more,
    }
    return Schema(SchemaType.AVRO, json.dumps(definition).encode(), {})


def registry_on(store: MetadataStore) -> SchemaRegistry:
    return SchemaRegistry(SchemaStore(store), lambda: NOW_MS)


async def stored(registry: SchemaRegistry) -> list[int]:
    return [found.version for found in await registry.versions(TOPIC)]


async def test_versions_are_numbered_and_equal_schemas_share_one(store: MetadataStore) -> None:
    registry = registry_on(store)
    first, second = avro("a"), avro("a", "b", optional=True)
    assert await registry.add(TOPIC, first, ANY) == 0
    assert await registry.add(TOPIC, second, ANY) == 1
    assert await registry.add(TOPIC, avro("a", doc="the same"), ANY) == 0
    assert await registry.find_same(TOPIC, avro("a", doc="the same")) is None
    assert await registry.find_equal(TOPIC, avro("a", doc="the same")) == 0
    assert await registry.get("public/default/orders", 0) is None, "the name is quoted"


async def test_versions_are_read_back_by_a_later_broker(store: MetadataStore) -> None:
    properties = {"k": "v", "ü": ""}
    schema = avro("a")._replace(properties=properties)
    await registry_on(store).add(TOPIC, schema, ANY)
    await registry_on(store).add(TOPIC, Schema(SchemaType.STRING, b"", {}), ANY)
    later = registry_on(store)
    found = await later.get(TOPIC, 0)
    assert found is not None
    assert (found.version, found.schema, found.created_ms) == (0, schema, NOW_MS)
    newest = await later.get(TOPIC)
    assert newest is not None
    assert newest.version == 1
    assert await later.add(TOPIC, avro("a", doc="equal"), ANY) == 0
    assert await later.get(TOPIC, 2) is None
    assert await later.get(TOPIC, -1) is None


async def test_deletion_takes_a_number_and_hides_older_versions(store: MetadataStore) -> None:
    registry = registry_on(store)
    await registry.add(TOPIC, avro("a"), ANY)
    await registry.add(TOPIC, avro("b"), ANY)
    assert await registry.delete(TOPIC) == 2
    for look in (registry, registry_on(store)):
        newest = await look.get(TOPIC)
        assert newest is not None
        assert (newest.version, newest.schema) == (2, None)
        assert await look.get(TOPIC, 0) is None
        assert not await look.exists(TOPIC)
    assert await registry.delete(TOPIC) == 3
    # Incompatible with the deleted one, which has no influence any more.
    assert await registry.add(TOPIC, avro("z"), Strategy.FULL) == 4
    assert await registry.add(TOPIC, avro("z", "a", optional=True), Strategy.BACKWARD) == 5
    assert await stored(registry_on(store)) == [4, 5]


async def test_forgotten_schema_leaves_nothing_and_begins_at_version_0(store: MetadataStore) -> None:
    registry = registry_on(store)
    await registry.forget(TOPIC)
    for name in ("a", "b", "c"):
        await registry.add(TOPIC, avro(name), ANY)
    await registry.forget(TOPIC)
    assert await store.children(f"{ROOT}/public/default") == []
    assert await registry.get(TOPIC) is None
    assert await registry.add(TOPIC, avro("z"), Strategy.FULL) == 0
    assert await stored(registry_on(store)) == [0]


async def test_topic_without_a_schema_takes_a_deletion(store: MetadataStore) -> None:
    registry = registry_on(store)
    assert await registry.delete(TOPIC) == 0
    assert await registry.add(TOPIC, avro("a"), ANY) == 1


class Breaking(MemoryMetadataStore):
    """Fails after so many writes, as a broker that is killed does."""

    def __init__(self) -> None:
        super().__init__()
        self.writes_left = 1_000_000

    def _write(self) -> None:
        self.writes_left -= 1
        if self.writes_left < 0:
            raise MetadataError("killed")

    async def put(self, key: str, value: bytes, expected: int | None = None) -> int:
        self._write()
        return await super().put(key, value, expected)

    async def put_all(self, puts: Sequence[Write]) -> list[int]:
        self._write()
        return await super().put_all(puts)

    async def delete(self, key: str, expected: int | None = None) -> None:
        self._write()
        await super().delete(key, expected)


@pytest.mark.parametrize("writes", range(6))
async def test_schema_is_usable_after_a_deletion_that_was_killed(writes: int) -> None:
    store = Breaking()
    registry = registry_on(store)
    for name in ("a", "b"):
        await registry.add(TOPIC, avro(name), ANY)
    store.writes_left = writes
    killed = False
    try:
        await registry.forget(TOPIC)
    except MetadataError:
        killed = True
    assert killed is (writes < 4)
    store.writes_left = 1_000_000
    later = registry_on(store)
    assert await stored(later) == ([0, 1] if writes == 0 else [])
    await later.forget(TOPIC)
    assert await store.children(f"{ROOT}/public/default") == []
    assert await store.children(f"{ROOT}/public/default/orders%252F%20%26%20co") == []
    assert await later.add(TOPIC, avro("z"), ANY) == 0


async def test_two_brokers_that_add_versions_at_once_get_different_numbers(store: MetadataStore) -> None:
    registries = [registry_on(store) for _ in range(3)]
    numbers = await asyncio.gather(
        *(registry.add(TOPIC, avro(f"f{index}"), ANY) for index, registry in enumerate(registries))
    )
    assert sorted(numbers) == [0, 1, 2]
    assert await stored(registry_on(store)) == [0, 1, 2]


async def test_incompatible_schema_of_another_broker_is_found_when_the_index_has_changed() -> None:
    store = MemoryMetadataStore()
    mine, other = registry_on(store), registry_on(store)
    assert not await mine.exists(TOPIC)
    await other.add(TOPIC, avro("z"), ANY)
    with pytest.raises(IncompatibleSchema):
        await mine.add(TOPIC, avro("a"), Strategy.FULL)


async def test_deletion_of_another_broker_is_kept_when_a_version_is_added(store: MetadataStore) -> None:
    mine, other = registry_on(store), registry_on(store)
    await mine.add(TOPIC, avro("a"), ANY)
    await other.delete(TOPIC)
    assert await mine.add(TOPIC, avro("z"), Strategy.FULL) == 2
    assert await stored(registry_on(store)) == [2]


async def test_deletion_in_the_moment_of_the_write_is_kept() -> None:
    class Interrupted(MemoryMetadataStore):
        deletes = False

        async def put_all(self, puts: Sequence[Write]) -> list[int]:
            if self.deletes:
                self.deletes = False
                await registry_on(self).delete(TOPIC)
            return await super().put_all(puts)

    store = Interrupted()
    registry = registry_on(store)
    await registry.add(TOPIC, avro("a"), ANY)
    store.deletes = True
    assert await registry.add(TOPIC, avro("z"), ANY) == 2
    assert await stored(registry_on(store)) == [2]


async def test_write_that_always_loses_the_race_is_given_up() -> None:
    class Racing(MemoryMetadataStore):
        async def put_all(self, puts: Sequence[Write]) -> list[int]:
            raise BadVersion("another broker was faster")

    with pytest.raises(BadVersion):
        await registry_on(Racing()).add(TOPIC, avro("a"), ANY)


async def test_many_requests_for_one_new_schema_add_one_version() -> None:
    registry = registry_on(MemoryMetadataStore())
    numbers = await asyncio.gather(*(registry.add(TOPIC, avro("a"), Strategy.FULL) for _ in range(50)))
    assert set(numbers) == {0}
    assert await stored(registry) == [0]


async def test_transitive_strategy_compares_with_every_version() -> None:
    registry = registry_on(MemoryMetadataStore())
    for name in ("a", "b"):
        await registry.add(TOPIC, avro(name), ANY)
    extended = avro("b", "c", optional=True)
    with pytest.raises(IncompatibleSchema, match="cannot read data of the new one"):
        await registry.add(TOPIC, extended, Strategy.FULL_TRANSITIVE)
    assert await registry.add(TOPIC, extended, Strategy.BACKWARD) == 2


async def test_another_type_is_refused_unless_everything_is_compatible() -> None:
    registry = registry_on(MemoryMetadataStore())
    string = Schema(SchemaType.STRING, b"", {})
    await registry.add(TOPIC, avro("a"), Strategy.FULL)
    with pytest.raises(IncompatibleSchema, match="exists schema type AVRO, new schema type STRING"):
        await registry.add(TOPIC, string, Strategy.FULL)
    assert await registry.add(TOPIC, string, ANY) == 1
    # The newest alone has another type now.
    with pytest.raises(IncompatibleSchema):
        await registry.add(TOPIC, avro("b", optional=True), Strategy.BACKWARD)


RECURSIVE = b'{"type":"record","name":"L","fields":[{"name":"next","type":["null","L"],"default":null}]}'
NESTED = b'{"type":"array","items":' * 3000 + b'"int"' + b"}" * 3000


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nonsense",
        b"\xff\xfe",
        b'{"type":"record"}',
        NESTED,
        b"[" * 100_000,
        b"[" + b"0," * 400_000 + b"0]",
    ],
    ids=["empty", "no JSON", "no text", "incomplete", "nested", "brackets", "numbers"],
)
@pytest.mark.parametrize("kind", [SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF])
async def test_invalid_avro_is_refused_and_not_stored(kind: SchemaType, data: bytes) -> None:
    store = MemoryMetadataStore()
    registry = registry_on(store)
    with pytest.raises(InvalidSchemaData):
        await registry.add(TOPIC, Schema(kind, data, {}), ANY)
    assert await store.children(ROOT) == []


async def test_recursive_schema_is_kept_and_may_grow() -> None:
    registry = registry_on(MemoryMetadataStore())
    grown = RECURSIVE.replace(b"}]}", b'},{"name":"v","type":"int","default":0}]}')
    assert await registry.add(TOPIC, Schema(SchemaType.AVRO, RECURSIVE, {}), Strategy.FULL) == 0
    assert await registry.add(TOPIC, Schema(SchemaType.AVRO, grown, {}), Strategy.FULL) == 1
    wrong = RECURSIVE.replace(b"}]}", b'},{"name":"v","type":"string"}]}')
    with pytest.raises(IncompatibleSchema):
        await registry.add(TOPIC, Schema(SchemaType.AVRO, wrong, {}), Strategy.FULL)


async def test_schema_is_limited_in_bytes_with_its_properties(store: MetadataStore) -> None:
    registry = registry_on(store)
    definition = b'{"type":"record","name":"A","fields":[],"doc":"%s"}'
    padding = SCHEMA_BYTES_MAX - len(definition % b"") - len("kv")
    largest = Schema(SchemaType.AVRO, definition % (b"x" * padding), {"k": "v"})
    with pytest.raises(InvalidSchemaData, match="at most 900000 are kept"):
        await registry.add(TOPIC, largest._replace(properties={"k": "vv"}), ANY)
    assert await registry.add(TOPIC, largest, ANY) == 0
    found = await registry_on(store).get(TOPIC)
    assert found is not None
    assert found.schema == largest


async def test_union_of_records_that_needs_too_many_comparisons_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("broker.schemas.avro_resolution.STEPS_MAX", 1000)

    def union(prefix: str) -> Schema:
        records = [{"type": "record", "name": f"{prefix}{n}", "fields": []} for n in range(100)]
        fields = [{"name": "u", "type": records}]
        text = json.dumps({"type": "record", "name": "A", "fields": fields})
        return Schema(SchemaType.AVRO, text.encode(), {})

    registry = registry_on(MemoryMetadataStore())
    await registry.add(TOPIC, union("x"), Strategy.BACKWARD)
    with pytest.raises(IncompatibleSchema, match="more than 1000 comparisons"):
        await registry.add(TOPIC, union("y"), Strategy.BACKWARD)


async def test_thousand_versions_are_kept_and_the_first_is_found(store: MetadataStore) -> None:
    registry = registry_on(store)
    for number in range(1000):
        assert await registry.add(TOPIC, avro(f"f{number}"), ANY) == number
    later = registry_on(store)
    assert await later.add(TOPIC, avro("f7", doc="equal to version 7"), Strategy.FULL_TRANSITIVE) == 7
    with pytest.raises(IncompatibleSchema):
        await later.add(TOPIC, avro("new"), Strategy.FORWARD_TRANSITIVE)
    assert len(await later.versions(TOPIC)) == 1000


async def test_versions_are_limited_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_store, "VERSIONS_MAX", 3)
    registry = registry_on(MemoryMetadataStore())
    for number in range(3):
        await registry.add(TOPIC, avro(f"f{number}"), ANY)
    with pytest.raises(IncompatibleSchema, match="the most that are kept; delete the schema first"):
        await registry.add(TOPIC, avro("f3"), ANY)
    assert await registry.add(TOPIC, avro("f1"), ANY) == 1
    await registry.delete(TOPIC)
    assert await registry.add(TOPIC, avro("f3"), ANY) == 4


async def test_largest_index_and_largest_definition_fit_into_one_node_of_zookeeper() -> None:
    entry = schema_store.IndexedVersion(2**31, SchemaType.PROTOBUF, bytes(16), bytes(16))
    index = schema_store._index_bytes((entry,) * schema_store.VERSIONS_MAX, 2**31)
    assert len(index) + SCHEMA_BYTES_MAX + 1000 < 1_000_000


async def test_memory_of_many_schemas_is_limited() -> None:
    cached = SchemaStore(MemoryMetadataStore())
    registry = SchemaRegistry(cached, lambda: NOW_MS)
    padding = "x" * 200_000
    for number in range(120):
        await registry.add(f"public/default/t{number}", avro("a", doc=padding), ANY)
    assert CACHE_BYTES_MAX - 201_000 < cached.cached_bytes <= CACHE_BYTES_MAX
    for number in range(120):
        assert await registry.get(f"public/default/t{number}", 0) is not None
    assert cached.cached_bytes <= CACHE_BYTES_MAX
    for number in range(120):
        await registry.forget(f"public/default/t{number}")
    assert cached.cached_bytes < 100_000


async def test_unreadable_values_in_the_store_are_errors_of_the_store() -> None:
    store = MemoryMetadataStore()
    await store.put(f"{ROOT}/public/default/x", b"nonsense")
    with pytest.raises(MetadataError):
        await registry_on(store).get("public/default/x")
    registry = registry_on(store)
    await registry.add(TOPIC, avro("a"), ANY)
    key = f"{ROOT}/public/default/orders%252F%20%26%20co/0000000000"
    await store.put(key, b"nonsense")
    with pytest.raises(MetadataError):
        await registry_on(store).get(TOPIC)
    await store.delete(key)
    with pytest.raises(MetadataError, match="is missing"):
        await registry_on(store).get(TOPIC)
