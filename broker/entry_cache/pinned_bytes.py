"""PinnedBytes: what cached entries keep alive beyond their own length, and its bound.

An entry's body may be a slice of the large buffer it was received in; as long as one slice is cached the
whole buffer stays. Counted per buffer as entries come and go, never by walking over the cache. What would
keep much more than it is worth is copied before it is counted; and where so much has left a buffer that the rest is not
worth it any more, the rest is copied out and the buffer let go of. So what is pinned stays a fixed part of what is
cached, whatever leaves.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from broker.model.entry import Entry

COPIED_PER_SLICE: Final = 4 * 1024 * 1024
"""Bytes that are copied out of buffers in 1 to 2 ms; what is more waits for the next slice."""

COPY_BYTES_PER_ENTRY: Final = 1024
"""What copying an entry costs besides its bytes, as so many of them."""


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
    def count(self) -> int:
        """Lengths of all buffers with a cached slice, less the lengths of the slices. Buffers that are as good as let
        go of do not count."""
        ...

    def __bool__(self) -> bool:
        """Whether an entry that leaves must be told of."""
        ...

    def configure(self, ratio_max: float) -> None:
        """A buffer may be so many times as long as its cached slices together; 0 = however long."""
        ...

    def add(self, entries: Iterable[Entry]) -> None: ...

    def remove(self, entries: Iterable[Entry], *, makes_room: bool) -> None:
        """Entries that are not cached any more. `makes_room`: their bytes are to become free, so that a buffer which has
        lost one of them is let go of."""
        ...

    @property
    def behind(self) -> bool:
        """Whether buffers are still to be let go of."""
        ...

    def copy_out(self) -> bool:
        """A new slice begins: let go of what the last one could not. Whether some are left still."""
        ...


class _Buffer:
    """One with cached slices."""

    __slots__ = ("cached", "entries", "length", "slices_bytes")

    def __init__(self, length: int) -> None:
        self.length = length
        self.slices_bytes = 0
        self.cached = 0
        """Slices."""
        self.entries: list[Entry] = []
        """Whose slices these are, and some that have left."""

    def survivors(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.cached]


class PinnedBytes:
    """A `Pinned`."""

    __slots__ = ("_buffers", "_leaving", "_left", "_ratio_max", "count")

    def __init__(self) -> None:
        self._ratio_max = 0.0
        self._buffers: dict[int, _Buffer] = {}
        """By the identity of a buffer, which cannot be used anew while a slice of it is cached."""
        self._leaving: dict[int, _Buffer] = {}
        """Those that are let go of and have slices to be copied out: they do not count."""
        self._left = COPIED_PER_SLICE
        """What may still be copied in this slice."""
        self.count = 0

    @property
    def behind(self) -> bool:
        return bool(self._leaving)

    def __bool__(self) -> bool:
        return bool(self._buffers or self._leaving)

    def configure(self, ratio_max: float) -> None:
        self._ratio_max = ratio_max
        self._let_go_of_idle(list(self._buffers))

    def add(self, entries: Iterable[Entry]) -> None:
        buffers = self._buffers
        pinned = 0
        for entry in entries:
            body = entry.body
            if type(body) is memoryview:
                whole: bytearray = body.obj  # type: ignore[assignment]
                key = id(whole)
                buffer = buffers.get(key)
                if buffer is None:
                    buffer = self._leaving.pop(key) if key in self._leaving else _Buffer(len(whole))
                    buffers[key] = buffer
                    pinned += buffer.length - buffer.slices_bytes
                size = len(body)
                buffer.slices_bytes += size
                buffer.cached += 1
                buffer.entries.append(entry)
                pinned -= size
        self.count += pinned

    def remove(self, entries: Iterable[Entry], *, makes_room: bool) -> None:
        lost: dict[int, _Buffer] = {}
        for entry in entries:
            body = entry.body
            if type(body) is memoryview:
                key = id(body.obj)
                buffer = lost.get(key)
                if buffer is None:
                    buffer = lost[key] = self._buffers.get(key) or self._leaving[key]
                    if key in self._buffers:
                        self.count -= buffer.length - buffer.slices_bytes
                buffer.slices_bytes -= len(body)
                buffer.cached -= 1
        for key, buffer in lost.items():
            if not buffer.cached:
                self._buffers.pop(key, None)
                self._leaving.pop(key, None)
            elif key in self._buffers:
                self.count += buffer.length - buffer.slices_bytes
                if makes_room:
                    self._let_go(key)
        if not makes_room:
            self._let_go_of_idle(lost)
        self._copy()

    def _let_go_of_idle(self, keys: Iterable[int]) -> None:
        for key in keys:
            buffer = self._buffers.get(key)
            if buffer is None:
                continue
            if buffer.length > buffer.slices_bytes * self._ratio_max > 0:
                self._let_go(key)
            elif len(buffer.entries) > 2 * buffer.cached:
                buffer.entries = buffer.survivors()  # The others would live as long as the buffer.

    def _let_go(self, key: int) -> None:
        buffer = self._leaving[key] = self._buffers.pop(key)
        self.count -= buffer.length - buffer.slices_bytes

    def copy_out(self) -> bool:
        self._left = COPIED_PER_SLICE
        self._copy()
        return bool(self._leaving)

    def _copy(self) -> None:
        while self._leaving and self._left > 0:
            _, buffer = self._leaving.popitem()
            for entry in buffer.survivors():
                body = entry.body
                if type(body) is memoryview:
                    entry.body = bytes(body)
                    self._left -= len(body) + COPY_BYTES_PER_ENTRY
