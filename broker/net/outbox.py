"""Outbox: frames for one client, gathered during a loop turn and written once at its end.

One system call per connection and turn instead of one per frame. While the client does not take what was written, its
consumers get no more entries and the connection is not read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.net.read_gate import UNSENT_ANSWERS, ReadGate
from foundation.loop.turn import Turn

_JOIN_BYTES_MAX = 32 * 1024
"""Mean size of frames from which they are passed to the transport one by one; joining would copy them for nothing."""


class Outbox:
    """Frames that wait for the end of the turn, and waiting dispatchers."""

    __slots__ = ("_gate", "_touched", "_transport", "_turn", "_waiting", "frames", "unsent_bytes", "writable")

    def __init__(self, turn: Turn, gate: ReadGate) -> None:
        self.frames: list[bytes | memoryview] = []
        """Frames of this turn, in order; code that appends here adds to `unsent_bytes` and calls `touch`."""
        self.unsent_bytes = 0
        """Bytes of `frames`."""
        self.writable = True
        """False while the transport holds more than the high-water mark."""
        self._turn = turn
        self._gate = gate
        self._transport: asyncio.Transport | None = None
        self._touched = False
        # In the order of the requests. A dict as an ordered set: ten thousand consumers of a connection may wait.
        self._waiting: dict[Callable[[], None], None] = {}

    def attach(self, transport: asyncio.Transport) -> None:
        """Begins to write to a transport."""
        self._transport = transport

    def detach(self) -> None:
        """Drops all frames of a closed connection and wakes waiting dispatchers."""
        self._transport = None
        # Consumers of a connection with thousands of them leave in slices, and get nothing until their turn.
        self.writable = False
        self.frames.clear()
        # Dispatchers that wait for this connection must look again, now without it.
        self._wake_waiting()

    def send(self, frame: bytes) -> None:
        """Adds a frame; it is written at the end of the turn."""
        self.frames.append(frame)
        self.unsent_bytes += len(frame)
        # As `touch`, written out: this runs once per receipt.
        if not self._touched:
            self._touched = True
            self._turn.write(self._flush)

    def touch(self) -> None:
        """Asks for a write of `frames` at the end of the turn."""
        if not self._touched:
            self._touched = True
            self._turn.write(self._flush)

    def _flush(self, now_ns: int) -> None:
        self._touched = False
        if self._transport is None:  # Lost since the frames were added.
            self.frames.clear()
            return
        # With receipts of this turn fewer publishes are pending now.
        gate = self._gate
        if gate.reasons or gate.pending_bytes != gate.counted_bytes:
            gate.account()
        self.write_now()
        if self._waiting and self.writable:
            self._wake_waiting()

    def write_now(self) -> None:
        """Writes all frames at once, for a connection that closes."""
        frames = self.frames
        if not frames:
            return
        self.frames = []
        size, self.unsent_bytes = self.unsent_bytes, 0
        if self._transport is None:
            return
        # Of a single frame `join` returns the frame itself.
        if size < _JOIN_BYTES_MAX * len(frames):
            self._transport.write(b"".join(frames))
        else:
            self._transport.writelines(frames)

    def pause(self) -> None:
        """Stops delivering and reading: the transport holds too much."""
        self.writable = False
        self._gate.stop(UNSENT_ANSWERS)

    def resume(self) -> None:
        """Delivers and reads on: the client has taken enough."""
        self.writable = True
        self._gate.go_on(UNSENT_ANSWERS)
        self._wake_waiting()

    def when_writable(self, wake: Callable[[], None]) -> None:
        """Calls `wake` once, when more can be delivered; a second request for the same one changes nothing."""
        self._waiting[wake] = None

    def _wake_waiting(self) -> None:
        # Replaced before the calls: a dispatcher that fills the connection again enters the new list.
        waiting, self._waiting = self._waiting, {}
        for wake in waiting:
            wake()
