"""LedgerClient: one bookie as the writers and readers of ledgers see it, embedded, over TCP or in memory.

The laws that every implementation obeys:

1. A completion is called on the loop's thread, exactly once, and never inside the call that asked.
2. An add is answered after the journal's fsync, unless `journalSyncData=false`.
3. A fence is durable before it is answered; no plain add succeeds after it.

`rc` is BookKeeper's result code on the wire: 0 = OK, 1 = no such ledger, 2 = no such entry, 101 = I/O error, 102 = wrong
key, 104 = fenced, 105 = read-only, 106 = too many requests. BookKeeper's name for this contract: BookieClient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from foundation.model.entry import Buffer
from protocol.bookie_frame import LAST_ENTRY

AddDone = Callable[[int, int], None]
"""(rc, id of the first entry): OK when every entry of the add is stored, else the result of one that is not."""
DeleteDone = Callable[[int, int], None]
"""(rc, ledger id)"""
ReadDone = Callable[[int, bytes], None]
"""(rc, whole stored entry: ledger, entry, LAC, length, digest, payload)"""
BatchReadDone = Callable[[int, list[bytes]], None]
"""(rc, consecutive stored entries from the first one asked for; at least one when rc is 0)"""

EntryParts = tuple[bytes, bytes, Buffer]
"""(32 header bytes and digest, broker entry metadata block or b"", body); joined, the stored entry.

In parts, because only the last user joins them: the TCP client into one write per turn, the embedded one into the record
that the journal writes. Each earlier join would copy the body once more."""


class EntryAdds(Protocol):
    """The destination of a ledger's entries. It is one bookie, or an EnsembleWriter in front of several."""

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
        """Stores a run of entries, at least one, with one answer for all.

        `entry_ids`: of `entries`, all different; a range when they follow one another. `recovery` adds also to a fenced
        ledger: it writes back what a recovery found.

        `master_key`: 20 bytes that are the same for every add of a ledger; another key is refused with rc 102.
        """
        ...


class LedgerClient(EntryAdds, Protocol):
    """The requests that a bookie answers."""

    def read(self, ledger_id: int, entry_id: int, done: ReadDone) -> None:
        """Reads one entry; LAST_ENTRY reads the highest one that the bookie has."""
        ...

    def batch_read(
        self, ledger_id: int, first: int, count_max: int, bytes_max: int, done: BatchReadDone
    ) -> None:
        """Reads consecutive entries. The first is returned whatever its size; a count of 0 or less has no limit."""
        ...

    def fence(self, ledger_id: int, master_key: bytes, done: ReadDone, entry_id: int = LAST_ENTRY) -> None:
        """Refuses further plain adds, durably, then reads the entry. The entry that is returned has its LAC inside."""
        ...

    def file_of(self, ledger_id: int, entry_id: int) -> str:
        """Returns file and offset of an entry on disk, for a log line; empty when they are not known here."""
        ...

    def delete(self, ledger_id: int, done: DeleteDone) -> None:
        """Reclaims the ledger's space. Its metadata is gone already.

        `done(rc, ledger id)` follows when no crash can bring the entries back. A bookie on the network answers at once: it
        compares its ledgers with the metadata store from time to time, also after it was down.
        """
        ...

    async def close(self) -> None:
        """Closes the bookie or the connection to it. Outstanding requests are answered first."""
        ...
