"""WebSocketSession: one open WebSocket, with a task that reads it and a task that writes to it.

Answers and messages are texts in a queue. `_write_on` is the only code that waits for the client: while the client does not
take the texts, the queue stays as it is, and the subclasses stop filling it at OUTGOING_BYTES_MAX. A client that takes no
text for the idle time, or does not take its close, loses its connection: it would keep its topics otherwise.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import Final

from aiohttp import WSMsgType, web

from broker.websocket.context import WebSocketContext
from broker.websocket.errors import GOING_AWAY, POLICY
from broker.websocket.rights import SessionClient, SessionRights

log = logging.getLogger("magnetar.websocket")

OUTGOING_BYTES_MAX: Final = 64 * 1024
"""Characters in the queue at which nothing more is added but answers to what was read already."""
LOOK_S_MAX: Final = 600.0
"""Longest time between two readings of the clock, which may be set meanwhile."""
LAST_TEXTS_S: Final = 30.0
"""Time for the client to take the texts that wait, and the close after them, once the session is to end."""
REASON_BYTES_MAX: Final = 123
"""Bytes of a close reason, by RFC 6455."""


class WebSocketSession:
    """A WebSocket; the subclass handles its texts."""

    def __init__(self, socket: web.WebSocketResponse, context: WebSocketContext, peer: SessionClient) -> None:
        self.context = context
        """Shared by all sessions."""
        self.address = peer.address
        """`host:port` of the client."""
        self.rights = SessionRights(context.authorizer, context.audit, peer)
        """The accesses of the client to its topics."""
        self.outgoing_bytes = 0
        """Characters that wait for the client."""
        self.ended = False
        """True once nothing more may be done for the client."""
        self._socket = socket
        self._expires_at_s = peer.expires_at_s
        self._expiry_timer: object = None
        self._drop_connection = peer.drop
        self._drop_timer: asyncio.TimerHandle | None = None
        self._outgoing: deque[str] = deque()
        self._more = asyncio.Event()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._stopped_for: set[str] = set()
        self._closing: tuple[int, str] | None = None
        self._active_s = time.monotonic()

    # For subclasses

    def handle_text(self, text: str) -> None:
        """Handles one text of the client; returns at once."""
        raise NotImplementedError

    def written(self) -> None:
        """Some texts have been taken by the client; more may be added."""

    async def leave(self) -> None:
        """Leaves the topics; the WebSocket is closed."""

    # Used by ports and handlers

    def send(self, text: str) -> None:
        """Adds a text for the client."""
        self._outgoing.append(text)
        self.outgoing_bytes += len(text)
        self._more.set()

    def end(self, code: int, reason: str) -> None:
        """Closes the WebSocket after the texts that wait; the first call decides."""
        if self._closing is None:
            self._closing = code, reason
            # At once: a client that does not read its close could go on without its right otherwise.
            self.ended = True
            self._more.set()
            # Reading goes on until the client has answered the close, or its connection is dropped.
            self._may_read.set()
            self._drop_timer = asyncio.get_running_loop().call_later(LAST_TEXTS_S, self._drop_connection)

    def stop_reading(self, reason: str) -> None:
        """Reads nothing more until `read_again` with the same reason."""
        self._stopped_for.add(reason)
        self._may_read.clear()

    def read_again(self, reason: str) -> None:
        """Takes a reason not to read away."""
        self._stopped_for.discard(reason)
        if not self._stopped_for:
            self._may_read.set()

    async def run(self) -> None:
        """Serves the WebSocket until it is closed."""
        self.context.sessions.add(self)
        writer = asyncio.create_task(self._write_on(), name=f"websocket of {self.address} is written")
        self._look_at_expiry()
        try:
            await self._read_on()
        finally:
            self.ended = True
            for timer in (self._expiry_timer, self._drop_timer):
                cancel = getattr(timer, "cancel", None)
                if cancel is not None:
                    # It would keep the session in memory until its time comes.
                    cancel()
            self.context.sessions.discard(self)
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
            await self.leave()
            await self._socket.close()

    def _look_at_expiry(self) -> None:
        """Ends the session at the expiry: the API has no form by which a client could renew its credentials."""
        if self._expires_at_s is None:
            return
        left_s = self._expires_at_s - self.context.wall_ms() / 1000
        if left_s <= 0:
            self.end(POLICY, "the credentials have expired")
            return
        self._expiry_timer = self.context.due_later(min(left_s, LOOK_S_MAX), self._look_at_expiry)

    async def _read_on(self) -> None:
        settings = self.context.settings
        idle_s = settings.idle_s if settings.ping_s <= 0 and settings.idle_s > 0 else None
        while True:
            if self._stopped_for and self._closing is None:
                await self._may_read.wait()
            try:
                message = await self._socket.receive(idle_s)
            except TimeoutError:
                if time.monotonic() - self._active_s >= (idle_s or 0):
                    self.end(GOING_AWAY, "Connection Idle Timeout")
                    idle_s = None
                continue
            if message.type is WSMsgType.TEXT:
                self._active_s = time.monotonic()
                if not self.ended:
                    self.handle_text(message.data)
            elif message.type is not WSMsgType.BINARY:
                return
            # Binary messages are ignored, as in Pulsar.

    async def _write_on(self) -> None:
        idle_s = self.context.settings.idle_s
        try:
            while True:
                await self._more.wait()
                self._more.clear()
                while self._outgoing:
                    text = self._outgoing.popleft()
                    async with asyncio.timeout(idle_s if idle_s > 0 else None):
                        await self._socket.send_str(text)
                    self._active_s = time.monotonic()
                    self.outgoing_bytes -= len(text)
                    if self.outgoing_bytes < OUTGOING_BYTES_MAX // 2:
                        self.written()
                if self._closing is not None:
                    code, reason = self._closing
                    log.info("- %s closed: %s", self.address, reason)
                    await self._socket.close(code=code, message=reason.encode()[:REASON_BYTES_MAX])
                    return
        except TimeoutError:
            log.info("- %s dropped: it takes nothing of what is sent", self.address)
            self.end(GOING_AWAY, "")
            self._drop_connection()
        except ConnectionError:
            # The client is gone; the reading task learns of it too.
            return
