"""One request of BookKeeper's v3 wire on a connection of its own, and its answer.

The connection for entries speaks v2, which knows adds and reads alone. So START_TLS, which comes before it, and the
question for a bookie's disks are asked here.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple, Protocol, cast

from google.protobuf.message import DecodeError

from protocol.bookie_frame import LENGTH_BYTES
from protocol.bookie_frame_v3 import encode_message
from protocol.bookkeeper_api_pb2 import (
    EOK,
    GET_BOOKIE_INFO,
    VERSION_THREE,
    GetBookieInfoRequest,
    OperationType,
    Request,
    Response,
)

ANSWER_BYTES_MAX: Final = 1024
"""Longest answer that is read; those to the requests of this module have about 40 bytes."""
_BOTH: Final = GetBookieInfoRequest.TOTAL_DISK_CAPACITY | GetBookieInfoRequest.FREE_DISK_SPACE


class DiskSpace(NamedTuple):
    """The disks of a bookie's ledger directories, each disk once."""

    total_bytes: int
    """Bytes of all disks."""
    free_bytes: int
    """Bytes of these that are free."""


class Question(asyncio.Protocol):
    """Sends one request when the connection is made, and waits for its answer."""

    def __init__(self, operation: OperationType.ValueType) -> None:
        """Fills the part of `operation` in `request` before the connection is made."""
        self.request = Request()
        """The request."""
        header = self.request.header
        header.version, header.operation, header.txnId = VERSION_THREE, operation, 1
        self.answered: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        """The answer; fails with ConnectionError."""
        self._name = OperationType.Name(operation)
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        cast("asyncio.Transport", transport).write(encode_message(self.request))

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        self._data += data
        length = int.from_bytes(self._data[:LENGTH_BYTES], "big")
        if len(self._data) < LENGTH_BYTES or self.answered.done():
            return
        if length > ANSWER_BYTES_MAX or len(self._data) > LENGTH_BYTES + length:
            self._fail(f"sent bytes that are no answer to {self._name}")
        elif len(self._data) == LENGTH_BYTES + length:
            self._read(self._data[LENGTH_BYTES:])

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the loop."""
        if not self.answered.done():
            self._fail(f"closed the connection after the request {self._name}")

    def _read(self, packet: bytes) -> None:
        try:
            answer = Response.FromString(packet)
        except DecodeError:
            self._fail(f"sent bytes that are no answer to {self._name}")
            return
        self.answered.set_result(answer)

    def _fail(self, reason: str) -> None:
        self.answered.set_exception(ConnectionError(f"the bookie {reason}"))


class Connect(Protocol):
    """Makes a connection to one bookie, with TLS where its settings ask for it."""

    async def __call__(self, protocol: asyncio.BaseProtocol) -> asyncio.BaseTransport:
        """Returns the transport of `protocol`. Raises OSError."""
        ...


async def ask_disk_space(connect: Connect) -> DiskSpace:
    """Returns the space of a bookie's disks, by GET_BOOKIE_INFO. Raises OSError. Has no limit of time."""
    question = Question(GET_BOOKIE_INFO)
    question.request.getBookieInfoRequest.requested = _BOTH
    transport = await connect(question)
    try:
        answer = await question.answered
    finally:
        transport.close()
    if answer.status != EOK:
        raise ConnectionError(f"the bookie does not tell its disks (status {answer.status})")
    found = answer.getBookieInfoResponse
    return DiskSpace(found.totalDiskCapacity, found.freeDiskSpace)
