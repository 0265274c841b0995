"""CnxFlow: one client connection's back-pressure: when it is read, and how what is said to the client leaves.

Reading stops while too much is pending: publishes of this connection, of all, answers that the client does not take.
What handlers and ports say gathers in `out` and is written once at the end of the turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.net.net_ground import NetGround

_JOIN_BYTES_MAX = 32 * 1024
"""Frames of this mean size and above are handed to the transport one by one instead of being joined first."""

PENDING_PUBLISHES = 1
PUBLISH_BUFFER = 2
UNSENT_ANSWERS = 4
UNHANDLED_FRAMES = 8
"""Reasons not to read."""


class CnxFlow(asyncio.BufferedProtocol):
    def __init__(self, ground: NetGround) -> None:
        self.ground = ground
        self.out: list[bytes | memoryview] = []
        self.unsent_bytes = 0
        """Gathered in `out` since the last write."""
        self.writable = True
        self._transport: asyncio.Transport | None = None
        self._touched = False
        self._waiting_for_room: list[Callable[[], None]] = []
        self._pending_publishes = 0
        self._pending_bytes = 0
        self._counted_bytes = 0
        """How much of the pending bytes the common buffer knows of."""
        self._not_reading = 0
        self._heard = True
        """The client has shown life since keep-alive looked last."""

    # When it is read

    def publish_done(self, size: int) -> None:
        """A publish was answered, well or badly; the answer was sent before, so the turn's end will account for it."""
        self._pending_publishes -= 1
        self._pending_bytes -= size

    def _account(self) -> None:
        """Once per arrival and once per turn: tell the common buffer, and read only while little enough is pending."""
        change = self._pending_bytes - self._counted_bytes
        if change:
            self._counted_bytes = self._pending_bytes
            buffer = self.ground.publish_buffer
            if change < 0:
                buffer.give_back(-change)
            elif buffer.take(change) and not self._not_reading & PUBLISH_BUFFER:
                self._stop_reading(PUBLISH_BUFFER)
                buffer.wait(self)
        limit = self.ground.settings.pending_publishes_max
        if 0 < limit <= self._pending_publishes:
            self._stop_reading(PENDING_PUBLISHES)
        elif self._not_reading & PENDING_PUBLISHES and self._pending_publishes <= limit // 2:
            self._read_on(PENDING_PUBLISHES)

    def resume_publishing(self) -> None:
        self._read_on(PUBLISH_BUFFER)

    def _stop_reading(self, reason: int) -> None:
        if not self._not_reading and self._transport is not None:
            self._transport.pause_reading()
        self._not_reading |= reason

    def _read_on(self, reason: int) -> None:
        if self._not_reading and not self._not_reading & ~reason and self._transport is not None:
            self._transport.resume_reading()
        self._not_reading &= ~reason

    # Out

    def send(self, frame: bytes) -> None:
        self.out.append(frame)
        self.unsent_bytes += len(frame)
        if not self._touched:
            self.touch()

    def touch(self) -> None:
        """There is something in `out`: write it at the end of the turn."""
        if not self._touched:
            self._touched = True
            self.ground.turn.write(self._flush)

    def _flush(self, now_ns: int) -> None:
        self._touched = False
        if self._transport is None:
            self.out.clear()
            return
        self._account()
        self._write_now()
        if self._waiting_for_room and self.writable:
            self._wake_waiting()

    def _write_now(self) -> None:
        out = self.out
        if not out:
            return
        self.out = []
        size, self.unsent_bytes = self.unsent_bytes, 0
        if self._transport is None:
            return
        if len(out) == 1:
            self._transport.write(out[0])
        elif size < _JOIN_BYTES_MAX * len(out):
            self._transport.write(b"".join(out))
        else:
            self._transport.writelines(out)

    def pause_writing(self) -> None:
        self.writable = False
        self._stop_reading(UNSENT_ANSWERS)

    def resume_writing(self) -> None:
        self.writable = self._heard = True
        self._read_on(UNSENT_ANSWERS)
        self._wake_waiting()

    def when_writable(self, wake: Callable[[], None]) -> None:
        if wake not in self._waiting_for_room:
            self._waiting_for_room.append(wake)

    def _wake_waiting(self) -> None:
        waiting, self._waiting_for_room = self._waiting_for_room, []
        for wake in waiting:
            wake()
