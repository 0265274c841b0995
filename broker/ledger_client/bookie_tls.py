"""Begins TLS on a new connection to a bookie, as BookKeeper's client does.

The first request is START_TLS of the v3 wire in clear text, and its answer is the last clear text. Then follow the
handshake and the requests of the v2 wire.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Protocol, cast

from google.protobuf.message import DecodeError

from protocol.bookie_frame import LENGTH_BYTES
from protocol.bookie_frame_v3 import encode_message
from protocol.bookkeeper_api_pb2 import EOK, START_TLS, VERSION_THREE, Request, Response
from tls.contexts import reason_of

ANSWER_BYTES_MAX = 1024
"""Longest answer to START_TLS that is read; a bookie sends about 20 bytes."""


class TlsOfBookies(Protocol):
    """The source of TLS contexts; `tls.certificates.Certificates` is one."""

    def current(self) -> ssl.SSLContext:
        """Returns the context for a new connection."""
        ...


async def connect_with_tls(
    connection: asyncio.Protocol, host: str, port: int, context: ssl.SSLContext
) -> None:
    """Connects and hands the transport with TLS to `connection`.

    Raises OSError (ConnectionError, ssl.SSLError) when the bookie refuses TLS, or the handshake fails.
    """
    loop = asyncio.get_running_loop()
    plain, asking = await loop.create_connection(_Asking, host, port)
    try:
        await asking.answered
        secured = await loop.start_tls(plain, connection, context, server_hostname=host)
        if secured is None:
            raise ConnectionResetError("the bookie closed the connection in the TLS handshake")
    except ssl.SSLError as error:
        plain.abort()
        raise ConnectionError(f"TLS handshake failed: {reason_of(error)}") from None
    except BaseException:
        # Also when the attempt is cancelled: nothing else could close the socket.
        plain.abort()
        raise
    # `start_tls` takes the protocol as connected. A bookie sends nothing before the first request, so nothing is early.
    connection.connection_made(secured)


class _Asking(asyncio.Protocol):
    """Sends START_TLS and waits for its answer."""

    def __init__(self) -> None:
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        request = Request()
        request.header.version = VERSION_THREE
        request.header.operation = START_TLS
        request.header.txnId = 1
        cast("asyncio.Transport", transport).write(encode_message(request))

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        self._data += data
        length = int.from_bytes(self._data[:LENGTH_BYTES], "big")
        if len(self._data) < LENGTH_BYTES or self.answered.done():
            return
        if length > ANSWER_BYTES_MAX or len(self._data) > LENGTH_BYTES + length:
            self._fail("sent bytes that are no answer to START_TLS")
        elif len(self._data) == LENGTH_BYTES + length:
            self._decide(self._data[LENGTH_BYTES:])

    def _decide(self, packet: bytes) -> None:
        try:
            answer = Response.FromString(packet)
        except DecodeError:
            self._fail("sent bytes that are no answer to START_TLS")
            return
        if answer.status == EOK:
            self.answered.set_result(None)
        else:
            self._fail(f"offers no TLS (status {answer.status}); set its tlsProviderFactoryClass")

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the loop."""
        if not self.answered.done():
            self._fail("closed the connection, which was to begin TLS")

    def _fail(self, reason: str) -> None:
        self.answered.set_exception(ConnectionError(f"the bookie {reason}"))
