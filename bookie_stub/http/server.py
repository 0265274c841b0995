"""The bookie's HTTP port: `/metrics`, `/heartbeat` and `/api/v1/bookie`. Started after the data port listens.

aiohttp is imported here, late, because it is the largest part of a start.
"""

from __future__ import annotations

from aiohttp import web

from bookie_stub.compose.bookie import Bookie
from bookie_stub.http.api import BookieApi
from bookie_stub.http.exposition import CONTENT_TYPE, Load, render


class HttpServer:
    def __init__(self, bookie: Bookie, load: Load) -> None:
        self._bookie = bookie
        self._load = load
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/metrics/", self._metrics)
        app.router.add_get("/heartbeat", self._heartbeat)
        BookieApi(bookie).add_routes(app)
        self._runner = web.AppRunner(app, access_log=None)
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """OSError when the port is taken."""
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        await self._runner.cleanup()

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(
            body=render(self._bookie, self._load).encode(), headers={"Content-Type": CONTENT_TYPE}
        )

    async def _heartbeat(self, _request: web.Request) -> web.Response:
        return web.Response(text="OK\n")
