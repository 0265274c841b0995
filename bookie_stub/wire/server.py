"""The bookie on a TCP port: listens, gathers the answers of a turn, stops in order.

Stopping: no new connections, the bookie syncs and answers what is outstanding, the answers are written,
then the connections close.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from bookie_stub.compose.bookie import Bookie
from bookie_stub.wire.connection import BookieConnection, Scratch

if TYPE_CHECKING:
    from ssl import SSLContext

log = logging.getLogger(__name__)

OUTSTANDING_BYTES_MAX = 32 << 20
"""Per connection: adds not yet answered, and reads at READ_COST_BYTES each."""


class BookieServer:
    def __init__(
        self,
        bookie: Bookie,
        *,
        tls: SSLContext | None = None,
        outstanding_bytes_max: int = OUTSTANDING_BYTES_MAX,
    ) -> None:
        """`tls`: for clients that ask for it; None: they are told that there is none."""
        self.bookie = bookie
        self.tls = tls
        self.frame_bytes_max = bookie.settings.frame_bytes_max
        self.outstanding_bytes_max = outstanding_bytes_max
        self.scratch = Scratch()
        self.blocked = 0
        """Connections that are not read from until some of their requests are answered."""
        self._connections: set[BookieConnection] = set()
        self._with_answers: list[BookieConnection] = []
        self._loop = asyncio.get_running_loop()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen on the configured address. OSError when the port is taken."""
        settings = self.bookie.settings
        self._server = await self._loop.create_server(
            lambda: BookieConnection(self), settings.host, settings.port, backlog=1024
        )

    @property
    def port(self) -> int:
        assert self._server is not None, "not started"
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def adds_in_progress(self) -> int:
        return sum(connection.adds for connection in self._connections)

    @property
    def reads_in_progress(self) -> int:
        return sum(connection.reads for connection in self._connections)

    async def close(self) -> None:
        """Stops the bookie too."""
        if self._server is not None:
            self._server.close()
        self.bookie.close()
        # The completions were posted by the bookie's threads: they run first, then the answers are written.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for connection in list(self._connections):
            connection.close()

    def opened(self, connection: BookieConnection) -> None:
        self._connections.add(connection)

    def closed(self, connection: BookieConnection) -> None:
        self._connections.discard(connection)

    def has_answers(self, connection: BookieConnection) -> None:
        self._with_answers.append(connection)
        if len(self._with_answers) == 1:
            self._loop.call_soon(self._write_answers)

    def _write_answers(self) -> None:
        connections, self._with_answers = self._with_answers, []
        for connection in connections:
            connection.write_answers()
