"""SchemaRegistry: adds, finds, checks and deletes versions of schemas by Pulsar's rules.

A definition that a version has byte for byte is found by its hash, without parsing: that is the way of nearly all
producers and consumers. Everything else is parsed and compared in a thread, so that the event loop goes on. There is one
such thread at a time, because each more would take a share of the interpreter from the loop. Versions of a topic are
added one after the other. What parses and compares is imported with the first schema: most brokers see none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final
from weakref import WeakValueDictionary

from broker.schemas.schema import Schema, VersionedSchema
from broker.schemas.schema_store import Index, IndexedVersion, SchemaStore
from broker.schemas.strategy import Strategy
from foundation.model.errors import BadVersion, IncompatibleSchema
from foundation.model.position import Position

ATTEMPTS: Final = 3
"""Attempts to add a version while other brokers add some too."""


class SchemaRegistry:
    """The schemas of all topics; `schema_id` is `tenant/namespace/topic`, without domain and partition."""

    def __init__(self, store: SchemaStore, wall_ms: Callable[[], int]) -> None:
        """`wall_ms` returns milliseconds since 1970."""
        self._store = store
        self._wall_ms = wall_ms
        # A lock lives while a request holds or awaits it.
        self._adding: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._thread = asyncio.Lock()

    async def open(self) -> None:
        """Takes over what former versions kept elsewhere. Raises BrokerError."""
        await self._store.open()

    # Reading

    async def exists(self, schema_id: str) -> bool:
        """Returns True when there is a version that is not deleted."""
        return bool((await self._store.index(schema_id)).entries)

    async def get(self, schema_id: str, version: int | None = None) -> VersionedSchema | None:
        """Returns a version, None = the newest; None when there is no such version.

        After a deletion the newest is the deletion itself, a version without a schema.
        """
        index = await self._store.index(schema_id)
        if version is None:
            if not index.entries:
                return None if index.last_version < 0 else VersionedSchema(index.last_version, None, 0)
            version = index.last_version
        elif all(entry.version != version for entry in index.entries):
            return None
        return await self._store.read(schema_id, version)

    async def versions(self, schema_id: str) -> list[VersionedSchema]:
        """Returns all versions that are not deleted, oldest first."""
        index = await self._store.index(schema_id)
        return [await self._store.read(schema_id, entry.version) for entry in index.entries]

    async def places(self, schema_id: str) -> list[tuple[int, Position]]:
        """Returns number and entry of each version and deletion, oldest first; ledger -1 without ledgers."""
        return await self._store.places(schema_id)

    async def find_same(self, schema_id: str, schema: Schema) -> int | None:
        """Returns the version with exactly these bytes; None when there is none."""
        return _same_data(await self._store.index(schema_id), schema)

    async def find_equal(self, schema_id: str, schema: Schema) -> int | None:
        """Returns the version that counts as equal; None when there is none. InvalidSchemaData."""
        index = await self._store.index(schema_id)
        found = _same_data(index, schema)
        return found if found is not None else _equal(index, schema, await self._check_definition(schema))

    # Adding

    async def add(self, schema_id: str, schema: Schema, strategy: Strategy) -> int:
        """Returns the version of a schema, which is added when it is new and fits the older ones.

        InvalidSchemaData and IncompatibleSchema refuse it; nothing is stored then.
        """
        lock = self._adding.get(schema_id)
        if lock is None:
            self._adding[schema_id] = lock = asyncio.Lock()
        async with lock:
            for attempt in range(ATTEMPTS):
                try:
                    return await self._add(schema_id, schema, strategy)
                except BadVersion:
                    # Another broker added a version. The new schema has to fit that one too.
                    self._store.drop(schema_id)
                    if attempt == ATTEMPTS - 1:
                        raise
            raise AssertionError("unreachable")

    async def _add(self, schema_id: str, schema: Schema, strategy: Strategy) -> int:
        found = _same_data(await self._store.index(schema_id), schema)
        if found is not None:
            return found
        canonical_hash = await self._check_definition(schema)
        # From the store: memory may lack what another broker changed, and would refuse or accept wrongly.
        self._store.drop(schema_id)
        index = await self._store.index(schema_id)
        found = _equal(index, schema, canonical_hash)
        if found is not None:
            return found
        if index.entries:
            compared = index.entries if strategy.transitive else index.entries[-1:]
            await self._check_against(schema_id, compared, schema, strategy)
        return await self._store.add(schema_id, index, schema, canonical_hash, self._wall_ms())

    # Checking

    async def check(self, schema_id: str, schema: Schema, strategy: Strategy) -> None:
        """Refuses what `add` would refuse, with InvalidSchemaData or IncompatibleSchema, equal schemas apart."""
        index = await self._store.index(schema_id)
        await self._check_definition(schema)
        compared = index.entries if strategy.transitive else index.entries[-1:]
        await self._check_against(schema_id, compared, schema, strategy)

    async def check_consumer(self, schema_id: str, schema: Schema, strategy: Strategy) -> None:
        """Refuses a consumer whose schema cannot read the topic's data, with IncompatibleSchema.

        Most strategies ask whether it reads data of the newest version, as recorded of Pulsar 4.2.4. ALWAYS_INCOMPATIBLE
        and the transitive ones, FORWARD_TRANSITIVE apart, compare with all versions.
        """
        index = await self._store.index(schema_id)
        if not index.entries:
            raise IncompatibleSchema(
                "Failed to add schema to an active topic with empty(BYTES) schema: "
                f"new schema type {schema.type.name}"
            )
        if strategy is Strategy.ALWAYS_COMPATIBLE:
            return
        compared: Sequence[IndexedVersion] = index.entries
        if strategy in _NEWEST_FOR_CONSUMERS:
            strategy, compared = Strategy.BACKWARD, index.entries[-1:]
        await self._check_against(schema_id, compared, schema, strategy)

    async def _check_definition(self, schema: Schema) -> bytes | None:
        from broker.schemas.definitions import check_definition, check_size

        check_size(schema)
        async with self._thread:
            return await asyncio.to_thread(check_definition, schema)

    async def _check_against(
        self, schema_id: str, compared: Sequence[IndexedVersion], schema: Schema, strategy: Strategy
    ) -> None:
        from broker.schemas.compatibility import check_compatible, check_types
        from broker.schemas.definitions import check_size

        check_size(schema)
        # All types first: that reads no definition.
        for entry in compared:
            check_types(entry.type, schema.type, strategy)
        if strategy is Strategy.ALWAYS_COMPATIBLE:
            return
        # One version at a time: 1,500 large ones at once would not fit into memory.
        for entry in compared:
            older = (await self._store.read(schema_id, entry.version)).schema
            assert older is not None, "the index names versions with a schema alone"
            async with self._thread:
                await asyncio.to_thread(check_compatible, older, schema, strategy)

    # Deleting

    async def delete(self, schema_id: str) -> int:
        """Deletes all versions, and returns the number that the deletion takes; the next one follows it.

        A topic without a schema gets such a number too, as in Pulsar.
        """
        try:
            return await self._delete(schema_id)
        except BadVersion:
            self._store.drop(schema_id)
            return await self._delete(schema_id)

    async def _delete(self, schema_id: str) -> int:
        return await self._store.delete(schema_id, await self._store.index(schema_id), self._wall_ms())

    async def forget(self, schema_id: str) -> None:
        """Deletes everything about the schema: for a topic that is deleted."""
        await self._store.forget(schema_id)

    async def ids(self, namespace: str) -> list[str]:
        """Returns the names of all schemas of a namespace, sorted."""
        return await self._store.ids(namespace)


_NEWEST_FOR_CONSUMERS: Final = frozenset(
    (Strategy.BACKWARD, Strategy.FORWARD, Strategy.FORWARD_TRANSITIVE, Strategy.FULL)
)


def _same_data(index: Index, schema: Schema) -> int | None:
    if not index.entries:
        return None
    data_hash = schema.data_hash
    for entry in index.entries:
        if entry.type is schema.type and entry.data_hash == data_hash:
            return entry.version
    return None


def _equal(index: Index, schema: Schema, canonical_hash: bytes | None) -> int | None:
    if canonical_hash is None:
        return None
    for entry in index.entries:
        if entry.type is schema.type and entry.canonical_hash == canonical_hash:
            return entry.version
    return None
