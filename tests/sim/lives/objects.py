"""The object storage of the lives: one service for all brokers, late and at times without an answer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field

from broker.managed_ledger.managed_ledger_info import ManagedLedgerInfo
from foundation.objects.object_storage import ObjectStorageError, StoredObject
from protocol.offload.blocks import data_key, decode_index, entries_of, index_key
from tests.fakes.objects import MemoryObjects
from tests.sim.metadata import Broken
from tests.sim.network import Client


@dataclass
class ObjectService:
    """All objects, and uploads that are not completed."""

    rng: random.Random
    error_rate: float = 0.0
    """Share of requests that are lost, or whose answer is."""
    copies_made: int = 0
    """Indexes that were stored."""
    objects: MemoryObjects = field(default_factory=MemoryObjects)
    uploads: set[str] = field(default_factory=set)
    """Names of objects of which parts are there."""

    def __post_init__(self) -> None:
        self.error_rate = self.rng.choice((0.0, 0.02, 0.1))

    def entries(self, info: ManagedLedgerInfo, ledger_id: int) -> dict[int, bytes]:
        """Returns the entries of a ledger in the complete copy that its list names; none without one."""
        for one in info.ledgers:
            if one.ledger_id == ledger_id and one.offload is not None and one.offload.complete:
                keys = (data_key(one.offload.uuid, ledger_id), index_key(one.offload.uuid, ledger_id))
                if not all(key in self.objects.stored for key in keys):
                    return {}
                data, index = (self.objects.stored[key] for key in keys)
                return {
                    entry_id: bytes(stored)
                    for piece in decode_index(index).pieces
                    for entry_id, stored in entries_of(
                        data[piece.offset : piece.offset + piece.length], piece.first_entry
                    )
                }
        return {}

    def check_names(self, lists: Iterable[ManagedLedgerInfo]) -> None:
        """Raises Broken for an object, or a part of one, that no list names, and for one that is named and missing."""
        named, complete = set[str](), set[str]()
        for info in lists:
            for one in info.ledgers:
                if one.offload is not None:
                    keys = {
                        data_key(one.offload.uuid, one.ledger_id),
                        index_key(one.offload.uuid, one.ledger_id),
                    }
                    named |= keys
                    complete |= keys if one.offload.complete else set()
            for marked in info.deleting_objects:
                named |= {data_key(marked.uuid, marked.ledger_id), index_key(marked.uuid, marked.ledger_id)}
        if left := sorted((self.objects.stored.keys() | self.uploads) - named):
            raise Broken(f"no list names the objects {left}")
        if missing := sorted(complete - self.objects.stored.keys()):
            raise Broken(f"the objects {missing} are named and missing")


class SimObjects:
    """The service as one process sees it. Once the process has crashed, none of its requests arrives any more."""

    uri = "sim:"

    def __init__(self, service: ObjectService, client: Client) -> None:
        self._service, self._client = service, client
        self._objects = service.objects

    async def _travel(self) -> None:
        rng = self._service.rng
        await asyncio.sleep(rng.uniform(0.001, 0.05))
        if self._client.crashed:
            await asyncio.get_running_loop().create_future()
        if rng.random() < self._service.error_rate:
            raise ObjectStorageError("the connection to the service is lost")

    async def put(self, key: str, chunks: AsyncIterator[bytes], attributes: Mapping[str, str]) -> None:
        await self._travel()
        parts: list[bytes] = []
        self._service.uploads.add(key)
        try:
            async for chunk in chunks:
                parts.append(chunk)
                await self._travel()
        except Exception:
            self._service.uploads.discard(key)  # A process that lives ends its upload.
            raise
        self._objects.stored[key] = b"".join(parts)
        self._service.uploads.discard(key)
        self._service.copies_made += key.endswith("-index")
        await self._travel()

    async def get(self, key: str) -> bytes:
        await self._travel()
        return await self._objects.get(key)

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        await self._travel()
        return await self._objects.get_range(key, start, length)

    async def delete(self, key: str) -> None:
        await self._travel()
        self._service.uploads.discard(key)
        await self._objects.delete(key)
        await self._travel()

    def scan(self) -> AsyncIterator[StoredObject]:
        return self._objects.scan()
