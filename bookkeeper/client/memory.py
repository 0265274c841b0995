"""MemoryLedgerClient: a bookie in dictionaries, for `--memory` and tests; lost when the process ends.

It answers as a bookie does (keys, fences, missing entries), one turn of the loop later, in the order of the calls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from bookkeeper.client.ledger_client import AddDone, BatchReadDone, DeleteDone, EntryParts, ReadDone
from protocol.bookie_frame import (
    BATCH_ENTRY_OVERHEAD_BYTES,
    BATCH_OVERHEAD_BYTES,
    ENTRY_BYTES_MIN,
    LAST_ENTRY,
    MASTER_KEY_BYTES,
    RC_BAD_REQUEST,
    RC_FENCED,
    RC_IO_ERROR,
    RC_NO_ENTRY,
    RC_NO_LEDGER,
    RC_OK,
    RC_UNAUTHORIZED,
)

CallSoon = Callable[[Callable[[], None]], object]
"""Calls its argument in a later turn of the loop, as `loop.call_soon`."""


class _Ledger:
    def __init__(self, master_key: bytes) -> None:
        self.master_key = master_key
        self.fenced = False
        self.entries: dict[int, bytes] = {}
        self.last = -1


class MemoryLedgerClient:
    """`LedgerClient` without a disk."""

    def __init__(self, call_soon: CallSoon) -> None:
        self._call_soon = call_soon
        self._ledgers: dict[int, _Ledger] = {}
        self._answers: deque[Callable[[], None]] = deque()
        self._closed = False

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
        """Checks the request as a bookie does."""
        rc = RC_OK
        for entry_id, parts in zip(entry_ids, entries, strict=True):
            rc = rc or self._store(ledger_id, entry_id, b"".join(parts), master_key, recovery)
        self._answer(partial(done, rc, entry_ids[0]))

    def _store(self, ledger_id: int, entry_id: int, entry: bytes, master_key: bytes, recovery: bool) -> int:
        if self._closed:
            return RC_IO_ERROR
        if (
            ledger_id < 0
            or entry_id < 0
            or len(entry) < ENTRY_BYTES_MIN
            or len(master_key) != MASTER_KEY_BYTES
        ):
            return RC_BAD_REQUEST
        ledger = self._known(ledger_id, master_key)
        if ledger is None:
            return RC_UNAUTHORIZED
        if ledger.fenced and not recovery:
            return RC_FENCED
        ledger.entries[entry_id] = entry
        ledger.last = max(ledger.last, entry_id)
        return RC_OK

    def _known(self, ledger_id: int, master_key: bytes) -> _Ledger | None:
        """Returns the ledger, created if need be; None when its key is another one."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            ledger = self._ledgers[ledger_id] = _Ledger(master_key)
        return ledger if ledger.master_key == master_key else None

    def read(self, ledger_id: int, entry_id: int, done: ReadDone) -> None:
        """Calls back in the next turn."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            self._answer(partial(done, RC_NO_LEDGER, b""))
            return
        entry = ledger.entries.get(ledger.last if entry_id == LAST_ENTRY else entry_id)
        self._answer(partial(done, RC_NO_ENTRY, b"") if entry is None else partial(done, RC_OK, entry))

    def batch_read(
        self, ledger_id: int, first: int, count_max: int, bytes_max: int, done: BatchReadDone
    ) -> None:
        """`bytes_max` counts the overhead of the wire, as a bookie does."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            self._answer(partial(done, RC_NO_LEDGER, []))
            return
        entries: list[bytes] = []
        # A bookie counts the answer's overhead too, and tests against this one must see equal batches.
        bytes_left = bytes_max - BATCH_OVERHEAD_BYTES
        while count_max <= 0 or len(entries) < count_max:
            entry = ledger.entries.get(first + len(entries))
            if entry is None:
                break
            bytes_left -= len(entry) + BATCH_ENTRY_OVERHEAD_BYTES
            if bytes_left < 0 and entries:
                break
            entries.append(entry)
        self._answer(partial(done, RC_OK if entries else RC_NO_ENTRY, entries))

    def fence(self, ledger_id: int, master_key: bytes, done: ReadDone, entry_id: int = LAST_ENTRY) -> None:
        """Fences also a ledger that has no entry yet, which then exists."""
        ledger = self._known(ledger_id, master_key)
        if ledger is None:
            self._answer(partial(done, RC_UNAUTHORIZED, b""))
            return
        ledger.fenced = True
        self.read(ledger_id, entry_id, done)

    def file_of(self, ledger_id: int, entry_id: int) -> str:
        """Returns "": there is no file."""
        return ""

    def delete(self, ledger_id: int, done: DeleteDone) -> None:
        """Forgets the ledger."""
        self._ledgers.pop(ledger_id, None)
        done(RC_OK, ledger_id)

    async def close(self) -> None:
        """Fails later adds; the entries stay readable."""
        self._closed = True

    def _answer(self, answer: Callable[[], None]) -> None:
        self._answers.append(answer)
        if len(self._answers) == 1:
            # Asked for with the first answer of a turn; the others of the turn go with it, in order.
            self._call_soon(self._deliver)

    def _deliver(self) -> None:
        # Requests that a completion makes are answered in the next turn, as by a real bookie.
        answers, self._answers = self._answers, deque()
        for answer in answers:
            answer()
