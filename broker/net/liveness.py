"""Liveness: closes a connection whose client has left although TCP has not noticed.

Three checks. Keep-alive, per `keepAliveIntervalSeconds`: one silent interval earns a PING, a second one the end. And a
PING at once when another client needs a name or an exclusive place that this one holds; a client that reconnects is often
faster than TCP. And a frame must be complete after FRAME_INTERVALS_MAX intervals: a peer that sends it byte by byte would
keep its memory for ever, and each byte is a sign of life.
"""

from __future__ import annotations

import asyncio

from broker.net.connection_context import ConnectionContext
from broker.net.ports import Connection
from broker.net.read_gate import UNSENT_ANSWERS
from protocol import answers

FRAME_INTERVALS_MAX = 4
"""Keep-alive intervals in which one frame must arrive: with 30 s each, 5 MiB at 350 kbit/s."""


class Liveness:
    """Keep-alive of one connection, and the PING when its place is needed."""

    __slots__ = (
        "_cnx",
        "_context",
        "_frame",
        "_frame_intervals",
        "_pinged",
        "_probe",
        "_timer",
        "_transport",
        "_unsent_before",
        "heard",
        "probing",
    )

    def __init__(self, context: ConnectionContext, cnx: Connection) -> None:
        self.heard = True
        """Bytes have arrived since keep-alive looked last; the connection sets it directly, at each arrival."""
        self.probing = False
        """True while another client waits for a sign of life; the connection then calls `answered`."""
        self._context = context
        self._cnx = cnx
        self._transport: asyncio.Transport | None = None
        self._pinged = False
        # Bytes in the transport when keep-alive looked last.
        self._unsent_before = 0
        # The frame that was unfinished when keep-alive looked last, and for how many intervals.
        self._frame = 0
        self._frame_intervals = 0
        self._timer: object = None
        self._probe: asyncio.Future[None] | None = None

    def attach(self, transport: asyncio.Transport) -> None:
        """Starts keep-alive for a new connection; `keepAliveIntervalSeconds=0` switches it off."""
        self._transport = transport
        if self._context.settings.keep_alive_s > 0:
            self._timer = self._context.call_later(self._context.settings.keep_alive_s, self._look)

    def detach(self) -> None:
        """Stops the timer, because the connection is closed."""
        self._transport = None
        # `call_later` of a context may return any object; a test's list of timers returns None.
        cancel = getattr(self._timer, "cancel", None)
        if cancel is not None:
            cancel()

    def answered(self) -> None:
        """Ends the wait of `answers_ping`: bytes have arrived."""
        self.probing = False
        if self._probe is not None:
            self._probe.set_result(None)
            self._probe = None

    async def answers_ping(self) -> bool:
        """Sends a PING and returns True when any bytes arrive in time.

        Returns False after `connectionLivenessCheckTimeoutMillis`, with the connection closed. With a timeout of 0 or
        less the client is not asked and counts as alive.
        """
        timeout_s = self._context.settings.liveness_timeout_s
        if timeout_s <= 0:
            return True
        if self._probe is None:
            # One PING for all clients that want a place of this connection.
            self._probe = asyncio.get_running_loop().create_future()
            self.probing = True
            self._cnx.send(answers.PING)
        # `wait` and not `wait_for`: on a timeout that would cancel the future for the other clients that wait.
        done, _ = await asyncio.wait((self._probe,), timeout=timeout_s)
        if done:
            return True
        self._cnx.close("another client wants its place, and it does not answer a PING")
        # `close` waits until the last bytes are taken, which a dead client never does.
        if self._transport is not None:
            self._transport.abort()
        return False

    def _look(self) -> None:
        if self._transport is None:
            return
        self._timer = self._context.call_later(self._context.settings.keep_alive_s, self._look)
        if self._transport.is_closing():
            # Closed an interval ago, and the client still does not take the last bytes.
            self._transport.abort()
        elif not self._cnx.connected:
            self._cnx.close("no CONNECT within keepAliveIntervalSeconds")
        elif self._frame_takes_too_long():
            self._cnx.close(f"a frame is incomplete after {FRAME_INTERVALS_MAX} x keepAliveIntervalSeconds")
        elif self._shows_life(self._transport):
            self.heard = self._pinged = False
        elif not self._pinged:
            self._pinged = True
            self._cnx.send(answers.PING)
        else:
            self._cnx.close("no answer to PING within keepAliveIntervalSeconds")
            self._transport.abort()

    def _frame_takes_too_long(self) -> bool:
        frame = self._cnx.unfinished_frame
        if not frame or frame != self._frame:
            self._frame = frame
            self._frame_intervals = 0
        elif not self._cnx.gate.reasons:
            # Intervals in which the broker did not read the connection are no fault of the client.
            self._frame_intervals += 1
        return self._frame_intervals >= FRAME_INTERVALS_MAX

    def _shows_life(self, transport: asyncio.Transport) -> bool:
        """Returns True when bytes came or the client took some.

        A connection that is not read for another reason counts as alive: the broker itself keeps it silent.
        """
        unsent = transport.get_write_buffer_size()
        drained = unsent < self._unsent_before
        self._unsent_before = unsent
        reasons = self._cnx.gate.reasons
        if reasons & UNSENT_ANSWERS:
            return self.heard or drained
        return self.heard or reasons != 0
