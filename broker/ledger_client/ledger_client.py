"""What entries are stored on: the calls that embedded, networked and in-memory bookies all answer.

Completions always come on the loop's thread and never inside the call that asked. `rc` is BookKeeper's
result code (0 = OK, 1 = no ledger, 2 = no entry, 101 = I/O, 102 = wrong key, 104 = fenced, 105 = read-only,
106 = too many requests). An add is answered after the journal's fsync unless `journalSyncData=false`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker.model.entry import Buffer
from protocol.bookie_frame import LAST_ENTRY

AddDone = Callable[[int, int], None]
"""(rc, entry id)"""
ReadDone = Callable[[int, bytes], None]
"""(rc, whole stored entry: ledger, entry, LAC, length, digest, payload)"""
BatchReadDone = Callable[[int, list[bytes]], None]
"""(rc, consecutive stored entries from the first one asked for; at least one when rc is 0)"""

EntryParts = tuple[bytes, bytes, Buffer]
"""(32 header bytes and digest, broker entry metadata block or b"", body); joined, the stored entry."""


class EntryAdds(Protocol):
    """Where the writer of a ledger sends its entries."""

    def add(
        self,
        ledger_id: int,
        entry_id: int,
        parts: EntryParts,
        *,
        master_key: bytes,
        recovery: bool,
        done: AddDone,
    ) -> None: ...


class LedgerClient(EntryAdds, Protocol):
    """One bookie."""

    def read(self, ledger_id: int, entry_id: int, done: ReadDone) -> None: ...

    def batch_read(
        self, ledger_id: int, first: int, count_max: int, bytes_max: int, done: BatchReadDone
    ) -> None: ...

    def fence(self, ledger_id: int, master_key: bytes, done: ReadDone, entry_id: int = LAST_ENTRY) -> None:
        """No further plain adds, durably; then as a read of the entry: the last one (its LAC is inside) unless
        another is named, or rc 1 / 2."""
        ...

    def delete(self, ledger_id: int) -> None:
        """The ledger's metadata is gone: its space may be reclaimed."""
        ...

    async def close(self) -> None: ...
