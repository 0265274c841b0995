"""LedgerTier: copies ledgers to object storage, compares the copies, reads from them and deletes them."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from time import monotonic_ns
from typing import Final, TypeVar
from uuid import UUID, uuid4

from bookkeeper.ensembles.awaited_reads import read_entries
from bookkeeper.ensembles.ledgers import Ledgers
from bookkeeper.metadata.metadata_store import MetadataStore
from broker.managed_ledger.ledger_list import LedgerInfo, OffloadContext, OffloadedLedger, OffloadPlace
from broker.managed_ledger.managed_ledger_info import managed_ledger_key
from broker.managed_ledger.offload.stats import OffloadStats, namespace_of
from broker.managed_ledger.offload.tier import (
    NOT_FOUND,
    NOT_OFFLOADED,
    OK,
    UNKNOWN,
    CopyRead,
    RunRead,
    ScannedObject,
)
from broker.managed_ledger.records.pulsar_records import decode_ledger_list
from broker.managed_ledger.removal.deletion import objects_of
from broker.managed_ledger.settings import OffloadRules
from broker.offload.pieces import Pieces
from broker.offload.storages import open_storage
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError, EntryDamaged, NoSuchEntry, PersistenceError, ReadTimedOut
from foundation.model.time_histogram import TimeHistogram
from foundation.objects.object_storage import NoSuchObject, ObjectStorage, ObjectStorageError
from foundation.units import MIB
from protocol import broker_entry_metadata, ledger_metadata
from protocol.ledger_metadata import LedgerMetadata, LedgerState
from protocol.offload.blocks import (
    ATTRIBUTES,
    BlockWriter,
    OffloadFormatError,
    OffloadIndex,
    data_key,
    decode_index,
    encode_index,
    entries_of,
    index_key,
    key_parts,
)

READ_TIMEOUT_S: Final = 30
"""Of one read from a copy. `managedLedgerReadEntryTimeoutSeconds` holds as well, as for a read from a bookie."""
INDEXES_KEPT: Final = 256
SETTLE_S: Final = 10.0
"""Until a copy of doubt is looked at again."""
COPY_BYTES: Final = MIB
"""Asked of the bookies at once for a copy."""
T = TypeVar("T")
log = logging.getLogger("magnetar")


class LedgerTier:
    """The copies of all topics of a broker, in whichever storages the lists name."""

    def __init__(
        self,
        metadata: MetadataStore,
        ahead: int,
        open_place: Callable[[OffloadPlace], ObjectStorage] = open_storage,
    ) -> None:
        """`ahead`: pieces that are read ahead (`managedLedgerOffloadPrefetchRounds`)."""
        self.stats = OffloadStats()
        """Counters for metrics."""
        self._metadata = metadata
        self._ahead = ahead
        self._open_place = open_place
        self._storages: dict[OffloadPlace, ObjectStorage] = {}
        self._indexes: OrderedDict[UUID, OffloadIndex] = OrderedDict()
        self._pieces = Pieces()
        self._tasks: set[asyncio.Task[None]] = set()
        """Reads and settlements."""

    def new_id(self, place: OffloadPlace) -> UUID:
        """Returns a random id. Raises PersistenceError where the place cannot be opened."""
        self.storage(place)
        return uuid4()

    def storage(self, place: OffloadPlace) -> ObjectStorage:
        """Returns the storage of a place. Raises PersistenceError for one that cannot be opened."""
        if place not in self._storages:
            self._storages[place] = self._open_place(place)
        return self._storages[place]

    # Copying

    async def copy(
        self,
        topic: str,
        info: LedgerInfo,
        context: OffloadContext,
        rules: OffloadRules,
        ledgers: Ledgers,
        go_on: Callable[[], bool],
    ) -> None:
        """Copies a closed ledger, and reads the copy back. Raises BrokerError."""
        stats, namespace, ledger_id = self.stats, namespace_of(topic), info.ledger_id
        try:
            storage = self.storage(context.place)
            metadata = await self._closed(info)
            writer = BlockWriter(metadata, rules.block_bytes, rules.read_bytes)
            chunks = _chunks(writer, ledger_id, ledgers, stats.read_ledger_latency[namespace], go_on)
            writing = stats.write_latency[namespace]
            await _timed(writing, storage.put(data_key(context.uuid, ledger_id), chunks, ATTRIBUTES))
            index = encode_index(writer.index)
            await _timed(writing, storage.put(index_key(context.uuid, ledger_id), _one(index), ATTRIBUTES))
            await self._compare(storage, context.uuid, ledger_id, index, go_on)
        except ObjectStorageError as error:
            stats.write_errors[namespace] += 1
            stats.offload_errors[namespace] += 1
            raise PersistenceError(f"ledger {ledger_id} was not copied: {error}") from error
        except (OffloadFormatError, BrokerError) as error:
            stats.offload_errors[namespace] += 1
            raise PersistenceError(f"ledger {ledger_id} was not copied: {error}") from error
        stats.offloaded_bytes[namespace] += info.size_bytes

    async def _closed(self, info: LedgerInfo) -> LedgerMetadata:
        found = await self._metadata.get(ledger_metadata.ledger_key(info.ledger_id))
        if found is None:
            raise PersistenceError(f"the metadata store has no ledger {info.ledger_id}")
        metadata = ledger_metadata.decode(found.value)
        if metadata.state is not LedgerState.CLOSED:
            # The list knows the end already, and the ledger's own metadata may follow late.
            metadata = replace(
                metadata, state=LedgerState.CLOSED, last_entry_id=info.entries - 1, length=info.size_bytes
            )
        return metadata

    async def _compare(
        self, storage: ObjectStorage, uuid: UUID, ledger_id: int, index: bytes, go_on: Callable[[], bool]
    ) -> None:
        """Reads both objects back. Raises OffloadFormatError for one that differs from what was written."""
        if await storage.get(index_key(uuid, ledger_id)) != index:
            raise OffloadFormatError(f"{index_key(uuid, ledger_id)} has other bytes than were written")
        decoded, pieces, key = decode_index(index), Pieces(), data_key(uuid, ledger_id)
        for place in range(len(decoded.pieces)):
            if not go_on():
                raise PersistenceError("the topic is being closed")
            # Its CRC32C was taken of the bytes that were read from the bookie.
            await pieces.read(uuid, decoded, place, place, 1, partial(storage.get_range, key))

    # Reading

    def read(self, asked: CopyRead, done: RunRead) -> None:
        """Reads some entries from a copy, at least one. The error names the object."""
        self._spawn(self._read(asked, done))

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read(self, asked: CopyRead, done: RunRead) -> None:
        stats, namespace = self.stats, namespace_of(asked.topic)
        key = data_key(asked.copy.uuid, asked.ledger_id)
        which = f"entries {asked.ledger_id}:{asked.first}-{asked.last}"
        entries: list[Entry] = []
        failed: BrokerError | None = None
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                entries = await self._entries(asked)
        except TimeoutError:
            failed = ReadTimedOut(f"{key}: not read within {READ_TIMEOUT_S} s")
        except NoSuchObject as error:
            failed = NoSuchEntry(f"{which}: {error}")
        except ObjectStorageError as error:
            failed = PersistenceError(f"{which}: {error}")
        except OffloadFormatError as error:
            failed = EntryDamaged(f"{which}: {self.storage(asked.copy.place).uri}/{key}: {error}")
        except BrokerError as error:
            failed = error
        except Exception as error:
            # A defect. Without `done` the reader would wait for ever, and its permit would stay taken.
            log.exception("! %s of %s", which, asked.topic)
            failed = PersistenceError(f"{which}: {key}: {error!r}")
        if failed is not None:
            stats.read_errors[namespace] += 1
            done([], failed)
            return
        stats.read_bytes[namespace] += sum(entry.size for entry in entries)
        done(entries, None)

    async def _entries(self, asked: CopyRead) -> list[Entry]:
        stats, storage, uuid = self.stats, self.storage(asked.copy.place), asked.copy.uuid
        namespace, ledger_id = namespace_of(asked.topic), asked.ledger_id
        index = self._indexes.get(uuid)
        if index is None:
            key = index_key(uuid, ledger_id)
            index = decode_index(await _timed(stats.read_index_latency[namespace], storage.get(key)))
            self._indexes[uuid] = index
            if len(self._indexes) > INDEXES_KEPT:
                self._indexes.popitem(last=False)
        begin = end = index.piece_of(asked.first)
        size = index.pieces[begin].length
        # As many whole pieces as fit, so that one request brings them.
        while (
            end + 1 < len(index.pieces)
            and index.pieces[end + 1].first_entry <= asked.last
            and size + index.pieces[end + 1].length <= asked.bytes_max
        ):
            end += 1
            size += index.pieces[end].length

        async def fetch(start: int, length: int) -> bytes:
            reading = stats.read_data_latency[namespace]
            return await _timed(reading, storage.get_range(data_key(uuid, ledger_id), start, length))

        pieces = await self._pieces.read(uuid, index, begin, end, self._ahead, fetch)
        entries: list[Entry] = []
        for place, data in enumerate(pieces, begin):
            for entry_id, stored in entries_of(data, index.pieces[place].first_entry):
                if asked.first <= entry_id <= asked.last:
                    entries.append(_entry(ledger_id, entry_id, stored))
        if not entries:
            raise NoSuchEntry(f"{data_key(uuid, ledger_id)} has no entry {asked.first}")
        return entries

    # Deleting

    async def delete(self, topic: str, copy: OffloadedLedger) -> None:
        """Deletes the objects of a copy. Raises PersistenceError."""
        namespace = namespace_of(topic)
        storage = self.storage(copy.place)
        try:
            # The index last: it tells a person what the data belongs to.
            await storage.delete(data_key(copy.uuid, copy.ledger_id))
            await storage.delete(index_key(copy.uuid, copy.ledger_id))
        except ObjectStorageError as error:
            self.stats.deletes[namespace, "failed"] += 1
            raise PersistenceError(f"the copy of ledger {copy.ledger_id} was not deleted: {error}") from error
        self.stats.deletes[namespace, "succeed"] += 1
        self._indexes.pop(copy.uuid, None)
        self._pieces.forget(copy.uuid)

    def settle(self, topic: str, copy: OffloadedLedger) -> None:
        """Deletes the objects of a copy, in the background, unless the stored list names it."""
        self._spawn(self._settle(topic, copy))

    async def _settle(self, topic: str, copy: OffloadedLedger) -> None:
        while True:
            try:
                found = await self._metadata.get(managed_ledger_key(topic))
                if found is None or copy not in objects_of(decode_ledger_list(found.value)):
                    await self.delete(topic, copy)
            except BrokerError as error:
                log.warning("! offload of %s: ledger %d is looked at again: %s", topic, copy.ledger_id, error)
                await asyncio.sleep(SETTLE_S)
            else:
                return

    # Searching

    async def scan(
        self, place: OffloadPlace, namespace: str, named: Mapping[UUID, bool]
    ) -> AsyncIterator[ScannedObject]:
        """Yields the objects of a namespace, and those whose owner is not known. Raises PersistenceError."""
        storage = self.storage(place)
        try:
            async for found in storage.scan():
                uuid, ledger_id = key_parts(found.key) or (None, -1)
                owner = "" if uuid is None else await _owner(storage, uuid, ledger_id)
                if uuid is not None and uuid in named:
                    status = OK if named[uuid] else NOT_OFFLOADED
                elif not owner:
                    status = UNKNOWN
                elif namespace_of(owner) != namespace:
                    continue
                else:
                    status = NOT_FOUND
                uri = f"{storage.uri}/{found.key}"
                yield ScannedObject(
                    found.key, uri, uuid, ledger_id, found.size_bytes, found.modified_ms, owner, status
                )
        except ObjectStorageError as error:
            raise PersistenceError(str(error)) from error


async def _owner(storage: ObjectStorage, uuid: UUID, ledger_id: int) -> str:
    """Returns the name of the managed ledger in the index of a copy; an empty text without one."""
    try:
        index = decode_index(await storage.get(index_key(uuid, ledger_id)))
    except (NoSuchObject, OffloadFormatError):
        return ""
    return index.metadata.custom.get("pulsar/managed-ledger", b"").decode(errors="replace")


async def _timed(latency: TimeHistogram, work: Awaitable[T]) -> T:
    begun_ns = monotonic_ns()
    result = await work
    latency.add(monotonic_ns() - begun_ns)
    return result


async def _one(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def _chunks(
    writer: BlockWriter, ledger_id: int, ledgers: Ledgers, latency: TimeHistogram, go_on: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """Yields the bytes of the data object, while it reads the ledger."""
    at, last = 0, writer.last_entry
    while at <= last:
        if not go_on():
            raise PersistenceError("the topic is being closed")
        for entry in await _timed(latency, read_entries(ledgers, ledger_id, at, last, COPY_BYTES)):
            data = writer.add([entry.header, entry.body] if entry.header else [entry.body])
            at = entry.entry_id + 1
            if data:
                yield data
    yield writer.end()


def _entry(ledger_id: int, entry_id: int, stored: memoryview) -> Entry:
    # Bytes of its own: a view of the piece would keep all of it while the cache has one entry.
    try:
        header, body = broker_entry_metadata.split(memoryview(bytes(stored)))
    except ValueError as error:
        raise EntryDamaged(f"entry {ledger_id}:{entry_id}: {error}") from error
    return Entry(ledger_id, entry_id, header, body, 0)
