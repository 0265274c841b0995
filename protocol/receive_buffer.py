"""Bytes that have arrived and how far they have been cut into frames.

Frames are handed out as offsets into one buffer. In shared mode nobody moves bytes that were handed out:
entries keep slices of the buffer, and when it is full a new one is begun. In copied mode whoever keeps an
entry copies it, so one buffer serves the connection for good. How much is offered for the next read follows
what the last ones brought, exactly as Netty's AdaptiveRecvByteBufAllocator decides.
"""

from __future__ import annotations

from protocol.errors import ProtocolError
from protocol.frame import SIZES
from protocol.receive_buffer_sizer import ReceiveBufferSizer

_PREFIX_BYTES = SIZES.size
_READ_BYTES_MIN = 512
"""Less room than this at the end of a shared buffer is not worth a system call of its own."""

_CLAIMED_BYTES_MAX = 128 * 1024
"""A size field alone gets no more room than this; a longer frame gets more as its bytes arrive."""


class ReceiveBuffer:
    __slots__ = ("_frame_bytes_max", "_shared", "_sizer", "buffer", "end", "start", "view")

    def __init__(self, sizer: ReceiveBufferSizer, *, frame_bytes_max: int, shared: bool) -> None:
        self._sizer = sizer
        self._frame_bytes_max = frame_bytes_max
        self._shared = shared
        self.buffer = bytearray(sizer.guess)
        self.view = memoryview(self.buffer)
        self.start = 0
        """Where the first byte that is not yet cut stands."""
        self.end = 0
        """Behind the last byte that has arrived."""

    def writable(self) -> memoryview:
        """Room for the next read: as much as the sizer expects, more where an unfinished frame is known to be longer."""
        pending = self.end - self.start
        needed = self._unfinished_frame_bytes() - pending
        least = min(needed, _CLAIMED_BYTES_MAX // 2)
        needed = min(needed, max(_CLAIMED_BYTES_MAX, 3 * pending))
        room = len(self.buffer) - self.end
        if room < least or room < _READ_BYTES_MIN or (not self._shared and self.start):
            self._renew(pending, max(self._sizer.guess, needed))
        return self.view[self.end : self.end + max(self._sizer.guess, needed)]

    def _unfinished_frame_bytes(self) -> int:
        if self.end - self.start < 4:
            return 0
        return int.from_bytes(self.view[self.start : self.start + 4], "big") + 4

    def _renew(self, pending: int, wanted: int) -> None:
        old = self.view[self.start : self.end]
        if self._shared or len(self.buffer) < pending + wanted:
            self.buffer = bytearray(pending + wanted)
            self.view = memoryview(self.buffer)
            self.view[:pending] = old
        elif pending:
            self.buffer[:pending] = bytes(old)
        self.start = 0
        self.end = pending

    def received(self, count: int) -> list[tuple[int, int, int]]:
        """Take `count` new bytes and cut: (command starts, command ends, frame ends) for each whole frame."""
        self._sizer.record(count)
        self.end = end = self.end + count
        buffer = self.buffer
        start = self.start
        frames: list[tuple[int, int, int]] = []
        unpack = SIZES.unpack_from
        while end - start >= _PREFIX_BYTES:
            total, command = unpack(buffer, start)
            stop = start + 4 + total
            if total + 4 > self._frame_bytes_max:
                raise ProtocolError(f"a frame of {total + 4} bytes; the limit is {self._frame_bytes_max}")
            if command + 4 > total:
                raise ProtocolError(f"a command of {command} bytes in a frame of {total}")
            if stop > end:
                break
            frames.append((start + _PREFIX_BYTES, start + _PREFIX_BYTES + command, stop))
            start = stop
        else:
            self._check_size_field(start)
        self.start = start
        return frames

    def _check_size_field(self, start: int) -> None:
        """A size over the limit ends the connection as soon as its four bytes are there."""
        if self.end - start >= 4:
            total = int.from_bytes(self.view[start : start + 4], "big")
            if total + 4 > self._frame_bytes_max:
                raise ProtocolError(f"a frame of {total + 4} bytes; the limit is {self._frame_bytes_max}")
