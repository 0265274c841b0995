"""Opens the broker's two ports: the data port with its server, and the admin port as a bare socket."""

from __future__ import annotations

import asyncio
import os
import socket
from functools import partial

from broker.net.connection_context import ConnectionContext
from broker.net.server_cnx import ServerCnx


async def listen(context: ConnectionContext, host: str, port: int) -> tuple[asyncio.Server, int]:
    """Starts the data port; returns the server and its port, where port 0 became a free one.

    OSError when the port cannot be opened.
    """
    loop = asyncio.get_running_loop()
    server = await loop.create_server(partial(ServerCnx, context), host, port, backlog=1024)
    bound: int = server.sockets[0].getsockname()[1]
    return server, bound


def bind(host: str, port: int) -> socket.socket:
    """Opens a listening socket for a server that starts later.

    Clients that connect before that wait in its queue. OSError names the address that cannot be opened.
    """
    try:
        return socket.create_server((host, port), backlog=128)
    except OSError as error:
        raise OSError(f"{host}:{port}: {os.strerror(error.errno or 0)}") from None
