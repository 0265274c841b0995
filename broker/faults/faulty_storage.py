"""A bookie and a metadata store that meet the faults of a script."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from bookkeeper.client.ledger_client import (
    AddDone,
    BatchReadDone,
    DeleteDone,
    EntryParts,
    LedgerClient,
    ReadDone,
)
from bookkeeper.metadata.metadata_store import MetadataStore, Put, Versioned
from broker.faults.script import DELAY, FENCED, FULL_DISK, METADATA_WRITE, STORAGE_ADD, FaultScript
from foundation.model.errors import MetadataError
from protocol.bookie_frame import LAST_ENTRY, RC_FENCED, RC_READ_ONLY

RC_OF: Final = {FENCED: RC_FENCED, FULL_DISK: RC_READ_ONLY}
"""Codes of a bookie by the error of a fault."""


class FaultyBookie:
    """A bookie whose adds meet the faults on STORAGE_ADD."""

    def __init__(self, bookie: LedgerClient, script: FaultScript) -> None:
        self._bookie = bookie
        self._script = script

    def add(
        self,
        ledger_id: int,
        entry_id: int,
        parts: EntryParts,
        *,
        master_key: bytes,
        recovery: bool,
        done: AddDone,
    ) -> None:
        """Stores an entry, unless a fault happens."""
        fault = self._script.happens(STORAGE_ADD)
        loop = asyncio.get_running_loop()

        def store() -> None:
            self._bookie.add(ledger_id, entry_id, parts, master_key=master_key, recovery=recovery, done=done)

        if fault is None:
            store()
        elif fault.do == DELAY:
            loop.call_later(fault.seconds, store)
        else:
            rc = RC_OF[fault.error]
            loop.call_soon(lambda: done(rc, entry_id))

    def read(self, ledger_id: int, entry_id: int, done: ReadDone) -> None:
        """Reads as the bookie does."""
        self._bookie.read(ledger_id, entry_id, done)

    def batch_read(
        self, ledger_id: int, first: int, count_max: int, bytes_max: int, done: BatchReadDone
    ) -> None:
        """Reads as the bookie does."""
        self._bookie.batch_read(ledger_id, first, count_max, bytes_max, done)

    def fence(self, ledger_id: int, master_key: bytes, done: ReadDone, entry_id: int = LAST_ENTRY) -> None:
        """Fences as the bookie does."""
        self._bookie.fence(ledger_id, master_key, done, entry_id)

    def file_of(self, ledger_id: int, entry_id: int) -> str:
        """Names the file as the bookie does."""
        return self._bookie.file_of(ledger_id, entry_id)

    def delete(self, ledger_id: int, done: DeleteDone) -> None:
        """Deletes as the bookie does."""
        self._bookie.delete(ledger_id, done)

    async def close(self) -> None:
        """Closes the bookie."""
        await self._bookie.close()


class FaultyMetadata:
    """A metadata store whose writes meet the faults on METADATA_WRITE."""

    def __init__(self, store: MetadataStore, script: FaultScript) -> None:
        self._store = store
        self._script = script
        self.value_bytes_max: int = store.value_bytes_max
        """See MetadataStore."""

    async def _meet(self) -> None:
        fault = self._script.happens(METADATA_WRITE)
        if fault is None:
            return
        if fault.do == DELAY:
            await asyncio.sleep(fault.seconds)
        else:
            raise MetadataError("a fault of the test: the session with the metadata store is lost")

    async def get(self, key: str) -> Versioned | None:
        """Reads as the store does."""
        return await self._store.get(key)

    async def put(self, key: str, value: bytes, expected: int | None = None) -> int:
        """Writes, unless a fault happens."""
        await self._meet()
        return await self._store.put(key, value, expected)

    async def put_all(self, puts: Sequence[Put]) -> list[int]:
        """Writes, unless a fault happens."""
        await self._meet()
        return await self._store.put_all(puts)

    async def delete(self, key: str, expected: int | None = None) -> None:
        """Deletes, unless a fault happens."""
        await self._meet()
        await self._store.delete(key, expected)

    async def children(self, key: str) -> list[str]:
        """Lists as the store does."""
        return await self._store.children(key)

    async def close(self) -> None:
        """Closes the store."""
        await self._store.close()
