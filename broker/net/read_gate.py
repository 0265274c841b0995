"""ReadGate: decides when one client connection is read, and so how much it can make the broker hold.

Law: reading stops while any reason to stop holds, and goes on when the last one ends. Bytes that are not read stay in the
kernel's buffers, TCP slows the client down, and the broker's memory stays bounded.
"""

from __future__ import annotations

import asyncio

from broker.net.connection_context import ConnectionContext

PENDING_PUBLISHES = 1
"""Too many publishes of this connection are unconfirmed (`maxPendingPublishRequestsPerConnection`)."""
PUBLISH_BUFFER = 2
"""All connections together have too many unconfirmed bytes (`maxMessagePublishBufferSizeInMB`)."""
UNSENT_ANSWERS = 4
"""The client does not take the bytes written to it (`pulsarChannelWriteBufferHighWaterMark`)."""
UNHANDLED_FRAMES = 8
"""Frames that have arrived are to be handled later: too many for one turn, or more than a publish rate allows."""
PUBLISH_RATE = 32
"""A producer of the connection publishes faster than its topic or the broker allows."""

PENDING_REQUESTS = 16
"""Too many requests of this connection are in progress (`REQUESTS_MAX`)."""

REQUESTS_MAX = 1000
"""Requests of one connection in progress at which it is not read until half of them have ended. Each is a task."""


class ReadGate:
    """Pauses and resumes reading of one transport.

    `ServerCnx` and `ProducerOnConnection` change the two counters of pending publishes directly: a call per message
    would cost more than the counting. `account` compares them with the limits: after an arrival with SENDs, and at the end
    of a turn with receipts.
    """

    __slots__ = (
        "_context",
        "_transport",
        "counted_bytes",
        "pending_bytes",
        "pending_publishes",
        "pending_requests",
        "reasons",
    )

    def __init__(self, context: ConnectionContext) -> None:
        self.pending_publishes = 0
        """SENDs that were handled and have neither a receipt nor an error yet."""
        self.pending_bytes = 0
        """Bytes of those SENDs."""
        self.pending_requests = 0
        """Requests that run as tasks."""
        self.reasons = 0
        """Reasons not to read, as bits; 0 = the connection is read."""
        self._context = context
        self._transport: asyncio.Transport | None = None
        self.counted_bytes = 0
        """The part of `pending_bytes` that the common publish buffer has been told of."""

    def attach(self, transport: asyncio.Transport) -> None:
        """Begins to control a transport, which is being read."""
        self._transport = transport

    def detach(self) -> None:
        """Returns a closed connection's bytes to the common publish buffer."""
        self._transport = None
        buffer = self._context.publish_buffer
        # Receipts still to come reach no gate, so without this their bytes would count for ever.
        buffer.forget(self)
        buffer.give_back(self.counted_bytes)

    def account(self) -> None:
        """Compares pending publishes with both limits; stops or resumes reading."""
        change = self.pending_bytes - self.counted_bytes
        if change:
            self.counted_bytes = self.pending_bytes
            buffer = self._context.publish_buffer
            if change < 0:
                buffer.give_back(-change)
            elif buffer.take(change) and not self.reasons & PUBLISH_BUFFER:
                self.stop(PUBLISH_BUFFER)
                buffer.wait(self)
        # Read anew each time, because the limit may change at run time; 0 = no limit.
        limit = self._context.settings.pending_publishes_max
        if 0 < limit <= self.pending_publishes:
            self.stop(PENDING_PUBLISHES)
        # Half, as in Pulsar: at the limit itself reading would stop and resume with every receipt.
        elif self.reasons & PENDING_PUBLISHES and self.pending_publishes <= limit // 2:
            self.go_on(PENDING_PUBLISHES)

    def begin_request(self) -> None:
        """Counts a request that has to wait."""
        self.pending_requests += 1
        if self.pending_requests >= REQUESTS_MAX:
            self.stop(PENDING_REQUESTS)

    def end_request(self) -> None:
        """Subtracts a request that has ended."""
        self.pending_requests -= 1
        if self.reasons & PENDING_REQUESTS and self.pending_requests <= REQUESTS_MAX // 2:
            self.go_on(PENDING_REQUESTS)

    def resume_publishing(self) -> None:
        """The common publish buffer has space again. Called by the buffer."""
        self.go_on(PUBLISH_BUFFER)

    def stop(self, reason: int) -> None:
        """Adds a reason not to read."""
        if not self.reasons and self._transport is not None:
            self._transport.pause_reading()
        self.reasons |= reason

    def go_on(self, reason: int) -> None:
        """Removes a reason; reading resumes when no other one is left."""
        if self.reasons and not self.reasons & ~reason and self._transport is not None:
            self._transport.resume_reading()
        self.reasons &= ~reason
