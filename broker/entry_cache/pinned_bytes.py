"""PinnedBytes: what cached entries keep alive beyond their own length.

An entry's body may be a slice of the large buffer it was received in; as long as one slice is cached the
whole buffer stays. Counted per buffer as entries come and go, never by walking over the cache. What would
keep much more than it is worth is copied before it is counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker.model.entry import Entry

LARGE_BUFFER_BYTES: Final = 16 * 1024
"""Smaller buffers are never left: the copy would cost about as much as it frees."""


def copy_out_of_large_buffers(entries: Iterable[Entry], ratio_max: float) -> None:
    """Give entries bodies of their own where all of them together use less than 1 / `ratio_max` of a buffer."""
    used: dict[int, int] = {}
    for entry in entries:
        body = entry.body
        if type(body) is memoryview and len(body.obj) > LARGE_BUFFER_BYTES:  # type: ignore[arg-type]
            used[id(body.obj)] = used.get(id(body.obj), 0) + len(body)
    if not used:
        return
    for entry in entries:
        body = entry.body
        if type(body) is memoryview:
            in_use = used.get(id(body.obj))
            if in_use is not None and len(body.obj) > in_use * ratio_max:  # type: ignore[arg-type]
                entry.body = bytes(body)


class PinnedBytes:
    __slots__ = ("_slices", "count")

    def __init__(self) -> None:
        self._slices: dict[int, int] = {}
        """By the identity of a buffer, which cannot be used anew while a slice of it is cached."""
        self.count = 0
        """Lengths of all buffers with a cached slice, less the lengths of the slices."""

    def __bool__(self) -> bool:
        return bool(self._slices)

    def add(self, entries: Iterable[Entry]) -> None:
        slices = self._slices
        pinned = 0
        for entry in entries:
            body = entry.body
            if type(body) is memoryview:
                buffer: bytearray = body.obj  # type: ignore[assignment]
                key = id(buffer)
                if key in slices:
                    slices[key] += 1
                else:
                    slices[key] = 1
                    pinned += len(buffer)
                pinned -= len(body)
        self.count += pinned

    def remove(self, entries: Iterable[Entry]) -> None:
        slices = self._slices
        freed = 0
        for entry in entries:
            body = entry.body
            if type(body) is memoryview:
                buffer: bytearray = body.obj  # type: ignore[assignment]
                key = id(buffer)
                left = slices[key] - 1
                if left:
                    slices[key] = left
                else:
                    del slices[key]
                    freed += len(buffer)
                freed -= len(body)
        self.count -= freed
