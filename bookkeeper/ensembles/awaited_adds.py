"""AwaitedAdds: adds to one ledger for work that may wait: positions of cursors, schemas, buckets of delayed entries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bookkeeper.client.result_codes import error_of
from bookkeeper.ensembles.ledger_handle import Added, LedgerHandle
from bookkeeper.ensembles.ledgers import Ledgers
from bookkeeper.ensembles.own_ledger import OwnLedger
from foundation.loop.turn import Turn
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError

_OK = 0


class AwaitedAdds:
    """Adds entries to a ledger from entry 0 on, and ends it. One caller waits at a time."""

    __slots__ = ("_handle", "_ledger", "_now_ns", "_rc", "_waiting")

    def __init__(self, ledger: OwnLedger, ledgers: Ledgers, turn: Turn, now_ns: Callable[[], int]) -> None:
        """`now_ns`: a monotonic clock."""
        self._ledger = ledger
        self._now_ns = now_ns
        self._handle = LedgerHandle(ledger.ledger_id, ledgers.writer(ledger), turn, self, ledgers.digest)
        self._rc = _OK
        self._waiting: asyncio.Future[None] | None = None

    @property
    def ledger_id(self) -> int:
        """The ledger that takes the entries."""
        return self._ledger.ledger_id

    @property
    def count(self) -> int:
        """Entries added so far, confirmed or not."""
        return self._handle.next_entry_id

    def add(self, payload: bytes, done: Callable[[BrokerError | None], None] | None = None) -> None:
        """Adds one entry; `confirmed` tells of its outcome, and `done` is called with the error of a refused one."""
        self._handle.add((b"",), (payload,), 1, done, self._now_ns())

    async def confirmed(self) -> None:
        """Returns when all adds are confirmed. Raises BrokerError when one was refused; later ones are refused too."""
        while self._rc == _OK and self._handle.pending:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        if self._rc != _OK:
            raise self._error()

    def _error(self) -> BrokerError:
        return error_of(self._rc, f"adding to ledger {self._handle.ledger_id}")

    async def close(self) -> None:
        """Ends the ledger after the last entry. Raises LedgerFenced and MetadataError."""
        await self._ledger.close(self._handle.next_entry_id - 1, self._handle.length)

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    # Called by the LedgerHandle

    def ledger_failing(self, handle: LedgerHandle, rc: int) -> None:
        """Does nothing: `adds_failed` follows."""

    def entries_confirmed(
        self, handle: LedgerHandle, entries: list[Entry], added: list[Added], now_ns: int
    ) -> None:
        """Ends the wait once the last add is confirmed."""
        self._wake()
        _call(added, None)

    def adds_failed(self, handle: LedgerHandle, entries: list[Entry], added: list[Added], rc: int) -> None:
        """Ends the wait with the error of the refused add."""
        self._rc = rc
        self._wake()
        _call(added, self._error())


def _call(added: list[Added], error: BrokerError | None) -> None:
    for done, _, _ in added:
        if callable(done):
            done(error)
