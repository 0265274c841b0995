"""What a bookie is asked while it is killed, and what must be true of it afterwards.

Adds to many ledgers at once, of which three in four are gone soon, so that logs become mostly dead; fences, also of
ledgers without entries; explicit LACs. Noted is what was answered, nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from pathlib import Path

from bookie_stub.record import explicit_lac_of
from broker.ledger_client.digest import seal
from protocol.bookie_frame import (
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
KEPT = 4
"""One ledger in as many lives on."""
FENCE_ONLY, CONFIRMED = 1_000_000, 2_000_000
"""Where ledgers without entries begin."""
WAIT_S = 20.0


def payload_of(ledger: int, entry: int) -> bytes:
    return b"%d:%d " % (ledger, entry) * (1 + (ledger * 31 + entry * 7) % 120)


def entry_of(ledger: int, entry: int) -> bytes:
    return b"".join(seal(ledger, entry, entry - 1, 0, b"", payload_of(ledger, entry)))


class Told:
    """What the bookie has answered."""

    def __init__(self) -> None:
        self.acknowledged: set[tuple[int, int]] = set()
        self.fenced: set[int] = set()
        self.confirmed: dict[int, int] = {}
        self.gone: set[int] = set()
        """Taken out of the metadata store."""


async def _answer(reader: asyncio.StreamReader) -> Response:
    length = int.from_bytes(await reader.readexactly(4), "big")
    return decode_response(await reader.readexactly(length))


async def load(port: int, told: Told, gone: Path, first: int) -> None:
    """Until the connection breaks; ledgers from `first` on."""
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        async with asyncio.TaskGroup() as group:
            group.create_task(_add(port, told, gone, first))
            group.create_task(_confirm(port, told, first))


async def _add(port: int, told: Told, gone: Path, first: int) -> None:
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
            _forget([ledger for ledger in ledgers if ledger % KEPT], told, gone)
    except (ConnectionError, asyncio.IncompleteReadError):
        return


def _note(answer: Response, told: Told) -> None:
    if isinstance(answer, AddResponse):
        if answer.rc == OK:
            told.acknowledged.add((answer.ledger_id, answer.entry_id))
    elif answer[0] in (OK, NO_ENTRY):
        told.fenced.add(answer[1])


def _forget(ledgers: list[int], told: Told, gone: Path) -> None:
    told.gone.update(ledgers)
    temporary = gone.with_suffix(".tmp")
    temporary.write_text(" ".join(map(str, told.gone)))
    os.replace(temporary, gone)


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
    """What is not as it was answered, a line for each."""
    findings: list[str] = []
    deleted: set[int] = set()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    wanted = sorted(told.acknowledged)
    for start in range(0, len(wanted), 100):
        some = wanted[start : start + 100]
        writer.write(b"".join(encode_read_request(*key) for key in some))
        for _ in some:
            found = await asyncio.wait_for(_answer(reader), WAIT_S)
            assert isinstance(found, ReadResponse)
            key = found.ledger_id, found.entry_id
            if found.rc == NO_LEDGER:
                deleted.add(key[0])
            if found.rc == OK and found.entry != entry_of(*key):
                findings.append(f"{key} has other bytes")
            if found.rc != OK and not (key[0] in told.gone and found.rc in (NO_LEDGER, NO_ENTRY)):
                findings.append(f"{key} was acknowledged and is answered {found.rc}")
    for ledger in sorted(told.fenced | deleted):
        writer.write(encode_add_request(entry_of(ledger, 10_000), MASTER_KEY))
        if await asyncio.wait_for(_answer(reader), WAIT_S) != AddResponse(FENCED, ledger, 10_000):
            findings.append(
                f"ledger {ledger} was {'deleted' if ledger in deleted else 'fenced'} and takes an add"
            )
    writer.close()
    client = await V3Client.connect(port)
    for ledger, number in told.confirmed.items():
        body = (await client.answer(client.read_lac(ledger))).readLacResponse.lacBody
        if explicit_lac_of(body) < number:
            findings.append(f"ledger {ledger} had the explicit LAC {number}, now {explicit_lac_of(body)}")
    client.close()
    return findings
