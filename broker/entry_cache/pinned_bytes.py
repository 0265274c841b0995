"""PinnedBytes: what cached entries keep alive beyond their own length.

An entry's body may be a slice of the large buffer it was received in; as long as one slice is cached the
whole buffer stays. Counted per buffer as entries come and go, never by walking over the cache. What would
keep much more than it is worth is copied before it is counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from broker.model.entry import Entry


def copy_out_of_idle_buffers(entries: Iterable[Entry], ratio_max: float) -> None:
    """Give entries bodies of their own where a buffer is more than `ratio_max` times as long as what all of them
    use of it. A busy connection fills its buffers, so this copies where there is time to."""
    used: dict[int, int] = {}
    for entry in entries:
        body = entry.body
        if type(body) is memoryview:
            used[id(body.obj)] = used.get(id(body.obj), 0) + len(body)
    for entry in entries:
        body = entry.body
        if type(body) is memoryview and len(body.obj) > used[id(body.obj)] * ratio_max:  # type: ignore[arg-type]
            entry.body = bytes(body)


class Pinned(Protocol):
    """What the manager asks of whoever counts."""

    @property
    def count(self) -> int: ...

    def __bool__(self) -> bool:
        """Whether an entry that leaves must be told of."""
        ...

    def add(self, entries: Iterable[Entry]) -> None: ...

    def remove(self, entries: Iterable[Entry]) -> None: ...


class PinnedBytes:
    """A `Pinned`."""

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
