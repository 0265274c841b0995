"""The data port: it listens on the bind address, and on both loopback addresses where that is `localhost`."""

from __future__ import annotations

import asyncio

from broker.net.net_ground import NetGround
from broker.net.server_cnx import ServerCnx


async def listen(ground: NetGround, host: str, port: int) -> tuple[asyncio.Server, int]:
    """(server, port): port 0 becomes the one that was free. OSError when it cannot be had."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: ServerCnx(ground), host, port, backlog=1024)
    bound: int = server.sockets[0].getsockname()[1]
    return server, bound
