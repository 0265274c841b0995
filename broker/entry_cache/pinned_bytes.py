"""PinnedBytes: what cached entries keep alive beyond their own length.

An entry's body may be a slice of the large buffer it was received in; as long as one slice is cached the
whole buffer stays. Counted per buffer as entries come and go, never by walking over the cache.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from broker.model.entry import Entry


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
        for entry in entries:
            body = entry.body
            if type(body) is memoryview:
                buffer = cast(bytearray, body.obj)
                key = id(buffer)
                if key in slices:
                    slices[key] += 1
                    self.count -= len(body)
                else:
                    slices[key] = 1
                    self.count += len(buffer) - len(body)

    def remove(self, entries: Iterable[Entry]) -> None:
        slices = self._slices
        for entry in entries:
            body = entry.body
            if type(body) is memoryview:
                buffer = cast(bytearray, body.obj)
                key = id(buffer)
                slices[key] -= 1
                self.count += len(body)
                if not slices[key]:
                    del slices[key]
                    self.count -= len(buffer)
