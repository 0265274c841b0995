"""`/metrics` of a process that runs re-replication alone."""

from __future__ import annotations

import asyncio

from aiohttp import web

from bookkeeper.repair.exposition import CONTENT_TYPE, render
from bookkeeper.repair.stats import RecoveryStats
from foundation.http.careful_handler import careful_handler


class MetricsServer:
    """Serves the counters until `close`."""

    def __init__(self, stats: RecoveryStats) -> None:
        """`stats` is read for each scrape."""
        self._stats = stats
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/metrics/", self._metrics)
        self._runner = web.AppRunner(app, access_log=None)
        self._listening: asyncio.Server | None = None
        self.port = 0
        """The port it listens on; 0 before `start`."""

    async def start(self, host: str, port: int) -> None:
        """Listens; port 0 chooses a free one. Raises OSError when the port is taken."""
        await self._runner.setup()
        self._listening = await asyncio.get_running_loop().create_server(
            lambda: careful_handler(self._runner.server), host, port
        )
        self.port = self._listening.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Ends the requests and stops listening."""
        if self._listening is not None:
            self._listening.close()
        await self._runner.cleanup()

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=render(self._stats), headers={"Content-Type": CONTENT_TYPE})
