"""AdminPort: the HTTP ports of a broker, with TLS and without, bound early and served late.

aiohttp takes longer to import than all the rest of the broker. So the ports are bound together with the data ports, which
decides their numbers, and a request that comes early waits in the socket's queue; the server is imported in a thread
and started after clients can connect.
"""

from __future__ import annotations

import asyncio
import socket
from importlib import import_module
from typing import TYPE_CHECKING

from broker.net.listener import bind
from tls.certificates import Certificates

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aiohttp.web import Application, RouteDef

    from broker.admin.server import Admin
    from broker.admin.service_view import BrokerView
    from broker.metrics.scraper import Scraper
    from broker.websocket.context import WebSocketContext


class AdminPort:
    """The admin API and `/metrics` of one broker."""

    def __init__(self) -> None:
        """Binds nothing yet."""
        self._plain: socket.socket | None = None
        self._tls: tuple[socket.socket, Certificates] | None = None
        self._server: Admin | None = None

    def bind(self, host: str, port: int) -> int:
        """Opens the port without TLS and returns its number; 0 means any free one. Raises OSError when it is in use."""
        self._plain = bind(host, port)
        return int(self._plain.getsockname()[1])

    def bind_tls(self, host: str, port: int, certificates: Certificates) -> int:
        """Opens the port with TLS; otherwise as `bind`."""
        listening = bind(host, port)
        self._tls = listening, certificates
        return int(listening.getsockname()[1])

    async def serve(
        self,
        broker: BrokerView,
        scraper: Scraper,
        websockets: WebSocketContext | None = None,
        more: Sequence[RouteDef] = (),
        ends: Sequence[Callable[[Application], Awaitable[None]]] = (),
    ) -> None:
        """Begins to answer requests; `websockets` None: without the WebSocket API.

        `more` are further routes, and `ends` end their long answers when the port closes.
        """
        assert self._plain is not None or self._tls is not None, "bind comes first"
        # Imported by a thread, which leaves the loop to the clients; the statements below find them loaded.
        for module in ("broker.admin.server", "broker.metrics.http"):
            await asyncio.to_thread(import_module, module)
        from broker.admin.server import start_admin
        from broker.metrics.http import metrics_routes

        routes, on_shutdown = [*metrics_routes(scraper), *more], [*ends]
        if websockets is not None:
            await asyncio.to_thread(import_module, "broker.websocket.routes")
            from broker.admin.http.principal import EXPIRES_AT_S, PRINCIPAL
            from broker.websocket.routes import WebSocketRoutes

            sockets = WebSocketRoutes(websockets, PRINCIPAL, EXPIRES_AT_S)
            routes += sockets.routes()
            on_shutdown.append(sockets.close)
        self._server = await start_admin(
            broker, self._plain, routes, scraper.window_of, tls=self._tls, on_shutdown=on_shutdown
        )

    async def close(self) -> None:
        """Answers the requests that have begun and closes the ports."""
        if self._server is not None:
            await self._server.close()
            return
        if self._plain is not None:
            self._plain.close()
        if self._tls is not None:
            self._tls[0].close()
