"""Large adds of one connection, each received right into the memory that keeps it.

An entry of many kilobytes is dear to copy. While one large add follows the other, the head of a frame is received by
itself; the rest then goes where journal and write cache take it from. The first frame that is something else ends that.
"""

from __future__ import annotations

from collections.abc import Callable

from protocol.add_runs import PLAIN_ADD
from protocol.bookie_frame import ADD_PREFIX_BYTES, HEADER, LENGTH, LENGTH_BYTES

LARGE_BYTES = 32 << 10
"""A frame from here on is worth two receiving calls of its own."""
_HEAD_BYTES = LENGTH_BYTES + ADD_PREFIX_BYTES


class LargeAdds:
    __slots__ = (
        "_filled",
        "_head",
        "_head_view",
        "_length_max",
        "_record",
        "_take",
        "_take_memory",
        "active",
    )

    def __init__(
        self,
        length_max: int,
        take_memory: Callable[[int], memoryview],
        take: Callable[[bytes, memoryview], None],
    ) -> None:
        """`take` gets the master key and the record of each add. A frame with more than `length_max` bytes behind its
        length is none of ours."""
        self.active = False
        """What comes is received here."""
        self._length_max = length_max
        self._take_memory = take_memory
        self._take = take
        self._head = bytearray(_HEAD_BYTES)
        self._head_view = memoryview(self._head)
        self._record: memoryview | None = None
        self._filled = 0
        """Bytes of the head, or of the record once there is one."""

    def begin(self, rest: bytes) -> bool:
        """With the part of a frame that has come already; False when it is the part of something else."""
        self.active = True
        head = rest[:_HEAD_BYTES]
        self._head_view[: len(head)] = head
        self._filled = len(head)
        if not self._goes_on():
            self.end()
            return False
        if self._record is not None:
            body = memoryview(rest)[_HEAD_BYTES:]
            self._record[LENGTH_BYTES : LENGTH_BYTES + len(body)] = body
            self._filled += len(body)
        return True

    def end(self) -> None:
        self.active = False
        self._record = None

    def room(self) -> memoryview:
        """Where the next bytes are to be received; never empty."""
        return (self._head_view if self._record is None else self._record)[self._filled :]

    def received(self, count: int) -> bytes | None:
        """`count` more bytes are there. Returns them all when it is something else that has begun."""
        self._filled += count
        if self._record is None:
            if self._goes_on():
                return None
            self.end()
            return bytes(self._head_view[: self._filled])
        if self._filled == len(self._record):
            record, self._record, self._filled = self._record, None, 0
            self._take(bytes(self._head[LENGTH_BYTES + HEADER.size :]), record)
        return None

    def _goes_on(self) -> bool:
        """Whether the head is, or may become, that of a large add; takes memory when it is whole."""
        if self._filled < LENGTH_BYTES:
            return True
        length: int = LENGTH.unpack_from(self._head)[0]
        if not LARGE_BYTES <= length <= self._length_max:
            return False
        if self._filled < LENGTH_BYTES + HEADER.size:
            return True
        if not self._head.startswith(PLAIN_ADD, LENGTH_BYTES):
            return False
        if self._filled == _HEAD_BYTES:
            self._record = self._take_memory(LENGTH_BYTES + length - ADD_PREFIX_BYTES)
            self._record[:LENGTH_BYTES] = LENGTH.pack(length - ADD_PREFIX_BYTES)
            self._filled = LENGTH_BYTES
        return True
