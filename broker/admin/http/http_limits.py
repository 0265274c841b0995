"""Limits of HTTP connections: how many there are, how long one may stay silent, and one log line for what aiohttp refuses.

aiohttp closes a connection that is idle between two requests. It waits without end for the first one, so a peer that
sends its first request byte by byte is ended here.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.typedefs import Handler

from foundation.http.careful_handler import FAULTS_OF_PEERS, careful_handler, fault_of_peer
from foundation.loop.rare_lines import RareLines

log = logging.getLogger("magnetar")

FULL: Final = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
"""Answer to a connection above the limit."""


class HttpConnections:
    """Makes the protocol of each HTTP connection; passed to the event loop in the place of aiohttp's server."""

    def __init__(self, connections_max: int, idle_s: float, lines: RareLines) -> None:
        """`idle_s`: time for the first request of a connection."""
        self.refused = 0
        """Connections above the limit."""
        self._connections_max = connections_max
        self._idle_s = idle_s
        self._lines = lines
        self._server: web.Server | None = None
        # TLS handshakes that have not ended.
        self._handshakes = 0
        # Connections younger than `idle_s` without a request.
        self._silent: set[web.RequestHandler] = set()

    def serve(self, server: web.Server) -> None:
        """Sets aiohttp's server, which handles the connections."""
        self._server = server

    def __call__(self) -> asyncio.Protocol:
        """Returns the protocol of a new connection; called by the event loop."""
        assert self._server is not None, "serve comes first"
        if len(self._server.connections) >= self._connections_max:
            self.refused += 1
            self._lines.warning(
                f"- HTTP connection refused: maxHttpServerConnections={self._connections_max} are open"
            )
            return _Refused()
        handler = careful_handler(self._server)
        self._silent.add(handler)
        asyncio.get_running_loop().call_later(self._idle_s, self._end_silent, handler)
        return handler

    def begin_handshake(self, host: str) -> str | None:
        """Counts a TLS handshake; returns the reason against it when `maxHttpServerConnections` is reached."""
        assert self._server is not None, "serve comes first"
        if len(self._server.connections) + self._handshakes >= self._connections_max:
            self.refused += 1
            return f"maxHttpServerConnections={self._connections_max} are open"
        self._handshakes += 1
        return None

    def end_handshake(self, host: str) -> None:
        """Subtracts a TLS handshake that has ended."""
        self._handshakes -= 1

    @web.middleware
    async def count(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Notes that the request's connection has sent one; a middleware."""
        self._silent.discard(request.protocol)
        return await handler(request)

    def _end_silent(self, handler: web.RequestHandler) -> None:
        if handler not in self._silent:
            return
        self._silent.discard(handler)
        if handler.transport is not None:
            peer = handler.transport.get_extra_info("peername")
            self._lines.warning(f"! HTTP {peer} closed: no whole request within {self._idle_s:g} s")
            handler.transport.abort()


class _Refused(asyncio.Protocol):
    """Answers 503 and closes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        # uvloop's transport has all methods without being a subclass.
        out = cast("asyncio.Transport", transport)
        out.write(FULL)
        out.close()


class OneLine(logging.LoggerAdapter[logging.Logger]):
    """aiohttp's logger: a request that breaks the protocol becomes one line without a traceback."""

    def __init__(self, lines: RareLines) -> None:
        super().__init__(log)
        self._lines = lines

    def warning(self, msg: object, *args: object, **_: Any) -> None:
        """Called for a request that is not valid HTTP."""
        self._lines.warning(str(msg) % args)

    def exception(self, msg: object, *args: object, exc_info: Any = True, **more: Any) -> None:
        """Called by aiohttp for every error; a defect of ours keeps its traceback."""
        error = exc_info[1] if isinstance(exc_info, tuple) else exc_info
        if isinstance(error, FAULTS_OF_PEERS):
            self._lines.warning(f"! {str(msg) % args if args else msg}: {fault_of_peer(error)}")
        else:
            super().exception(msg, *args, exc_info=exc_info, **more)
