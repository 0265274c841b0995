"""Recovery: finding out where a ledger ends whose writer is gone.

The ledger is fenced, so that its old writer can add no more. The last entry's header says what was surely
confirmed; from there on the entries are read until there is none, and each is written back, because
it may have been confirmed to a producer. What was found is then the ledger, for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from broker.errors import BrokerError, LedgerFenced, NoSuchEntry, NoSuchLedger, PersistenceError
from broker.ledger_client.digest import (
    EMPTY_PASSWORD_KEY,
    OVERHEAD_BYTES,
    check,
    last_add_confirmed,
    ledger_length,
)
from broker.ledger_client.ledger_client import LedgerClient

OK, NO_LEDGER, NO_ENTRY = 0, 1, 2
_ERRORS: dict[int, type[PersistenceError]] = {
    NO_LEDGER: NoSuchLedger,
    NO_ENTRY: NoSuchEntry,
    102: LedgerFenced,
    104: LedgerFenced,
}
READ_ENTRIES_MAX = 500


@dataclass(frozen=True, slots=True)
class LedgerEnd:
    last_entry_id: int
    """-1 = the ledger is empty."""

    length: int
    """Payload bytes."""

    last_stored: bytes
    """The last entry as stored, b"" when there is none."""


EMPTY = LedgerEnd(-1, 0, b"")


def error_of(rc: int, what: str) -> BrokerError:
    """The error for a result code of the ledger client that is not OK."""
    return _ERRORS.get(rc, PersistenceError)(f"{what}: bookie answered {rc}")


async def recover(client: LedgerClient, ledger_id: int, bytes_max: int) -> LedgerEnd:
    """Fence the ledger and find its end. PersistenceError when the bookie cannot answer; then nothing is lost
    and the recovery may be tried again."""
    rc, stored = await _answer(lambda done: client.fence(ledger_id, EMPTY_PASSWORD_KEY, done))
    if rc in (NO_LEDGER, NO_ENTRY):
        return EMPTY
    if rc != OK:
        raise error_of(rc, f"fencing ledger {ledger_id}")
    confirmed = last_add_confirmed(stored)
    found = await _read_forward(client, ledger_id, confirmed + 1, bytes_max)
    for offset, entry in enumerate(found):
        check(ledger_id, confirmed + 1 + offset, entry)
    await _write_back(client, ledger_id, confirmed + 1, found)
    last = found[-1] if found else await read_stored(client, ledger_id, confirmed)
    return LedgerEnd(confirmed + len(found), ledger_length(last), last) if last else EMPTY


async def _read_forward(client: LedgerClient, ledger_id: int, first: int, bytes_max: int) -> list[bytes]:
    found: list[bytes] = []
    while True:
        start = first + len(found)
        rc, run = await _batch(client, ledger_id, start, bytes_max)
        if rc in (NO_LEDGER, NO_ENTRY):
            return found
        if rc != OK:
            raise error_of(rc, f"reading entry {ledger_id}:{start}")
        found += run


async def _write_back(client: LedgerClient, ledger_id: int, first: int, entries: list[bytes]) -> None:
    async def write(entry_id: int, stored: bytes) -> None:
        parts = (stored[:OVERHEAD_BYTES], b"", memoryview(stored)[OVERHEAD_BYTES:])
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def done(rc: int, _: int) -> None:
            if not future.done():
                future.set_result(rc)

        client.add(
            ledger_id,
            entry_id,
            parts,
            master_key=EMPTY_PASSWORD_KEY,
            recovery=True,
            done=done,
        )
        if (rc := await future) != OK:
            raise error_of(rc, f"writing back entry {ledger_id}:{entry_id}")

    await asyncio.gather(*(write(first + offset, stored) for offset, stored in enumerate(entries)))


async def read_stored(client: LedgerClient, ledger_id: int, entry_id: int) -> bytes:
    """One entry as stored, its digest checked; b"" for entry -1. Raises PersistenceError."""
    if entry_id < 0:
        return b""
    rc, stored = await _answer(lambda done: client.read(ledger_id, entry_id, done))
    if rc != OK:
        raise error_of(rc, f"reading entry {ledger_id}:{entry_id}")
    check(ledger_id, entry_id, stored)
    return stored


async def _answer(ask: Callable[[Callable[[int, bytes], None]], None]) -> tuple[int, bytes]:
    future: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()

    def done(rc: int, stored: bytes) -> None:
        if not future.done():
            future.set_result((rc, stored))

    ask(done)
    return await future


async def _batch(client: LedgerClient, ledger_id: int, first: int, bytes_max: int) -> tuple[int, list[bytes]]:
    future: asyncio.Future[tuple[int, list[bytes]]] = asyncio.get_running_loop().create_future()

    def done(rc: int, run: list[bytes]) -> None:
        if not future.done():
            future.set_result((rc, run))

    client.batch_read(ledger_id, first, READ_ENTRIES_MAX, bytes_max, done)
    return await future
