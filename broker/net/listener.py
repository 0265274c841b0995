"""Ports: the data port's server, and a listening socket for whoever serves the other one later."""

from __future__ import annotations

import asyncio
import os
import socket

from broker.net.net_ground import NetGround
from broker.net.server_cnx import ServerCnx


async def listen(ground: NetGround, host: str, port: int) -> tuple[asyncio.Server, int]:
    """(server, port): port 0 becomes the one that was free. OSError when it cannot be had."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: ServerCnx(ground), host, port, backlog=1024)
    bound: int = server.sockets[0].getsockname()[1]
    return server, bound


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; who connects before it is served waits. OSError names the address that cannot be had."""
    try:
        return socket.create_server((host, port), backlog=128)
    except OSError as error:
        raise OSError(f"{host}:{port}: {os.strerror(error.errno or 0)}") from None
