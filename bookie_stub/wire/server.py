"""The bookie's TCP port.

It accepts connections, writes the answers of a turn together, and stops in order.

A stop accepts no new connections, lets the bookie sync and answer all outstanding requests, writes these answers, and
then closes the connections.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from bookie_stub.compose.bookie import Bookie
from bookie_stub.wire.connection import Scratch, ServedConnection
from protocol.receive_memory import ReceiveMemory

if TYPE_CHECKING:
    from ssl import SSLContext

log = logging.getLogger(__name__)

OUTSTANDING_BYTES_MAX = 32 << 20
"""Most charges of unanswered requests before a connection stops reading."""


UNFINISHED_BYTES_MAX = 256 << 20
"""Memory of long frames that are not complete, of all connections together.

Above it, frames that began 10 seconds ago are ended with their connections, then the connection that asks for more."""


class BookieServer:
    """Listens for one bookie; closes it too."""

    def __init__(
        self,
        bookie: Bookie,
        *,
        tls: SSLContext | None = None,
        outstanding_bytes_max: int = OUTSTANDING_BYTES_MAX,
        unfinished_bytes_max: int = UNFINISHED_BYTES_MAX,
    ) -> None:
        self.bookie = bookie
        """Serves the requests of all connections."""
        self.tls = tls
        """For clients that ask for TLS; None: they are refused."""
        self.clear_text = tls is None or tls.verify_mode.name != "CERT_REQUIRED"
        """False where each client must show a certificate, so that the first request must be START_TLS."""
        self.frame_bytes_max = bookie.settings.frame_bytes_max
        """Longest accepted frame, its length field included (`nettyMaxFrameSizeBytes`)."""
        self.outstanding_bytes_max = outstanding_bytes_max
        """Most charges of unanswered requests before a connection stops reading."""
        self._accept: Callable[[], ServedConnection] = lambda: ServedConnection(self)
        sizes = bookie.settings.receive_sizes
        if sizes is None:
            self.scratch = Scratch()
            """The memory that all connections receive into."""
        else:
            # A module that only a bookie with these keys needs.
            from bookie_stub.wire.sized_connection import SizedServedConnection

            self.scratch = Scratch(sizes[2])
            self._accept = lambda: SizedServedConnection(self, sizes)
        self.unfinished = ReceiveMemory(unfinished_bytes_max, time.monotonic_ns)
        """Accounts for long frames that are not complete."""
        self.blocked = 0
        """Number of connections that have stopped reading. They resume when some of their requests are answered."""
        self._connections: set[ServedConnection] = set()
        self._with_answers: list[ServedConnection] = []
        self._loop = asyncio.get_running_loop()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listens on the configured address. Raises OSError when the port is taken."""
        settings = self.bookie.settings
        self._server = await self._loop.create_server(
            self._accept, settings.host, settings.port, backlog=1024
        )

    @property
    def port(self) -> int:
        """The port it listens on, also when port 0 was configured. Only after `start`."""
        assert self._server is not None, "not started"
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def adds_in_progress(self) -> int:
        """Unanswered adds of all connections."""
        return sum(connection.adds for connection in self._connections)

    @property
    def reads_in_progress(self) -> int:
        """Unanswered reads of all connections."""
        return sum(connection.reads for connection in self._connections)

    async def close(self) -> None:
        """Stops listening, closes the bookie, writes the last answers, closes the connections."""
        if self._server is not None:
            self._server.close()
        self.bookie.close()
        # The bookie's threads have posted the completions. The first pass of the loop runs them, the second one writes.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        # Over a copy: a connection that closes removes itself.
        for connection in list(self._connections):
            connection.close()

    def opened(self, connection: ServedConnection) -> None:
        """Called by a connection that was accepted."""
        self._connections.add(connection)

    def closed(self, connection: ServedConnection) -> None:
        """Called by a connection that has ended."""
        self._connections.discard(connection)

    def has_answers(self, connection: ServedConnection) -> None:
        """Called by a connection with its first answer of this turn. Its answers are written at the turn's end."""
        # One callback per turn for all connections: their answers join into one write each.
        self._with_answers.append(connection)
        if len(self._with_answers) == 1:
            self._loop.call_soon(self._write_answers)

    def _write_answers(self) -> None:
        connections, self._with_answers = self._with_answers, []
        for connection in connections:
            connection.write_answers()
