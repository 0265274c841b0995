"""ReceiveBuffer: cuts the bytes received on one connection into Pulsar frames.

Frames are offsets into `buffer`, which is one of two things:

    the scratch   shared by all connections, for small reads. Its bytes are gone after `settle`, so entries are copied out
    own memory    for large reads and unfinished frames

Own memory has two modes. Shared: entries keep slices of it, so bytes of a returned frame never move, and a full buffer is
replaced by a new one. Copied (`managedLedgerCacheCopyEntries=true`): entries are copied out, so it is used again. The
size of the next read follows the last ones exactly as Netty's AdaptiveRecvByteBufAllocator decides. An idle connection has
no memory of its own. Used by `ServerCnx`. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Callable

from protocol.errors import ProtocolError
from protocol.frame import SIZES
from protocol.receive_buffer_sizer import ReceiveBufferSizer
from protocol.receive_memory import SCRATCH_BYTES, ReceiveMemory

_PREFIX_BYTES = SIZES.size
_SIZES = SIZES.unpack_from
_READ_BYTES_MIN = 512
"""Free bytes below which a shared buffer counts as full: a read of so few is not worth its system call."""

_TLS_HANDSHAKE = 0x1603
"""The first two bytes of a TLS handshake. Read as the size of a frame, they are above every limit."""

_CLAIMED_BYTES_MAX = 128 * 1024
"""Memory that a size field alone can claim. A longer frame gets more as its bytes arrive, so that a client cannot make the
broker allocate megabytes with eight bytes."""


class ReceiveBuffer:
    """The bytes of one connection.

    The event loop's callbacks call `writable`, then `received`, then `settle` when the frames are handled.
    """

    __slots__ = (
        "_end_connection",
        "_frame_bytes_max",
        "_memory",
        "_own_bytes",
        "_shared",
        "_sizer",
        "accepted",
        "buffer",
        "completions",
        "end",
        "produces",
        "start",
        "transient",
        "unhandled",
        "view",
    )

    def __init__(
        self,
        sizer: ReceiveBufferSizer,
        *,
        frame_bytes_max: int,
        shared: bool,
        memory: ReceiveMemory | None = None,
        end_connection: Callable[[], bool] = lambda: False,
        accepted: bool = True,
    ) -> None:
        """`end_connection` is called when others need the memory of an unfinished frame; see `MemoryOwner.give_up`.

        `accepted`: False for a connection that begins with a handshake and has no producer; see `MemoryOwner`.
        """
        self._sizer = sizer
        self._frame_bytes_max = frame_bytes_max
        self._shared = shared
        self._memory = memory or ReceiveMemory()
        self._own_bytes = 0
        self._end_connection = end_connection
        self.accepted = accepted
        """True once the peer has completed the handshake."""
        self.produces = accepted
        """True once the peer has opened a producer."""
        self.buffer = self._memory.scratch
        """Memory that the offsets of `received` refer to: the scratch, or own memory."""
        self.view = self._memory.view
        """A view of `buffer`, for slices without a copy."""
        self.start = 0
        """Offset of the first byte that belongs to no returned frame."""
        self.end = 0
        """End offset of what is received."""
        self.transient = True
        """True while an entry must be copied out of `buffer`, because its bytes are overwritten later."""
        self.unhandled = False
        """True while returned frames wait to be handled in a later turn; set by the connection."""
        self.completions = 0
        """Reads that completed a frame. The same number twice, with bytes pending, is the same unfinished frame."""

    def accept(self, frame_bytes_max: int) -> None:
        """Sets the limit of a frame for a peer that has completed the handshake."""
        self.accepted = True
        self._frame_bytes_max = frame_bytes_max

    def begin_to_produce(self) -> None:
        """Notes that the peer has opened a producer, so that own memory counts against the large limit alone."""
        if not self.produces:
            self._memory.began_to_produce(self._own_bytes)
            self.produces = True

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return self.end - self.start

    def writable(self) -> memoryview:
        """Returns free bytes for the next read: as many as the sizer expects, or more for an unfinished longer frame."""
        guess = self._sizer.guess
        pending = self.end - self.start
        if not pending and guess <= SCRATCH_BYTES and not self.unhandled:
            if self._own_bytes:
                self.close()
            return self.view[:guess]
        needed = self._unfinished_frame_bytes() - pending
        least = min(needed, _CLAIMED_BYTES_MAX // 2)
        # At most four times the bytes that have arrived, so memory follows the client's own effort.
        needed = min(needed, max(_CLAIMED_BYTES_MAX, 3 * pending))
        free = self._own_bytes - self.end
        # Copied mode starts anew as soon as a frame was returned: its bytes have been copied out by then.
        if free < least or free < _READ_BYTES_MIN or (not self._shared and self.start):
            self._renew(pending, max(guess, needed))
        return self.view[self.end : self.end + max(guess, needed)]

    def settle(self) -> None:
        """Empties the scratch for the next connection. All frames that were returned are handled."""
        if self._own_bytes:
            return
        start, end = self.start, self.end
        self.start = self.end = 0
        # Most reads end with a frame, so the slice below is rare.
        if start != end:
            self.end = end - start
            self._own(bytearray(self.view[start:end]))

    def keep(self) -> None:
        """Moves the scratch to own memory, offsets unchanged, because frames are handled in later turns."""
        if not self._own_bytes:
            self._own(bytearray(self.view[: self.end]))

    def release(self) -> bool:
        """Gives own memory back if no byte in it is needed; returns False otherwise."""
        if self.unhandled or self.end > self.start:
            return False
        self.close()
        return True

    def give_up(self) -> bool:
        """Ends the connection with its unfinished frame; returns False while the broker itself does not read it."""
        if self.unhandled or not self._end_connection():
            return False
        self.close()
        return True

    def close(self) -> None:
        """Gives own memory back; the connection is idle, or closed."""
        if self._own_bytes:
            self._memory.give_back(self, self._own_bytes)
            self._own_bytes = 0
        self.buffer, self.view = self._memory.scratch, self._memory.view
        self.start = self.end = 0
        self.transient = True

    def _own(self, buffer: bytearray) -> None:
        """Makes `buffer` the connection's memory; entries that keep slices of the former one keep it alive."""
        more = len(buffer) - self._own_bytes
        self.buffer = buffer
        self.view = memoryview(buffer)
        self.transient = not self._shared
        self._own_bytes = len(buffer)
        self._memory.take(self, more)

    def _unfinished_frame_bytes(self) -> int:
        if self.end - self.start < 4:
            return 0
        return int.from_bytes(self.view[self.start : self.start + 4], "big") + 4

    def _renew(self, pending: int, wanted: int) -> None:
        # Shared: returned frames are slices of the old buffer, which lives on as long as one of them.
        old = self.view[self.start : self.end]
        if self._shared or self._own_bytes < pending + wanted:
            buffer = bytearray(pending + wanted)
            buffer[:pending] = old
            self.start, self.end = 0, pending
            self._own(buffer)
            return
        if pending:
            # `bytes` makes a copy first: source and target are one buffer and may overlap.
            self.buffer[:pending] = bytes(old)
        self.start, self.end = 0, pending

    def received(self, count: int) -> list[tuple[int, int, int]]:
        """Accepts `count` new bytes; returns (command start, command end, frame end) for each complete frame.

        ProtocolError for a size above the limit or a command longer than its frame.
        """
        sizer = self._sizer
        # Most reads teach the sizer nothing, and a call for each would cost more than the comparison.
        if count >= sizer.guess or count <= sizer.small:
            sizer.record(count)
        self.end = end = self.end + count
        buffer = self.buffer
        start = self.start
        frames: list[tuple[int, int, int]] = []
        unpack, total_max = _SIZES, self._frame_bytes_max - 4
        # A frame that begins later has not all of its sizes here. The loop runs once per frame, so names and sums are few.
        last = end - _PREFIX_BYTES
        while start <= last:
            total, command_bytes = unpack(buffer, start)
            if total > total_max:
                raise _too_long(total, self._frame_bytes_max)
            command = start + _PREFIX_BYTES
            stop = command - 4 + total
            command_end = command + command_bytes
            # Unchecked, the command would reach into the next frame.
            if command_end > stop:
                raise ProtocolError(f"a command of {command_bytes} bytes in a frame of {total}")
            if stop > end:
                break
            frames.append((command, command_end, stop))
            start = stop
        else:
            # Fewer than eight bytes are left, but the four of the size may be among them.
            if end - start >= 4:
                self._check_size_field(start)
        self.start = start
        if frames:
            self.completions += 1
            if self._own_bytes:
                self._memory.completed(self)
        return frames

    def _check_size_field(self, start: int) -> None:
        """Refuses a size above the limit; its four bytes have arrived."""
        total = int.from_bytes(self.view[start : start + 4], "big")
        if total + 4 > self._frame_bytes_max:
            raise _too_long(total, self._frame_bytes_max)


def _too_long(total: int, frame_bytes_max: int) -> ProtocolError:
    if total >> 16 == _TLS_HANDSHAKE:
        return ProtocolError(
            "a TLS handshake on a port without TLS; the client needs the port for pulsar+ssl://"
        )
    return ProtocolError(f"a frame of {total + 4} bytes; the limit is {frame_bytes_max}")
