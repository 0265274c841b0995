"""SchemaStore: the versions of each topic's schema in the metadata store.

    /schema-versions/<tenant>/<namespace>/<topic>              index: number, type and hashes of each usable version
    /schema-versions/<tenant>/<namespace>/<topic>/<version>    the definition of one version

Laws:

1. A version and the index that names it are written together, so none of them exists alone.
2. A version's number is never given out twice, except after `forget`. A deletion takes a number too, and the index keeps
   the highest one.
3. The index is written by compare-and-set: of two brokers that add a version at once one gets BadVersion.

Values that were read stay in memory up to CACHE_BYTES_MAX: a store of one broker is changed by nobody else. `SchemaLedgers`,
of a store that brokers share, compares an index with the stored one at each use.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from google.protobuf.message import DecodeError

from bookkeeper.metadata.metadata_store import ABSENT, MetadataStore, Put
from broker.schemas.schema import Schema, SchemaType, VersionedSchema
from foundation.model.errors import IncompatibleSchema, MetadataError
from foundation.model.position import Position
from protocol.stored_schemas_pb2 import SchemaIndex, StoredSchema

ROOT: Final = "/schema-versions"
"""Path in the metadata store. Pulsar's own `/schemas` holds places in BookKeeper instead."""
VERSIONS_MAX: Final = 1_500
"""Versions of one topic. Their index and a definition of SCHEMA_BYTES_MAX fit into one write of ZooKeeper."""
CACHE_BYTES_MAX: Final = 16 << 20
"""Bytes of indexes and definitions that stay in memory."""
_IN_NO_LEDGER: Final = Position(-1, 0)
_CACHED_OVERHEAD: Final = 500
"""Bytes that Python needs for a cached value beside its content, roughly."""


class IndexedVersion(NamedTuple):
    """A line of the index."""

    version: int
    """Number of the version."""
    type: SchemaType
    """Its type."""
    data_hash: bytes
    """Hash of the definition as the client sent it."""
    canonical_hash: bytes | None
    """Hash of its canonical form; None for types without one."""
    place: Position | None = None
    """The entry with its definition, where that is in a ledger."""


class Index(NamedTuple):
    """The usable versions of a topic's schema."""

    entries: tuple[IndexedVersion, ...]
    """Oldest first; empty after a deletion."""
    last_version: int
    """Highest number that was given out; -1 for a topic that never had a schema."""
    stored: int
    """Version of the value in the metadata store, for the next compare-and-set."""
    source: bytes = b""
    """The stored value, where other brokers may change it."""


NO_INDEX: Final = Index((), -1, ABSENT)
"""Index of a topic that never had a schema."""


class SchemaStore:
    """Reads and writes versions; `schema_id` is `tenant/namespace/topic`, without domain and partition."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._cache: OrderedDict[str, tuple[Index | VersionedSchema, int]] = OrderedDict()
        self._cached_bytes = 0

    @property
    def cached_bytes(self) -> int:
        """Bytes that cached values take, at most CACHE_BYTES_MAX."""
        return self._cached_bytes

    async def open(self) -> None:
        """Does nothing: former versions kept schemas as this one does."""

    async def index(self, schema_id: str) -> Index:
        """Returns the index, NO_INDEX for a topic without one. MetadataError when it cannot be read."""
        key = _index_key(schema_id)
        cached = self._cached(key)
        if isinstance(cached, Index):
            return cached
        # NO_INDEX is kept too: every producer without a schema asks, and a topic without a schema is the usual one.
        index, size = await self._load_index(schema_id)
        self._keep(key, index, size)
        return index

    async def places(self, schema_id: str) -> list[tuple[int, Position]]:
        """Returns each version's number and entry, those of deletions too, oldest first.

        Here definitions are in no ledger, which the ledger id -1 says. MetadataError.
        """
        # Every number since 0 is taken, some of them by deletions.
        return [(version, _IN_NO_LEDGER) for version in range((await self.index(schema_id)).last_version + 1)]

    async def _load_index(self, schema_id: str) -> tuple[Index, int]:
        """Returns the stored index and its bytes."""
        found = await self._store.get(_index_key(schema_id))
        if found is None:
            return NO_INDEX, 0
        return _index_of(found.value, found.version), len(found.value)

    async def read(self, schema_id: str, version: int) -> VersionedSchema:
        """Returns a version that the index names. MetadataError when it cannot be read."""
        key = _version_key(schema_id, version)
        cached = self._cached(key)
        if isinstance(cached, VersionedSchema):
            return cached
        schema, size = await self._load_version(schema_id, version)
        self._keep(key, schema, size)
        return schema

    async def _load_version(self, schema_id: str, version: int) -> tuple[VersionedSchema, int]:
        """Returns the stored version and its bytes."""
        key = _version_key(schema_id, version)
        found = await self._store.get(key)
        if found is None:
            raise MetadataError(f"{key} is missing: version {version} of the schema cannot be read")
        return _schema_of(found.value, version), len(found.value)

    async def add(
        self, schema_id: str, index: Index, schema: Schema, canonical_hash: bytes | None, now_ms: int
    ) -> int:
        """Adds a version after `index` and returns its number.

        BadVersion when another one was added since `index` was read; IncompatibleSchema at VERSIONS_MAX.
        """
        self.check_count(schema_id, index)
        version = index.last_version + 1
        entry = IndexedVersion(version, schema.type, schema.data_hash, canonical_hash)
        entries = (*index.entries, entry)
        key, value = _index_key(schema_id), _index_bytes(entries, version)
        stored = StoredSchema(type=schema.type, data=schema.data, created_ms=now_ms)
        for name, text in schema.properties.items():
            stored.properties.add(key=name, value=text)
        content = stored.SerializeToString()
        written, _ = await self._store.put_all(
            (Put(key, value, index.stored), Put(_version_key(schema_id, version), content, ABSENT))
        )
        self._keep(key, Index(entries, version, written), len(value))
        self._keep(_version_key(schema_id, version), VersionedSchema(version, schema, now_ms), len(content))
        return version

    @staticmethod
    def check_count(schema_id: str, index: Index) -> None:
        """Raises IncompatibleSchema at VERSIONS_MAX."""
        if len(index.entries) >= VERSIONS_MAX:
            raise IncompatibleSchema(
                f"{schema_id} has {VERSIONS_MAX} versions of its schema, the most that are kept; delete the schema first"
            )

    async def delete(self, schema_id: str, index: Index, _now_ms: int) -> int:
        """Deletes all versions and returns the number of the deletion, which has no time here. BadVersion as for `add`."""
        key, version = _index_key(schema_id), index.last_version + 1
        value = _index_bytes((), version)
        written = await self._store.put(key, value, index.stored)
        self._keep(key, Index((), version, written), len(value))
        # After the index: a crash in between leaves definitions without an entry, which the next deletion removes.
        await self._delete_definitions(schema_id)
        return version

    async def forget(self, schema_id: str) -> None:
        """Deletes all versions with their numbers: the next one gets number 0."""
        # From the store: a deletion that was interrupted may have changed the stored index, not the one in memory.
        self.drop(schema_id)
        index = await self.index(schema_id)
        if index is not NO_INDEX:
            # The key of the index goes last: definitions that a crash leaves would be in the way of version 0.
            await self.delete(schema_id, index, 0)
            await self._store.delete(_index_key(schema_id))
        self.drop(schema_id)

    async def ids(self, namespace: str) -> list[str]:
        """Returns the names of all schemas of a namespace, sorted. MetadataError."""
        return [f"{namespace}/{unquote(name)}" for name in await self._store.children(f"{ROOT}/{namespace}")]

    def drop(self, schema_id: str) -> None:
        """Forgets the index in memory, so that the next use reads the store."""
        self._remove(_index_key(schema_id))

    async def _delete_definitions(self, schema_id: str) -> None:
        key = _index_key(schema_id)
        for name in await self._store.children(key):
            self._remove(f"{key}/{name}")
            await self._store.delete(f"{key}/{name}")

    # The cache: the value that was used longest ago leaves first.

    def _cached(self, key: str) -> Index | VersionedSchema | None:
        found = self._cache.get(key)
        if found is None:
            return None
        self._cache.move_to_end(key)
        return found[0]

    def _keep(self, key: str, value: Index | VersionedSchema, size: int) -> None:
        self._remove(key)
        # An index takes several times its bytes as tuples.
        size = _CACHED_OVERHEAD + len(key) + size * (4 if isinstance(value, Index) else 1)
        self._cache[key] = (value, size)
        self._cached_bytes += size
        while self._cached_bytes > CACHE_BYTES_MAX:
            _, (_, removed) = self._cache.popitem(last=False)
            self._cached_bytes -= removed

    def _remove(self, key: str) -> None:
        found = self._cache.pop(key, None)
        if found is not None:
            self._cached_bytes -= found[1]


def _index_key(schema_id: str) -> str:
    tenant, namespace, topic = schema_id.split("/", 2)
    return f"{ROOT}/{tenant}/{namespace}/{quote(topic, safe='')}"


def _version_key(schema_id: str, version: int) -> str:
    # Of one length, so that the names sort by number for everybody who looks into the store.
    return f"{_index_key(schema_id)}/{version:010d}"


def _index_bytes(entries: tuple[IndexedVersion, ...], last_version: int) -> bytes:
    index = SchemaIndex(last_version=last_version)
    for entry in entries:
        index.entries.add(
            version=entry.version,
            type=entry.type,
            data_hash=entry.data_hash,
            canonical_hash=entry.canonical_hash,
        )
    return index.SerializeToString()


def _index_of(value: bytes, stored: int) -> Index:
    try:
        index = SchemaIndex.FromString(value)
        entries = tuple(
            IndexedVersion(
                entry.version,
                SchemaType(entry.type),
                entry.data_hash,
                entry.canonical_hash if entry.HasField("canonical_hash") else None,
            )
            for entry in index.entries
        )
    except (DecodeError, ValueError) as error:
        raise MetadataError(f"the index of a schema cannot be read: {error}") from None
    return Index(entries, index.last_version, stored)


def _schema_of(value: bytes, version: int) -> VersionedSchema:
    try:
        stored = StoredSchema.FromString(value)
        properties = {pair.key: pair.value for pair in stored.properties}
        schema = Schema(SchemaType(stored.type), stored.data, properties)
    except (DecodeError, ValueError) as error:
        raise MetadataError(f"version {version} of a schema cannot be read: {error}") from None
    return VersionedSchema(version, schema, stored.created_ms)
