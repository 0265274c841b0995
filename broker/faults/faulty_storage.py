"""A bookie and a metadata store that meet the faults of a script."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from bookkeeper.client.ledger_client import (
    AddDone,
    BatchReadDone,
    DeleteDone,
    EntryParts,
    LedgerClient,
    ReadDone,
)
from bookkeeper.metadata.metadata_store import MetadataStore, SessionState, Stop, Versioned, Write
from broker.faults.script import DELAY, FENCED, FULL_DISK, METADATA_WRITE, STORAGE_ADD, FaultScript
from foundation.model.errors import MetadataError
from protocol.bookie_frame import LAST_ENTRY, RC_FENCED, RC_READ_ONLY

RC_OF: Final = {FENCED: RC_FENCED, FULL_DISK: RC_READ_ONLY}
"""Codes of a bookie by the error of a fault."""


class FaultyBookie:
    """A bookie whose adds meet the faults on STORAGE_ADD."""

    def __init__(self, bookie: LedgerClient, script: FaultScript) -> None:
        self.wrapped = bookie
        """The bookie without faults."""
        self._script = script

    def add(
        self,
        ledger_id: int,
        entry_ids: Sequence[int],
        entries: Sequence[EntryParts],
        *,
        master_key: bytes,
        recovery: bool,
        done: AddDone,
    ) -> None:
        """Stores a run of entries, unless a fault happens to one of them."""
        fault = next((fault for _ in entry_ids if (fault := self._script.happens(STORAGE_ADD))), None)
        loop = asyncio.get_running_loop()

        def store() -> None:
            self.wrapped.add(
                ledger_id, entry_ids, entries, master_key=master_key, recovery=recovery, done=done
            )

        if fault is None:
            store()
        elif fault.do == DELAY:
            loop.call_later(fault.seconds, store)
        else:
            rc = RC_OF[fault.error]
            loop.call_soon(lambda: done(rc, entry_ids[0]))

    def read(self, ledger_id: int, entry_id: int, done: ReadDone) -> None:
        """Reads as the bookie does."""
        self.wrapped.read(ledger_id, entry_id, done)

    def batch_read(
        self, ledger_id: int, first: int, count_max: int, bytes_max: int, done: BatchReadDone
    ) -> None:
        """Reads as the bookie does."""
        self.wrapped.batch_read(ledger_id, first, count_max, bytes_max, done)

    def fence(self, ledger_id: int, master_key: bytes, done: ReadDone, entry_id: int = LAST_ENTRY) -> None:
        """Fences as the bookie does."""
        self.wrapped.fence(ledger_id, master_key, done, entry_id)

    def file_of(self, ledger_id: int, entry_id: int) -> str:
        """Names the file as the bookie does."""
        return self.wrapped.file_of(ledger_id, entry_id)

    def delete(self, ledger_id: int, done: DeleteDone) -> None:
        """Deletes as the bookie does."""
        self.wrapped.delete(ledger_id, done)

    async def close(self) -> None:
        """Closes the bookie."""
        await self.wrapped.close()


class FaultyMetadata:
    """A metadata store whose writes meet the faults on METADATA_WRITE."""

    def __init__(self, store: MetadataStore, script: FaultScript) -> None:
        self._store = store
        self._script = script
        self.value_bytes_max: int = store.value_bytes_max
        """Longest value, in bytes: that of the store that the faults wrap."""
        self.is_shared: bool = store.is_shared
        """True where another process may write."""

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

    async def put_all(self, puts: Sequence[Write]) -> list[int]:
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

    async def sync(self) -> None:
        """Waits as the store does."""
        await self._store.sync()

    async def watch(self, key: str, changed: Callable[[], None]) -> Stop:
        """Tells what the store tells."""
        return await self._store.watch(key, changed)

    async def watch_children(self, key: str, changed: Callable[[], None]) -> Stop:
        """Tells what the store tells."""
        return await self._store.watch_children(key, changed)

    def listen(self, told: Callable[[SessionState], None]) -> None:
        """Tells what the store tells."""
        self._store.listen(told)

    async def close(self) -> None:
        """Closes the store."""
        await self._store.close()
