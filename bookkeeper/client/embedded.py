"""EmbeddedLedgerClient: a bookie in the same process, with no wire, no task and one join per entry.

The broker does not know the bookie's package; `magnetar/process` passes an object that fits `LocalBookie`. The bytes that
are joined here, the entry with its length in front, are the very object that the bookie journals, caches and writes to
its entry log.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Sequence
from typing import Protocol

from bookkeeper.client.ledger_client import AddDone, BatchReadDone, DeleteDone, EntryParts, ReadDone

_LENGTH = struct.Struct(">i").pack


class DirectoryReport(Protocol):
    """One ledger directory of a bookie."""

    @property
    def path(self) -> str:
        """The directory as configured."""
        ...

    @property
    def used_bytes(self) -> int:
        """Bytes of its disk in use."""
        ...

    @property
    def free_bytes(self) -> int:
        """Free bytes of its disk."""
        ...

    @property
    def writable(self) -> bool:
        """False while the disk is too full for new entries."""
        ...


class ReadCacheReport(Protocol):
    """The read cache of a bookie since its start, in entries."""

    @property
    def hits(self) -> int:
        """Served from it."""
        ...

    @property
    def misses(self) -> int:
        """Entries that a load was started for."""
        ...

    @property
    def evicted_unserved(self) -> int:
        """Read ahead and evicted before a reader came."""
        ...


class BookieReport(Protocol):
    """A bookie at one moment."""

    @property
    def read_only(self) -> bool:
        """True while it refuses new entries."""
        ...

    @property
    def directories(self) -> Sequence[DirectoryReport]:
        """Its ledger directories."""
        ...

    @property
    def read_cache(self) -> ReadCacheReport:
        """Its read cache."""
        ...


class LocalBookie(Protocol):
    """The bookie's own calls, by the laws of `LedgerClient`.

    Called in the loop's thread.
    """

    def add(
        self,
        ledger_id: int,
        entry_id: int,
        record: bytes,
        master_key: bytes,
        recovery: bool,
        done: Callable[[int, int], None],
    ) -> None:
        """Store `record`: the entry behind its int32 length.

        The journal has it in the same form.
        """
        ...

    def read(self, ledger_id: int, entry_id: int, done: Callable[[int, bytes], None]) -> None:
        """As `LedgerClient.read`."""
        ...

    def batch_read(
        self,
        ledger_id: int,
        first: int,
        count_max: int,
        bytes_max: int,
        done: Callable[[int, list[bytes]], None],
    ) -> None:
        """As `LedgerClient.batch_read`."""
        ...

    def fence(
        self, ledger_id: int, master_key: bytes, done: Callable[[int, bytes], None], entry_id: int = -1
    ) -> None:
        """As `LedgerClient.fence`; -1 is LAST_ENTRY."""
        ...

    def file_of(self, ledger_id: int, entry_id: int) -> str:
        """As `LedgerClient.file_of`; may read the disk."""
        ...

    def delete_ledger(self, ledger_id: int, done: Callable[[int, int], None]) -> None:
        """Reclaim the ledger's space; returns at once. `done(rc, ledger id)` follows when the deletion is durable."""
        ...

    def journal_ms(self, *quantiles: float) -> list[float]:
        """Quantiles of the last journal writes in ms; NaN before the first one."""
        ...

    def report(self) -> BookieReport:
        """State of disks and read cache; asks the file system."""
        ...

    def close(self) -> None:
        """Blocks until all is on disk.

        Completions of outstanding requests are still posted to the loop.
        """
        ...


class EmbeddedLedgerClient:
    """`LedgerClient` over a LocalBookie."""

    __slots__ = (
        "_add",
        "_bookie",
        "batch_read",
        "delete",
        "fence",
        "file_of",
        "journal_ms",
        "read",
        "report",
    )

    def __init__(self, bookie: LocalBookie) -> None:
        self._bookie = bookie
        self._add = bookie.add
        # The bookie's calls as they are: a wrapper would cost a call per entry and add nothing.
        self.read: Callable[[int, int, ReadDone], None] = bookie.read
        """See `LedgerClient.read`."""
        self.batch_read: Callable[[int, int, int, int, BatchReadDone], None] = bookie.batch_read
        """See `LedgerClient.batch_read`."""
        self.fence = bookie.fence
        """See `LedgerClient.fence`."""
        self.file_of: Callable[[int, int], str] = bookie.file_of
        """See `LedgerClient.file_of`."""
        self.journal_ms = bookie.journal_ms
        """See `LocalBookie.journal_ms`."""
        self.report = bookie.report
        """See `LocalBookie.report`."""
        self.delete: Callable[[int, DeleteDone], None] = bookie.delete_ledger
        """See `LedgerClient.delete`."""

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
        """Joins the parts into the journal's record.

        That is the only copy of the body on its way to the disk.
        """
        head, header, body = parts
        record = b"".join((_LENGTH(len(head) + len(header) + len(body)), head, header, body))
        self._add(ledger_id, entry_id, record, master_key, recovery, done)

    async def close(self) -> None:
        """Blocks the loop until all is on disk.

        Outstanding requests are answered when this returns.
        """
        self._bookie.close()
        # The bookie's threads post completions to the loop with call_soon_threadsafe; the first turn runs them, the
        # second one what they posted in turn.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
