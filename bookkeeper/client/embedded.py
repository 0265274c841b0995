"""EmbeddedLedgerClient: a bookie in the same process, with no wire, no task and one join per run of entries.

The broker does not know the bookie's package; `magnetar/process` passes an object that fits `LocalBookie`. The bytes that
are joined here, each entry with its length in front, are the form in which the bookie journals, caches and writes them to
its entry log.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Sequence
from typing import Protocol

from bookkeeper.client.ledger_client import AddDone, BatchReadDone, DeleteDone, EntryParts, ReadDone
from foundation.bookie_report import BookieReport
from foundation.model.entry import Buffer

_LENGTH = struct.Struct(">i").pack
_LENGTH_BYTES = 4


class LocalBookie(Protocol):
    """The bookie's own calls, by the laws of `LedgerClient`. Called in the loop's thread."""

    def add(
        self,
        ledger_id: int,
        entry_id: int,
        record: bytes,
        master_key: bytes,
        recovery: bool,
        done: Callable[[int, int], None],
    ) -> None:
        """Stores an entry: `record` is the entry after its int32 length, the form in which the journal has it."""
        ...

    def add_run(
        self,
        ledger_id: int,
        entry_ids: Sequence[int],
        records: bytes,
        starts: Sequence[int],
        master_key: bytes,
        recovery: bool,
        done: Callable[[int, int], None],
    ) -> None:
        """Stores entries that follow one another in `records`, from these offsets on. They have one answer."""
        ...

    def read(self, ledger_id: int, entry_id: int, done: Callable[[int, bytes], None]) -> None:
        """Reads one entry, with the answers of `LedgerClient.read`."""
        ...

    def batch_read(
        self,
        ledger_id: int,
        first: int,
        count_max: int,
        bytes_max: int,
        done: Callable[[int, list[bytes]], None],
    ) -> None:
        """Reads several entries, with the answers of `LedgerClient.batch_read`."""
        ...

    def fence(
        self, ledger_id: int, master_key: bytes, done: Callable[[int, bytes], None], entry_id: int = -1
    ) -> None:
        """Ends the ledger for its writer and reads an entry; -1 is LAST_ENTRY."""
        ...

    def file_of(self, ledger_id: int, entry_id: int) -> str:
        """Names the file that has the entry; may read the disk."""
        ...

    def delete_ledger(self, ledger_id: int, done: Callable[[int, int], None]) -> None:
        """Reclaims the ledger's space; returns at once. `done(rc, ledger id)` follows when the deletion is durable."""
        ...

    def journal_ms(self, *quantiles: float) -> list[float]:
        """Quantiles of the last journal writes in ms; NaN before the first one."""
        ...

    def report(self) -> BookieReport:
        """Returns the state of disks and read cache; asks the file system."""
        ...

    def close(self) -> None:
        """Blocks until all is on disk. Completions of outstanding requests are still posted to the loop."""
        ...


class EmbeddedLedgerClient:
    """`LedgerClient` over a LocalBookie."""

    def __init__(self, bookie: LocalBookie) -> None:
        self._bookie = bookie
        self._add = bookie.add
        self._add_run = bookie.add_run
        # The bookie's calls as they are: a wrapper would cost a call per entry and add nothing.
        self.read: Callable[[int, int, ReadDone], None] = bookie.read
        """Reads one entry."""
        self.batch_read: Callable[[int, int, int, int, BatchReadDone], None] = bookie.batch_read
        """Reads several entries."""
        self.fence = bookie.fence
        """Ends a ledger for its writer and reads an entry."""
        self.file_of: Callable[[int, int], str] = bookie.file_of
        """Names the file that has an entry."""
        self.journal_ms = bookie.journal_ms
        """Returns times of the journal's writes in ms."""
        self.report = bookie.report
        """Returns the state of the bookie, its disks included."""
        self.delete: Callable[[int, DeleteDone], None] = bookie.delete_ledger
        """Deletes a ledger."""

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
        """Joins the parts of all entries into the journal's records."""
        if len(entries) == 1:
            head, header, body = entries[0]
            record = b"".join((_LENGTH(len(head) + len(header) + len(body)), head, header, body))
            self._add(ledger_id, entry_ids[0], record, master_key, recovery, done)
            return
        pieces: list[Buffer] = []
        starts: list[int] = []
        end = 0
        for head, header, body in entries:
            starts.append(end)
            size = len(head) + len(header) + len(body)
            end += _LENGTH_BYTES + size
            pieces += (_LENGTH(size), head, header, body)
        records = b"".join(pieces)
        # Offsets of equally long records are a range, which takes no memory per entry.
        even = range(0, end, starts[1])
        self._add_run(
            ledger_id,
            entry_ids,
            records,
            even if starts == list(even) else starts,
            master_key,
            recovery,
            done,
        )

    async def close(self) -> None:
        """Blocks the loop until all is on disk. Outstanding requests are answered when this returns."""
        self._bookie.close()
        # The bookie's threads post completions to the loop with call_soon_threadsafe; the first turn runs them, the
        # second one what they posted in turn.
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def embedded_of(client: object) -> EmbeddedLedgerClient | None:
    """Returns the client of a bookie in this process, also where `--test-faults` wraps it; None for any other."""
    bookie = getattr(client, "wrapped", client)
    return bookie if isinstance(bookie, EmbeddedLedgerClient) else None
