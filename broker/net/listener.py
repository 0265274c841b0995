"""Opens the broker's ports: the data ports with their servers, and the admin ports as bare sockets."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from functools import partial

from broker.net.connection_context import ConnectionContext
from broker.net.server_cnx import ServerCnx
from foundation.tls.certificates import Certificates
from foundation.tls.listener import TlsListener

Around = Callable[[ServerCnx], asyncio.BufferedProtocol]
"""Puts something between the socket and the connection."""


async def listen(
    context: ConnectionContext, host: str, port: int, around: Around | None = None
) -> tuple[asyncio.Server, int]:
    """Starts the data port; returns the server and its port, where port 0 became a free one.

    OSError when the port cannot be opened.
    """
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_make(context, around), host, port, backlog=1024)
    bound: int = server.sockets[0].getsockname()[1]
    return server, bound


def listen_tls(
    context: ConnectionContext,
    host: str,
    port: int,
    certificates: Certificates,
    around: Around | None = None,
) -> TlsListener:
    """Starts the data port with TLS. OSError names the address that cannot be opened."""
    listening = bind(host, port, backlog=1024)
    return TlsListener(listening, _make(context, around), certificates, context, context.refusals.warning)


def _make(context: ConnectionContext, around: Around | None) -> Callable[[], asyncio.BufferedProtocol]:
    return partial(ServerCnx, context) if around is None else lambda: around(ServerCnx(context))


def bind(host: str, port: int, backlog: int = 128) -> socket.socket:
    """Opens a listening socket for a server that starts later.

    Clients that connect before that wait in its queue. OSError names the address that cannot be opened.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=backlog)
    except OSError as error:
        raise OSError(f"{host}:{port}: {os.strerror(error.errno or 0)}") from None
