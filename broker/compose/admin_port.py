"""AdminPort: the HTTP ports of a broker, with TLS and without, bound early and served from the first connection on.

A broker that shares its store serves at once: other brokers ask it to take a bundle that moves, and clients wait for that.

The server takes 15 MiB and 0.2 s to import, most of it for aiohttp. So the ports are bound together with the data ports,
which decides their numbers. The first connection waits in the socket's queue while a thread imports the server, which
then answers it.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from broker.net.listener import bind
from foundation.tls.certificates import Certificates

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp.web import RouteDef

    from broker.admin.server import Admin
    from broker.admin.service_view import BrokerView
    from broker.compose.background_tasks import BackgroundTasks
    from broker.compose.console import Console
    from broker.metrics.scraper import Scraper
    from broker.websocket.context import WebSocketContext


class AdminPort:
    """The admin API and `/metrics` of one broker."""

    def __init__(self) -> None:
        """Binds nothing yet."""
        self._plain: socket.socket | None = None
        self._tls: tuple[socket.socket, Certificates] | None = None
        self._server: Admin | None = None
        self._serving: asyncio.Task[None] | None = None
        self._connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def bind(self, host: str, port: int) -> int:
        """Opens the port without TLS and returns its number; 0 means any free one. Raises OSError when it is in use."""
        self._plain = bind(host, port)
        return int(self._plain.getsockname()[1])

    def bind_tls(self, host: str, port: int, certificates: Certificates) -> int:
        """Opens the port with TLS; otherwise as `bind`."""
        listening = bind(host, port)
        self._tls = listening, certificates
        return int(listening.getsockname()[1])

    def serve(
        self,
        broker: BrokerView,
        scraper: Scraper,
        console: Console,
        websockets: WebSocketContext | None,
        test_routes: Callable[[], list[RouteDef]],
        tasks: BackgroundTasks,
        *,
        at_once: bool,
    ) -> None:
        """Answers requests from the first connection on, or `at_once`; `websockets` None: without the WebSocket API."""
        assert self._plain is not None or self._tls is not None, "bind comes first"
        if at_once:
            self._connected.set_result(None)
        work = self._serve(broker, scraper, console, websockets, test_routes)
        self._serving = tasks.spawn(work, "admin port")

    async def _serve(
        self,
        broker: BrokerView,
        scraper: Scraper,
        console: Console,
        websockets: WebSocketContext | None,
        test_routes: Callable[[], list[RouteDef]],
    ) -> None:
        try:
            await self._first_connection()
            from foundation.loop.late_imports import import_late

            await import_late("broker.admin.server", "broker.metrics.http", "broker.console.routes")
            from broker.admin.server import start_admin
            from broker.metrics.http import metrics_routes

            pages = console.pages
            routes = [*metrics_routes(scraper), *test_routes(), *pages.routes()]
            on_shutdown = [pages.close]
            if websockets is not None:
                await import_late("broker.websocket.routes")
                from broker.admin.http.principal import EXPIRES_AT_S, PRINCIPAL
                from broker.websocket.routes import WebSocketRoutes

                sockets = WebSocketRoutes(websockets, PRINCIPAL, EXPIRES_AT_S)
                routes += sockets.routes()
                on_shutdown.append(sockets.close)
            self._server = await start_admin(
                broker, self._plain, routes, scraper.window_of, tls=self._tls, on_shutdown=on_shutdown
            )
        finally:
            if self._server is None:
                # Closed, or the server cannot be loaded, which the log tells: no client may wait for it without end.
                self._close_sockets()

    async def _first_connection(self) -> None:
        """Waits until a client has connected to one of the ports; accepts no connection."""
        loop = asyncio.get_running_loop()
        waiting = [listening.fileno() for listening in self._sockets()]

        def connected() -> None:
            if not self._connected.done():
                self._connected.set_result(None)

        for number in waiting:
            loop.add_reader(number, connected)
        try:
            await self._connected
        finally:
            for number in waiting:
                loop.remove_reader(number)

    def _sockets(self) -> list[socket.socket]:
        tls = [] if self._tls is None else [self._tls[0]]
        return tls if self._plain is None else [self._plain, *tls]

    def _close_sockets(self) -> None:
        for listening in self._sockets():
            listening.close()

    async def close(self) -> None:
        """Answers the requests that have begun and closes the ports."""
        if self._serving is not None:
            self._connected.cancel()
            await asyncio.wait([self._serving])
        if self._server is None:
            self._close_sockets()
        else:
            await self._server.close()
