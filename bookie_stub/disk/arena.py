"""Memory for large pieces that live about equally long: cut from front to back out of blocks, never given back singly.

A block goes when nothing that was cut from it is referred to any more. Fresh memory costs several times what copying
into it costs, page by page; blocks are of a size for which the kernel has huge pages, and ask for them. Pure: no I/O.
"""

from __future__ import annotations

import mmap

BLOCK_BYTES_MAX = 4 << 20
_PIECES_MIN = 4
"""A larger share of a block is not cut from one: what remains at its end would be too much."""
_HUGE_PAGES = getattr(mmap, "MADV_HUGEPAGE", None)


class Arena:
    __slots__ = ("_block", "_block_bytes", "_used")

    def __init__(self, bytes_max: int) -> None:
        """`bytes_max`: about how much will be in use at a time; blocks are small beside it."""
        self._block_bytes = min(BLOCK_BYTES_MAX, max(bytes_max >> 4, mmap.PAGESIZE))
        self._block = memoryview(b"")
        self._used = 0

    def allocate(self, size: int) -> memoryview:
        """Writable memory of `size` bytes."""
        if size > self._block_bytes // _PIECES_MIN:
            return _block(size)
        if self._used + size > len(self._block):
            self._block, self._used = _block(self._block_bytes), 0
        start, self._used = self._used, self._used + size
        return self._block[start : self._used]

    def store(self, data: bytes) -> memoryview:
        """A copy of `data`."""
        piece = self.allocate(len(data))
        piece[:] = data
        return piece


def _block(size: int) -> memoryview:
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if _HUGE_PAGES is not None and size >= BLOCK_BYTES_MAX:
        block.madvise(_HUGE_PAGES)
    return memoryview(block)
