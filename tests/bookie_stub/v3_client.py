"""A hand-made v3 client: one connection, requests by their fields, answers by transaction id."""

from __future__ import annotations

import asyncio
import itertools

from bookie_stub.base.record import KEY
from protocol.bookie_frame_v3 import encode_message
from protocol.bookkeeper_api_pb2 import (
    ADD_ENTRY,
    FORCE_LEDGER,
    GET_LIST_OF_ENTRIES_OF_LEDGER,
    READ_ENTRY,
    READ_LAC,
    VERSION_THREE,
    WRITE_LAC,
    AddRequest,
    OperationType,
    ReadRequest,
    Request,
    Response,
)
from tests.bookie_stub.conftest import MASTER_KEY, entry_of

FENCE, PIGGYBACK = ReadRequest.FENCE_LEDGER, ReadRequest.ENTRY_PIGGYBACK
WAIT_S = 60.0


def explicit_lac(ledger: int, lac: int) -> bytes:
    return KEY.pack(ledger, lac) + b"crc."


class V3Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._numbers = itertools.count(1)
        self._early: dict[int, Response] = {}

    @classmethod
    async def connect(cls, port: int) -> V3Client:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def close(self) -> None:
        # With TLS a close waits for the peer's goodbye. The loop ends before it comes, and the socket would stay open.
        self.writer.transport.abort()

    # Each sends and returns the transaction id.

    def add(
        self,
        ledger: int,
        entry: int,
        payload: bytes = b"payload",
        *,
        key: bytes = MASTER_KEY,
        recovery: bool = False,
        body: bytes | None = None,
        write_flags: int = 0,
    ) -> int:
        return self.send(self.add_request(ledger, entry, payload, key, recovery, body, write_flags))

    def add_request(
        self,
        ledger: int,
        entry: int,
        payload: bytes = b"payload",
        key: bytes = MASTER_KEY,
        recovery: bool = False,
        body: bytes | None = None,
        write_flags: int = 0,
    ) -> Request:
        request = self.request(ADD_ENTRY)
        add = request.addRequest
        add.ledgerId, add.entryId, add.masterKey = ledger, entry, key
        add.body = entry_of(ledger, entry, payload) if body is None else body
        if recovery:
            add.flag = AddRequest.RECOVERY_ADD
        if write_flags:
            add.writeFlags = write_flags
        return request

    def read(self, ledger: int, entry: int) -> int:
        request = self.request(READ_ENTRY)
        request.readRequest.ledgerId, request.readRequest.entryId = ledger, entry
        return self.send(request)

    def fence(self, ledger: int, entry: int = -1, *, key: bytes = MASTER_KEY) -> int:
        request = self.request(READ_ENTRY)
        read = request.readRequest
        read.ledgerId, read.entryId, read.masterKey, read.flag = ledger, entry, key, FENCE
        return self.send(request)

    def long_poll(
        self, ledger: int, previous: int, timeout_ms: int = 60_000, *, piggyback: bool = True
    ) -> int:
        request = self.request(READ_ENTRY)
        read = request.readRequest
        read.ledgerId, read.entryId, read.previousLAC, read.timeOut = ledger, -1, previous, timeout_ms
        if piggyback:
            read.flag = PIGGYBACK
        return self.send(request)

    def write_lac(self, ledger: int, lac: int, *, key: bytes = MASTER_KEY, body: bytes | None = None) -> int:
        request = self.request(WRITE_LAC)
        write = request.writeLacRequest
        write.ledgerId, write.lac, write.masterKey = ledger, lac, key
        write.body = explicit_lac(ledger, lac) if body is None else body
        return self.send(request)

    def read_lac(self, ledger: int) -> int:
        request = self.request(READ_LAC)
        request.readLacRequest.ledgerId = ledger
        return self.send(request)

    def force(self, ledger: int) -> int:
        request = self.request(FORCE_LEDGER)
        request.forceLedgerRequest.ledgerId = ledger
        return self.send(request)

    def list_entries(self, ledger: int) -> int:
        request = self.request(GET_LIST_OF_ENTRIES_OF_LEDGER)
        request.getListOfEntriesOfLedgerRequest.ledgerId = ledger
        return self.send(request)

    def request(self, operation: OperationType.ValueType) -> Request:
        return self.request_of(operation, next(self._numbers))

    @staticmethod
    def request_of(operation: OperationType.ValueType, number: int) -> Request:
        request = Request()
        request.header.version = VERSION_THREE
        request.header.operation = operation
        request.header.txnId = number
        return request

    def send(self, request: Request) -> int:
        self.writer.write(encode_message(request))
        return request.header.txnId

    async def answer(self, number: int) -> Response:
        async with asyncio.timeout(WAIT_S):
            while number not in self._early:
                response = await self._next()
                self._early[response.header.txnId] = response
        return self._early.pop(number)

    async def first_answer(self) -> Response:
        """Whichever comes first."""
        return await asyncio.wait_for(self._next(), WAIT_S)

    async def closed(self) -> bool:
        try:
            return await asyncio.wait_for(self.reader.read(), WAIT_S) == b""
        except ConnectionResetError:  # there was more of ours that nobody read
            return True

    async def _next(self) -> Response:
        length = int.from_bytes(await self.reader.readexactly(4), "big")
        return Response.FromString(await self.reader.readexactly(length))
