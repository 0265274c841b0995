"""Large adds, received directly into the memory of the write cache.

Copying an entry of many kilobytes costs more than a receiving call. While one large add follows another, the head of
each frame is received alone, and the rest goes straight into a piece of the write cache's arena, from which the
journal writes it. The first frame that is no large plain add ends this mode.
"""

from __future__ import annotations

from collections.abc import Callable

from protocol.add_runs import PLAIN_ADD
from protocol.bookie_frame import ADD_PREFIX_BYTES, HEADER, LENGTH, LENGTH_BYTES

LARGE_BYTES = 32 << 10
"""Smallest frame that is worth two receiving calls of its own."""
_HEAD_BYTES = LENGTH_BYTES + ADD_PREFIX_BYTES


class LargeAdds:
    """Assembles large adds from what the socket delivers."""

    __slots__ = (
        "_allocate",
        "_filled",
        "_handle",
        "_head",
        "_head_view",
        "_length_max",
        "_record",
        "active",
    )

    def __init__(
        self,
        length_max: int,
        allocate: Callable[[int], memoryview],
        handle: Callable[[bytes, memoryview], None],
    ) -> None:
        """`handle(master key, record)` is called for each add.

        A frame with more than `length_max` bytes after its length ends the mode, like any other frame that
        is no large add."""
        self.active = False
        """True while the connection receives into `free()`."""
        self._length_max = length_max
        self._allocate = allocate
        self._handle = handle
        self._head = bytearray(_HEAD_BYTES)
        self._head_view = memoryview(self._head)
        self._record: memoryview | None = None
        self._filled = 0
        """Bytes received of the head, or of the allocated record."""

    def begin(self, rest: bytes) -> bool:
        """Starts the mode with the received part of a frame. Returns False when it is no large add."""
        self.active = True
        head = rest[:_HEAD_BYTES]
        self._head_view[: len(head)] = head
        self._filled = len(head)
        if not self._is_large_add():
            self.end()
            return False
        if self._record is not None:
            body = memoryview(rest)[_HEAD_BYTES:]
            self._record[LENGTH_BYTES : LENGTH_BYTES + len(body)] = body
            self._filled += len(body)
        return True

    @property
    def incomplete_bytes(self) -> int:
        """Memory of a record that is not complete, allocated as a whole."""
        return 0 if self._record is None else len(self._record)

    def end(self) -> None:
        """Leaves the mode; an incomplete record is dropped."""
        self.active = False
        self._record = None

    def free(self) -> memoryview:
        """Returns the memory for the next bytes; never empty."""
        return (self._head_view if self._record is None else self._record)[self._filled :]

    def received(self, count: int) -> bytes | None:
        """Notes `count` received bytes. Returns all bytes of the frame when it is no large add, else None."""
        self._filled += count
        if self._record is None:
            if self._is_large_add():
                return None
            self.end()
            return bytes(self._head_view[: self._filled])
        if self._filled == len(self._record):
            record, self._record, self._filled = self._record, None, 0
            # The head's buffer is used for the next frame, so the key is copied. The record is not: it lies where it
            # will stay.
            self._handle(bytes(self._head[LENGTH_BYTES + HEADER.size :]), record)
        return None

    def _is_large_add(self) -> bool:
        """Returns True while the received head fits a large add. Allocates the record when the head is complete."""
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
            self._record = self._allocate(LENGTH_BYTES + length - ADD_PREFIX_BYTES)
            # A record has its length in front, which the wire's frame gives for all of the frame.
            self._record[:LENGTH_BYTES] = LENGTH.pack(length - ADD_PREFIX_BYTES)
            self._filled = LENGTH_BYTES
        return True
