"""The requests to a bookie that is killed, and the checks of its files and answers afterwards.

Adds to many ledgers at once, of which three in four are gone soon, so that logs become mostly dead, and one in eight is
on other bookies; fences, also of ledgers without entries; explicit LACs. Noted is what was answered, nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from pathlib import Path
from typing import NamedTuple

from bookie_stub.base.record import explicit_lac_of
from bookkeeper.client.digest import seal
from protocol.bookie_frame import (
    FLAG_RECOVERY_ADD,
    AddResponse,
    ReadResponse,
    Response,
    decode_response,
    encode_add_request,
    encode_fence_request,
    encode_read_request,
)
from protocol.bookkeeper_api_pb2 import EOK
from tests.bookie_stub.conftest import MASTER_KEY
from tests.bookie_stub.v3_client import V3Client

OK, NO_LEDGER, NO_ENTRY, FENCED = 0, 1, 2, 104
TOGETHER = 8
ENTRIES = 12
KEPT, MOVED = 4, 8
"""One ledger in as many lives on; one in as many does so on other bookies."""
FENCE_ONLY, CONFIRMED = 1_000_000, 2_000_000
"""The first id of ledgers without entries."""
WAIT_S = 300.0


def payload_of(ledger: int, entry: int) -> bytes:
    return b"%d:%d " % (ledger, entry) * (1 + (ledger * 31 + entry * 7) % 120)


def entry_of(ledger: int, entry: int) -> bytes:
    return b"".join(seal(ledger, entry, entry - 1, 0, b"", payload_of(ledger, entry)))


class Told:
    """The answers of the bookie so far."""

    def __init__(self) -> None:
        self.acknowledged: set[tuple[int, int]] = set()
        self.fenced: set[int] = set()
        self.confirmed: dict[int, int] = {}
        self.gone: set[int] = set()
        """Taken out of the metadata store."""
        self.elsewhere: set[int] = set()
        """Closed, and on other bookies."""


async def _answer(reader: asyncio.StreamReader) -> Response:
    length = int.from_bytes(await reader.readexactly(4), "big")
    return decode_response(await reader.readexactly(length))


async def load(port: int, told: Told, directory: Path, first: int) -> None:
    """Until the connection breaks; ledgers from `first` on."""
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        async with asyncio.TaskGroup() as group:
            group.create_task(_add(port, told, directory, first))
            group.create_task(_confirm(port, told, first))


async def _add(port: int, told: Told, directory: Path, first: int) -> None:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for start in itertools.count(first, TOGETHER):
            ledgers = range(start, start + TOGETHER)
            for entry in range(ENTRIES):
                for ledger in ledgers:
                    writer.write(encode_add_request(entry_of(ledger, entry), MASTER_KEY))
                await writer.drain()
            fences = [ledger for ledger in ledgers if ledger % 3 == 0]
            for ledger in fences:
                writer.write(encode_fence_request(ledger, MASTER_KEY))
            writer.write(encode_fence_request(FENCE_ONLY + start, MASTER_KEY))
            for _ in range(TOGETHER * ENTRIES + len(fences) + 1):
                _note(await _answer(reader), told)
            told.gone.update(ledger for ledger in ledgers if ledger % KEPT)
            told.elsewhere.update(ledger for ledger in ledgers if ledger % MOVED == KEPT)
            _write_down(told.gone, directory / "gone")
            _write_down(told.elsewhere, directory / "elsewhere")
    except (ConnectionError, asyncio.IncompleteReadError):
        return


def _note(answer: Response, told: Told) -> None:
    if isinstance(answer, AddResponse):
        if answer.rc == OK:
            told.acknowledged.add((answer.ledger_id, answer.entry_id))
    elif answer[0] in (OK, NO_ENTRY):
        told.fenced.add(answer[1])


def _write_down(ledgers: set[int], path: Path) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(" ".join(map(str, ledgers)))
    os.replace(temporary, path)


async def _confirm(port: int, told: Told, first: int) -> None:
    try:
        client = await V3Client.connect(port)
        for ledger in itertools.count(CONFIRMED + first):
            for number in range(3):
                answer = await client.answer(client.write_lac(ledger, number))
                if answer.status == EOK:
                    told.confirmed[ledger] = number
            await asyncio.sleep(0)
    except (ConnectionError, asyncio.IncompleteReadError):
        return


async def verify(port: int, told: Told) -> list[str]:
    """Returns a line for each fact that differs from an earlier answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    connection = reader, writer
    read = await _read_all(connection, told)
    closed = sorted(told.fenced | read.deleted | read.emptied)
    findings = read.findings + await _add_all(connection, closed, 10_000, 0, FENCED, "takes an add")
    findings += await _add_all(connection, sorted(read.emptied), 0, FLAG_RECOVERY_ADD, OK, "cannot come back")
    writer.close()
    return findings + await _verify_confirmed(port, told)


class _Read(NamedTuple):
    findings: list[str]
    deleted: set[int]
    """Ledgers that are not there any more."""
    emptied: set[int]


_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _read_all(connection: _Connection, told: Told) -> _Read:
    reader, writer = connection
    read = _Read([], set(), set())
    wanted = sorted(told.acknowledged)
    for start in range(0, len(wanted), 100):
        some = wanted[start : start + 100]
        writer.write(b"".join(encode_read_request(*key) for key in some))
        for _ in some:
            found = await asyncio.wait_for(_answer(reader), WAIT_S)
            assert isinstance(found, ReadResponse)
            _judge(found, told, read)
    return read


def _judge(found: ReadResponse, told: Told, read: _Read) -> None:
    """Of an entry that was acknowledged."""
    key = found.ledger_id, found.entry_id
    if found.rc == OK:
        if found.entry != entry_of(*key):
            read.findings.append(f"{key} has other bytes")
    elif found.rc == NO_LEDGER and key[0] in told.gone:
        read.deleted.add(key[0])
    elif found.rc == NO_ENTRY and key[0] in told.elsewhere:
        read.emptied.add(key[0])
    elif found.rc != NO_ENTRY or key[0] not in told.gone:
        read.findings.append(f"{key} was acknowledged and is answered {found.rc}")


async def _add_all(
    connection: _Connection, ledgers: list[int], entry: int, flags: int, wanted: int, otherwise: str
) -> list[str]:
    """Adds an entry to each ledger; returns those that do not answer as they should."""
    reader, writer = connection
    findings = []
    for ledger in ledgers:
        writer.write(encode_add_request(entry_of(ledger, entry), MASTER_KEY, flags))
        if await asyncio.wait_for(_answer(reader), WAIT_S) != AddResponse(wanted, ledger, entry):
            findings.append(f"ledger {ledger} was fenced, deleted or emptied and {otherwise}")
    return findings


async def _verify_confirmed(port: int, told: Told) -> list[str]:
    findings = []
    client = await V3Client.connect(port)
    for ledger, number in told.confirmed.items():
        body = (await client.answer(client.read_lac(ledger))).readLacResponse.lacBody
        if explicit_lac_of(body) < number:
            findings.append(f"ledger {ledger} had the explicit LAC {number}, now {explicit_lac_of(body)}")
    client.close()
    return findings
