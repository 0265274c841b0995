"""The ledger client over a bookie in the same process: no wire, no task, one join per entry.

The broker does not know the bookie's package; whoever composes both hands in an object that fits
`LocalBookie`. What is joined here, the entry with its length in front, is the very object that the bookie
journals, caches and writes to its entry log.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Protocol

from broker.ledger_client.ledger_client import AddDone, BatchReadDone, EntryParts, ReadDone

_LENGTH = struct.Struct(">i").pack


class LocalBookie(Protocol):
    """Called in the loop's thread; completions come in that thread, never inside the call that asked."""

    def add(
        self,
        ledger_id: int,
        entry_id: int,
        record: bytes,
        master_key: bytes,
        recovery: bool,
        done: Callable[[int, int], None],
    ) -> None:
        """`record` is the entry with its int32 length in front."""
        ...

    def read(self, ledger_id: int, entry_id: int, done: Callable[[int, bytes], None]) -> None: ...

    def batch_read(
        self,
        ledger_id: int,
        first: int,
        count_max: int,
        bytes_max: int,
        done: Callable[[int, list[bytes]], None],
    ) -> None: ...

    def fence(
        self, ledger_id: int, master_key: bytes, done: Callable[[int, bytes], None], entry_id: int = -1
    ) -> None: ...

    def delete_ledger(self, ledger_id: int) -> None: ...

    def close(self) -> None:
        """Blocks until all is on disk; completions of what was outstanding are still posted."""
        ...


class EmbeddedLedgerClient:
    __slots__ = ("_add", "_bookie", "batch_read", "delete", "fence", "read")

    def __init__(self, bookie: LocalBookie) -> None:
        self._bookie = bookie
        self._add = bookie.add
        # The bookie's calls as they are: a wrapper would cost a call per entry and add nothing.
        self.read: Callable[[int, int, ReadDone], None] = bookie.read
        self.batch_read: Callable[[int, int, int, int, BatchReadDone], None] = bookie.batch_read
        self.fence = bookie.fence
        self.delete: Callable[[int], None] = bookie.delete_ledger

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
        head, header, body = parts
        record = b"".join((_LENGTH(len(head) + len(header) + len(body)), head, header, body))
        self._add(ledger_id, entry_id, record, master_key, recovery, done)

    async def close(self) -> None:
        """Close the bookie; what was outstanding has been answered when this returns."""
        self._bookie.close()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
