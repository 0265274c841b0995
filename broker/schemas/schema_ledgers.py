"""SchemaLedgers: the versions of each topic's schema as Pulsar keeps them on a store that brokers share.

    /schemas/<tenant>/<namespace>/<topic>      SchemaLocator: each version's number, ledger and SHA-256
    a ledger for each version                  one SchemaEntry with the definition, closed at once

The laws of `SchemaStore` hold but for the first: a ledger is written before the locator names it, as in Pulsar, so a crash
leaves a ledger that no locator names. Audits find it as an orphan. A deletion is a version without a hash; the ledgers of
the versions before it stay until the topic is deleted.

Entries of the locator have the type and the hash of the canonical form in fields of ours, which Pulsar's brokers drop when
they add a version. Those are then read from the ledgers again.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable
from typing import Final
from urllib.parse import quote, unquote

from google.protobuf.message import DecodeError

from bookkeeper.ensembles.awaited_adds import AwaitedAdds
from bookkeeper.ensembles.awaited_reads import read_entries
from bookkeeper.ensembles.ledger_ids import LedgerIdSource
from bookkeeper.ensembles.ledgers import Ledgers
from bookkeeper.metadata.metadata_store import ABSENT, MetadataStore, Versioned
from broker.schemas.schema import HASH_BYTES, Schema, SchemaType, VersionedSchema
from broker.schemas.schema_store import NO_INDEX, Index, IndexedVersion, SchemaStore
from broker.schemas.schema_store import ROOT as FORMER_ROOT
from foundation.loop.turn import Turn
from foundation.model.errors import BadVersion, InvalidSchemaData, MetadataError
from foundation.model.position import Position
from protocol.pulsar_metadata_pb2 import SchemaEntry, SchemaInfo, SchemaLocator

ROOT: Final = "/schemas"
"""Pulsar's path of locators."""
_ENTRY_BYTES_MAX: Final = 5 << 20
_NONE: Final = 1
"""The number of type NONE."""
_NOWHERE: Final = SchemaLocator.PositionInfo(ledgerId=-1, entryId=-1)


class SchemaLedgers(SchemaStore):
    """Reads and writes versions in ledgers; as `SchemaStore` for its callers."""

    def __init__(
        self,
        store: MetadataStore,
        ledgers: Ledgers,
        ids: LedgerIdSource,
        turn: Turn,
        now_ns: Callable[[], int],
    ) -> None:
        """`now_ns`: a monotonic clock."""
        super().__init__(store)
        self._ledgers = ledgers
        self._ids = ids
        self._turn = turn
        self._now_ns = now_ns

    async def open(self) -> None:
        """Takes over the schemas that versions up to 0.2.0 kept in nodes of their own. Raises BrokerError."""
        former = SchemaStore(self._store)
        for tenant in await self._store.children(FORMER_ROOT):
            for namespace in await self._store.children(f"{FORMER_ROOT}/{tenant}"):
                for schema_id in await former.ids(f"{tenant}/{namespace}"):
                    await self._take_over(schema_id, former)

    async def _take_over(self, schema_id: str, former: SchemaStore) -> None:
        index = await former.index(schema_id)
        # A locator that is there has all of it: a crash came before the former nodes were deleted.
        if index is not NO_INDEX and await self._store.get(_locator_key(schema_id)) is None:
            locator = SchemaLocator()
            for entry in index.entries:
                found = await former.read(schema_id, entry.version)
                await self._append(
                    schema_id, locator, entry.version, found.schema, entry.canonical_hash, found.created_ms
                )
            if not index.entries or index.entries[-1].version < index.last_version:
                await self._append(schema_id, locator, index.last_version, None, None, 0)
            await self._store.put(_locator_key(schema_id), locator.SerializeToString(), ABSENT)
        await former.forget(schema_id)

    async def places(self, schema_id: str) -> list[tuple[int, Position]]:
        """Returns each version's number and entry, those of deletions too, oldest first. MetadataError."""
        found = await self._store.get(_locator_key(schema_id))
        index = () if found is None else _locator_of(found.value).index
        return [(one.version, Position(one.position.ledgerId, one.position.entryId)) for one in index]

    async def index(self, schema_id: str) -> Index:
        """Returns the index as it is stored now: partitions of other brokers share the schema, and tools change it.

        MetadataError and PersistenceError when it cannot be read.
        """
        found = await self._store.get(_locator_key(schema_id))
        if found is None:
            return NO_INDEX
        cached = self._cached(schema_id)
        # By its content, too: a schema that was forgotten begins with the same versions again.
        if isinstance(cached, Index) and (cached.source, cached.stored) == (found.value, found.version):
            return cached
        index = await self._index_of(found)
        self._keep(schema_id, index, len(found.value))
        return index

    async def _index_of(self, found: Versioned) -> Index:
        locator = _locator_of(found.value)
        deletions = [place for place, one in enumerate(locator.index) if not one.hash]
        usable = locator.index[deletions[-1] + 1 if deletions else 0 :]
        entries = [await self._indexed(entry) for entry in usable]
        return Index(tuple(entries), locator.info.version, found.version, found.value)

    async def _indexed(self, entry: SchemaLocator.IndexEntry) -> IndexedVersion:
        place = Position(entry.position.ledgerId, entry.position.entryId)
        if entry.HasField("type"):
            kind, canonical_hash = SchemaType(entry.type), entry.canonicalHash or None
        else:
            schema = (await self._read_at(place, entry.version)).schema
            assert schema is not None, "deletions have no hash, so they are left out"
            kind, canonical_hash = schema.type, await _canonical_hash(schema)
        return IndexedVersion(entry.version, kind, entry.hash[:HASH_BYTES], canonical_hash, place)

    async def read(self, schema_id: str, version: int) -> VersionedSchema:
        """Returns a version that the index names. MetadataError and PersistenceError when it cannot be read."""
        for entry in (await self.index(schema_id)).entries:
            if entry.version == version and entry.place is not None:
                # By its ledger: a schema that was forgotten begins with the same versions again.
                key = f"{schema_id}/{entry.place}"
                cached = self._cached(key)
                if isinstance(cached, VersionedSchema):
                    return cached
                found = await self._read_at(entry.place, version)
                # The ledger's word for some types is that of another one.
                if found.schema is not None:
                    found = found._replace(schema=found.schema._replace(type=entry.type))
                self._keep(key, found, 0 if found.schema is None else len(found.schema.data))
                return found
        raise MetadataError(
            f"version {version} of the schema of {schema_id} cannot be read: it is not stored"
        )

    async def _read_at(self, place: Position, version: int) -> VersionedSchema:
        ledger_id, entry_id = place
        (entry,) = await read_entries(self._ledgers, ledger_id, entry_id, entry_id, _ENTRY_BYTES_MAX)
        try:
            schema, created_ms = decode_entry(b"".join((entry.header, entry.body)))
        except (DecodeError, ValueError) as error:
            raise MetadataError(f"the schema in ledger {ledger_id} cannot be read: {error}") from None
        return VersionedSchema(version, schema, created_ms)

    async def add(
        self, schema_id: str, index: Index, schema: Schema, canonical_hash: bytes | None, now_ms: int
    ) -> int:
        """Adds a version as `SchemaStore` does. Raises PersistenceError too."""
        self.check_count(schema_id, index)
        return await self._add(schema_id, index, schema, canonical_hash, now_ms)

    async def delete(self, schema_id: str, index: Index, now_ms: int) -> int:
        """Adds a version that deletes all before it; returns its number. BadVersion as for `add`."""
        return await self._add(schema_id, index, None, None, now_ms)

    async def _add(
        self, schema_id: str, index: Index, schema: Schema | None, canonical_hash: bytes | None, now_ms: int
    ) -> int:
        found = await self._store.get(_locator_key(schema_id))
        if (ABSENT if found is None else found.version) != index.stored:
            raise BadVersion(f"the schema of {schema_id} was changed by another broker")
        locator = SchemaLocator() if found is None else _locator_of(found.value)
        version = index.last_version + 1
        ledger_id = await self._append(schema_id, locator, version, schema, canonical_hash, now_ms)
        try:
            await self._store.put(_locator_key(schema_id), locator.SerializeToString(), index.stored)
        except BadVersion:
            await self._ledgers.delete(ledger_id)
            raise
        return version

    async def _append(
        self,
        schema_id: str,
        locator: SchemaLocator,
        version: int,
        schema: Schema | None,
        canonical_hash: bytes | None,
        now_ms: int,
    ) -> int:
        """Writes a version, None = a deletion, to a ledger and names it in the locator; returns the ledger."""
        name = _encoded(schema_id)
        added = SchemaLocator.IndexEntry(version=version, position=_NOWHERE, hash=b"")
        if schema is not None:
            added.hash, added.type = hashlib.sha256(schema.data).digest(), schema.type
            if canonical_hash is not None:
                added.canonicalHash = canonical_hash
        # As in Pulsar: the first ledger names its own version, without a place, and each later one those before it.
        before = [_plain(one) for one in locator.index] or [_plain(added)]
        ledger_id = await self._ids.next()
        await self._write(ledger_id, name, encode_entry(name, schema, now_ms, before))
        added.position.CopyFrom(SchemaLocator.PositionInfo(ledgerId=ledger_id, entryId=0))
        locator.index.append(added)
        locator.info.CopyFrom(added)
        return ledger_id

    async def _write(self, ledger_id: int, name: str, entry: bytes) -> None:
        custom = {"application": b"pulsar", "component": b"schema", "pulsar/schemaId": name.encode()}
        own = await self._ledgers.create(ledger_id, custom)
        adds = AwaitedAdds(own, self._ledgers, self._turn, self._now_ns)
        adds.add(entry)
        await adds.confirmed()
        await adds.close()

    async def forget(self, schema_id: str) -> None:
        """Deletes all versions with their numbers: the next one gets number 0."""
        key = _locator_key(schema_id)
        while (found := await self._store.get(key)) is not None:
            for ledger_id in ledgers_of_schema(found.value):
                await self._ledgers.delete(ledger_id)
            # The locator goes last: while it is there, an interrupted deletion is done again.
            try:
                await self._store.delete(key, found.version)
            except BadVersion:
                continue
            break

    async def ids(self, namespace: str) -> list[str]:
        """Returns the names of all schemas of a namespace, sorted. MetadataError."""
        return [f"{namespace}/{unquote(name)}" for name in await self._store.children(f"{ROOT}/{namespace}")]


def ledgers_of_schema(value: bytes) -> set[int]:
    """Returns the ledgers that a locator names. MetadataError for other bytes."""
    locator = _locator_of(value)
    return {one.position.ledgerId for one in (*locator.index, locator.info)}


def encode_entry(
    name: str, schema: Schema | None, created_ms: int, index: Iterable[SchemaLocator.IndexEntry]
) -> bytes:
    """Returns the entry of a version, None = a deletion. `name` is that of the locator's path."""
    info = SchemaInfo(schemaId=name, user="", type=_NONE, schema=b"", timestamp=created_ms, deleted=True)
    if schema is not None:
        info.type, info.schema, info.deleted = _number_of(schema.type), schema.data, False
        for key, value in schema.properties.items():
            info.props.add(key=key, value=value)
    return SchemaEntry(schemaData=info.SerializeToString(), index=index).SerializeToString()


def decode_entry(entry: bytes) -> tuple[Schema | None, int]:
    """Returns the schema of an entry, None for a deletion, and when it was made. DecodeError, ValueError."""
    info = SchemaInfo.FromString(SchemaEntry.FromString(entry).schemaData)
    properties = {pair.key: pair.value for pair in info.props}
    schema = None if info.deleted else Schema(_type_of(info.type), info.schema, properties)
    return schema, info.timestamp


async def _canonical_hash(schema: Schema) -> bytes | None:
    from broker.schemas.definitions import check_definition

    try:
        return await asyncio.to_thread(check_definition, schema)
    except InvalidSchemaData:
        # Another broker took it. It is equal to the same bytes alone.
        return None


def _number_of(kind: SchemaType) -> int:
    """Returns the number of a type in SchemaInfo: one above the wire's, except for EXTERNAL."""
    return kind if kind is SchemaType.EXTERNAL else kind.wire + 1


def _type_of(number: int) -> SchemaType:
    return SchemaType.EXTERNAL if number == SchemaType.EXTERNAL else SchemaType(number - 1)


def _encoded(schema_id: str) -> str:
    tenant, namespace, topic = schema_id.split("/", 2)
    return f"{tenant}/{namespace}/{quote(topic, safe='')}"


def _locator_key(schema_id: str) -> str:
    return f"{ROOT}/{_encoded(schema_id)}"


def _locator_of(value: bytes) -> SchemaLocator:
    locator = SchemaLocator()
    try:
        locator.ParseFromString(value)
    except DecodeError as error:
        raise MetadataError(f"the locator of a schema cannot be read: {error}") from None
    # Parsing alone accepts bytes without the required fields.
    if not locator.IsInitialized():
        raise MetadataError("the locator of a schema cannot be read: a required field is missing")
    return locator


def _plain(entry: SchemaLocator.IndexEntry) -> SchemaLocator.IndexEntry:
    return SchemaLocator.IndexEntry(version=entry.version, position=entry.position, hash=entry.hash)
