"""Arena: memory for pieces that live about equally long.

Pieces are cut one after the other out of large blocks.

A block is one allocation for many pieces, and goes back to the kernel whole. Pieces are not given back one by one: the
interpreter frees a block when no piece of it is referenced any more. That fits the write cache, whose pieces all go when its
checkpoint is done.

The kernel is not asked for huge pages (MADV_HUGEPAGE). On a virtual machine that gives free memory back to its host, a free
huge page is one that the host has taken, and the first write to it waits until the host has given it again: adds of 10 KiB
cost twice as much, and the loop stood still for 20 ms. Small pages are mostly those that were freed just before. They are
made `_POPULATED_BYTES` at a time: with a fault for each the first write takes 0.63 us for a KiB in place of 0.45. Pure: no
I/O, no clock.
"""

from __future__ import annotations

import contextlib
import mmap
import sys
from typing import Final

BLOCK_BYTES_MAX = 4 << 20
"""Bytes of a block in a large arena."""
_PIECES_MIN = 4
"""A block holds at least this many pieces. Larger pieces get memory of their own, since the unused end of a block would be
more than a quarter of it."""
_POPULATED_BYTES: Final = 256 << 10
"""Bytes of a block whose pages are made together: a tenth of a millisecond."""
_POPULATE: Final = 23 if sys.platform == "linux" else None
"""MADV_POPULATE_WRITE of Linux 5.14 and later, which the module `mmap` does not name."""


class Arena:
    """Cuts pieces of memory out of blocks. One thread."""

    def __init__(self, bytes_max: int) -> None:
        """`bytes_max` is the expected memory in use; blocks are small beside it."""
        # A sixteenth: one piece keeps its whole block alive, so a block must be small beside the limit.
        self._block_bytes = min(BLOCK_BYTES_MAX, max(bytes_max >> 4, mmap.PAGESIZE))
        self._block = memoryview(b"")
        self._used = 0
        # The pages of the block before this offset have been made.
        self._populated = 0

    def allocate(self, size: int) -> memoryview:
        """Returns writable memory of `size` bytes."""
        # The rest of the current block stays in use for smaller pieces.
        if size > self._block_bytes // _PIECES_MIN:
            return _block(size)
        if self._used + size > len(self._block):
            self._block, self._used, self._populated = _block(self._block_bytes), 0, 0
        start, self._used = self._used, self._used + size
        if self._used > self._populated:
            self._populate()
        return self._block[start : self._used]

    def _populate(self) -> None:
        start, wanted = self._populated, self._used + _POPULATED_BYTES
        end = self._populated = min(wanted - wanted % mmap.PAGESIZE, len(self._block))
        memory = self._block.obj
        if _POPULATE is not None and isinstance(memory, mmap.mmap):
            # An older kernel refuses it, and makes each page at its first use.
            with contextlib.suppress(OSError):
                memory.madvise(_POPULATE, start, end - start)

    def store(self, data: bytes) -> memoryview:
        """Returns a copy of `data` in the arena."""
        piece = self.allocate(len(data))
        piece[:] = data
        return piece


def _block(size: int) -> memoryview:
    # Not `bytearray`, which fills its memory with zeros and so touches every page before the first copy.
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
