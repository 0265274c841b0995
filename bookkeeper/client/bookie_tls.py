"""Begins TLS on a new connection to a bookie, as BookKeeper's client does.

The first request is START_TLS of the v3 wire in clear text, and its answer is the last clear text. Then follow the
handshake and the requests of the connection.
"""

from __future__ import annotations

import asyncio
import ssl

from bookkeeper.client.bookie_question import Question
from foundation.tls.contexts import reason_of
from protocol.bookkeeper_api_pb2 import EOK, START_TLS


async def connect_with_tls(
    connection: asyncio.BaseProtocol, host: str, port: int, context: ssl.SSLContext
) -> asyncio.BaseTransport:
    """Connects and hands the transport with TLS to `connection`. Returns the transport.

    Raises OSError (ConnectionError, ssl.SSLError) when the bookie refuses TLS, or the handshake fails.
    """
    loop = asyncio.get_running_loop()
    plain, asking = await loop.create_connection(lambda: Question(START_TLS), host, port)
    try:
        answer = await asking.answered
        if answer.status != EOK:
            raise ConnectionError(
                f"the bookie offers no TLS (status {answer.status}); set its tlsProviderFactoryClass"
            )
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
    return secured
