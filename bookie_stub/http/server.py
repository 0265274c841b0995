"""The bookie's HTTP port: `/metrics`, `/heartbeat` and `/api/v1/bookie`.

`__main__` imports this module after the data port listens: aiohttp is the largest part of a start. prometheus_client
is imported later still, at the first scrape, so a bookie without Prometheus never pays for it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.typedefs import Handler

from bookie_stub.compose.bookie import Bookie
from bookie_stub.config.settings import BookieSettings
from bookie_stub.http.api import BookieApi
from foundation.http.careful_handler import careful_handler
from protocol.foreign_pages import ForeignPages

if TYPE_CHECKING:
    from bookie_stub.wire.server import BookieServer


log = logging.getLogger(__name__)


def own_names(settings: BookieSettings) -> Iterator[str]:
    """Yields the names under which others may address the bookie."""
    yield settings.advertised_address
    yield settings.host
    yield settings.bookie_id.rpartition(":")[0]
    yield socket.gethostname()


class HttpServer:
    """Serves one bookie until `close`."""

    def __init__(
        self, bookie: Bookie, server: BookieServer, more_metrics: Callable[[], bytes] = bytes
    ) -> None:
        """`server` is the TCP server, for the requests in progress.

        `more_metrics` returns lines that are added to each scrape.
        """
        self._bookie = bookie
        self._more_metrics = more_metrics
        self._server = server
        self._imported = False
        self._foreign_pages = ForeignPages(own_names(bookie.settings), "set advertisedAddress")
        app = web.Application(middlewares=[self._refuse_foreign_pages])
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/metrics/", self._metrics)
        app.router.add_get("/heartbeat", self._heartbeat)
        BookieApi(bookie).add_routes(app)
        self._runner = web.AppRunner(app, access_log=None)
        self._listening: asyncio.Server | None = None
        self.port = 0
        """The port it listens on; 0 before `start`."""

    async def start(self, host: str, port: int) -> None:
        """Listens; port 0 chooses a free one. Raises OSError when the port is taken."""
        await self._runner.setup()
        self._listening = await asyncio.get_running_loop().create_server(self._connected, host, port)
        self.port = self._listening.sockets[0].getsockname()[1]

    def _connected(self) -> asyncio.Protocol:
        return careful_handler(self._runner.server)

    async def close(self) -> None:
        """Ends the requests and stops listening."""
        if self._listening is not None:
            self._listening.close()
        await self._runner.cleanup()

    @web.middleware
    async def _refuse_foreign_pages(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        refusal = self._foreign_pages.refusal(request.method, request.headers)
        if refusal is None:
            return await handler(request)
        if count := self._foreign_pages.count(time.monotonic()):
            log.warning("%s %s: %s (%d refused)", request.method, request.path, refusal.reason, count)
        return web.Response(status=refusal.status, text=refusal.reason)

    async def _metrics(self, _request: web.Request) -> web.Response:
        if not self._imported:
            # In a thread: the import takes tens of milliseconds, and adds would wait for it.
            await asyncio.to_thread(import_module, "bookie_stub.http.exposition")
            self._imported = True
        from bookie_stub.http.exposition import CONTENT_TYPE, render

        text = render(self._bookie, self._server) + self._more_metrics()
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})

    async def _heartbeat(self, _request: web.Request) -> web.Response:
        return web.Response(text="OK\n")
