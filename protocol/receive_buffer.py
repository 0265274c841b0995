"""ReceiveBuffer: cuts the bytes received on one connection into Pulsar frames.

Frames are offsets into one buffer. Two modes. Shared: entries keep slices of the buffer, so bytes of a returned frame never
move, and a full buffer is replaced by a new one. Copied (`managedLedgerCacheCopyEntries=true`): entries are copied out,
so one buffer serves the connection as long as it lives. The size of the next read follows the last ones exactly as
Netty's AdaptiveRecvByteBufAllocator decides. Used by `ServerCnx`. Pure: no I/O, no clock.
"""

from __future__ import annotations

from protocol.errors import ProtocolError
from protocol.frame import SIZES
from protocol.receive_buffer_sizer import ReceiveBufferSizer

_PREFIX_BYTES = SIZES.size
_READ_BYTES_MIN = 512
"""Free bytes below which a shared buffer counts as full: a read of so few is not worth its system call."""

_CLAIMED_BYTES_MAX = 128 * 1024
"""Memory that a size field alone can claim. A longer frame gets more as its bytes arrive, so that a client cannot make the
broker allocate megabytes with eight bytes."""


class ReceiveBuffer:
    """The bytes of one connection; `writable` and `received` are called in turns by the event loop's callbacks."""

    __slots__ = ("_frame_bytes_max", "_shared", "_sizer", "buffer", "end", "start", "view")

    def __init__(self, sizer: ReceiveBufferSizer, *, frame_bytes_max: int, shared: bool) -> None:
        self._sizer = sizer
        self._frame_bytes_max = frame_bytes_max
        self._shared = shared
        self.buffer = bytearray(sizer.guess)
        """Memory that the offsets of `received` refer to; renewed when it is full."""
        self.view = memoryview(self.buffer)
        """A view of `buffer`, for slices without a copy."""
        self.start = 0
        """Offset of the first byte that belongs to no returned frame."""
        self.end = 0
        """Offset behind the last received byte."""

    def writable(self) -> memoryview:
        """Returns free bytes for the next read: as many as the sizer expects, or more for an unfinished longer frame."""
        pending = self.end - self.start
        needed = self._unfinished_frame_bytes() - pending
        least = min(needed, _CLAIMED_BYTES_MAX // 2)
        # At most four times the bytes that have arrived, so memory follows the client's own effort.
        needed = min(needed, max(_CLAIMED_BYTES_MAX, 3 * pending))
        free = len(self.buffer) - self.end
        # Copied mode starts anew as soon as a frame was returned: its bytes have been copied out by then.
        if free < least or free < _READ_BYTES_MIN or (not self._shared and self.start):
            self._renew(pending, max(self._sizer.guess, needed))
        return self.view[self.end : self.end + max(self._sizer.guess, needed)]

    def _unfinished_frame_bytes(self) -> int:
        if self.end - self.start < 4:
            return 0
        return int.from_bytes(self.view[self.start : self.start + 4], "big") + 4

    def _renew(self, pending: int, wanted: int) -> None:
        # Shared: returned frames are slices of the old buffer, which lives on as long as one of them.
        old = self.view[self.start : self.end]
        if self._shared or len(self.buffer) < pending + wanted:
            self.buffer = bytearray(pending + wanted)
            self.view = memoryview(self.buffer)
            self.view[:pending] = old
        elif pending:
            # `bytes` makes a copy first: source and target are one buffer and may overlap.
            self.buffer[:pending] = bytes(old)
        self.start = 0
        self.end = pending

    def received(self, count: int) -> list[tuple[int, int, int]]:
        """Accepts `count` new bytes; returns (command start, command end, frame end) for each complete frame.

        ProtocolError for a size above the limit or a command longer than its frame.
        """
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
            # Unchecked, the command would reach into the next frame.
            if command + 4 > total:
                raise ProtocolError(f"a command of {command} bytes in a frame of {total}")
            if stop > end:
                break
            frames.append((start + _PREFIX_BYTES, start + _PREFIX_BYTES + command, stop))
            start = stop
        else:
            # Fewer than eight bytes are left, but the four of the size may be among them.
            self._check_size_field(start)
        self.start = start
        return frames

    def _check_size_field(self, start: int) -> None:
        """Refuses a size above the limit once its four bytes have arrived."""
        if self.end - start >= 4:
            total = int.from_bytes(self.view[start : start + 4], "big")
            if total + 4 > self._frame_bytes_max:
                raise ProtocolError(f"a frame of {total + 4} bytes; the limit is {self._frame_bytes_max}")
