"""LedgerOutput: writes the entries of a compacted ledger.

Entries are added in order and several are in flight; `room` bounds their bytes. The first failed add fails the whole
ledger, because an entry after it would stand without those before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from bookkeeper.client.result_codes import error_of
from bookkeeper.ensembles.ledger_handle import Added, LedgerHandle
from bookkeeper.ensembles.ledgers import Ledgers
from bookkeeper.ensembles.own_ledger import OwnLedger
from broker.compaction.compacted_entry import encode_head
from foundation.loop.turn import Turn
from foundation.loop.uninterrupted import uninterrupted
from foundation.model.entry import Buffer, Entry
from foundation.model.errors import BrokerError

IN_FLIGHT_BYTES_MAX: Final = 4 << 20
"""Bytes that are added and not confirmed."""


class LedgerOutput:
    """The writing end of one compacted ledger."""

    def __init__(
        self, own: OwnLedger, ledgers: Ledgers, turn: Turn, now_ns: Callable[[], int], partition: int
    ) -> None:
        """`partition`: index of the topic among its partitions, -1 for none."""
        self.ledger_id = own.ledger_id
        """The ledger in BookKeeper."""
        self._own = own
        self._partition = partition
        self._now_ns = now_ns
        self._handle = LedgerHandle(own.ledger_id, ledgers.writer(own), turn, self, ledgers.digest)
        self._in_flight_bytes = 0
        self._error: BrokerError | None = None
        self._progress: asyncio.Future[None] | None = None

    @property
    def entries(self) -> int:
        """Entries added so far."""
        return self._handle.next_entry_id

    @property
    def size_bytes(self) -> int:
        """Bytes added so far."""
        return self._handle.length

    def add(self, entry: Entry, body: Buffer) -> None:
        """Adds an entry of the log with this body, its own or a rewritten one."""
        head = encode_head(entry.position, self._partition, entry.header, len(body))
        self._in_flight_bytes += len(head) + len(body)
        self._handle.add((head,), (body,), 0, None, self._now_ns())

    async def room(self) -> None:
        """Waits until more may be added. Raises the error of a failed add."""
        await self._until(IN_FLIGHT_BYTES_MAX)

    async def close(self) -> None:
        """Waits for all adds and ends the ledger for ever. Raises as `room`, and MetadataError."""
        await self._until(0)
        await uninterrupted(self._own.close(self._handle.next_entry_id - 1, self._handle.length))

    async def _until(self, bytes_max: int) -> None:
        while self._error is None and self._in_flight_bytes > bytes_max:
            self._progress = asyncio.get_running_loop().create_future()
            await self._progress
        if self._error is not None:
            raise self._error

    def _moved(self) -> None:
        if self._progress is not None and not self._progress.done():
            self._progress.set_result(None)

    # Called by the LedgerHandle

    def ledger_failing(self, handle: LedgerHandle, rc: int) -> None:
        """Keeps the error and ends the waits."""
        self._error = error_of(rc, f"adding to compacted ledger {self.ledger_id}")
        self._moved()

    def entries_confirmed(
        self,
        handle: LedgerHandle,
        entries: list[Entry],
        added: list[Added],
        now_ns: int,
    ) -> None:
        """Frees the bytes of confirmed entries for further adds."""
        self._in_flight_bytes -= sum(entry.size for entry in entries)
        self._moved()

    def adds_failed(self, handle: LedgerHandle, entries: list[Entry], added: list[Added], rc: int) -> None:
        """Does nothing: `ledger_failing` has kept the error."""
