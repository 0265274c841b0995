"""PinnedBytes: counts and limits the bytes that cached entries keep alive beyond their own length.

An entry's body may be a slice of the large buffer that it was received in; the whole buffer stays in memory as long as
one of its slices is cached. Pinned bytes are counted per buffer as entries come and go, never by a walk over the cache.

An entry that came from a bookie has bytes of its own, and its body leaves out only their first 36 bytes and the header. Such
an entry is not tracked: the tracking would take several times the memory that it accounts for, and an entry would count
for more after a storage read than after its publication.

Law: a buffer is at most `entryCachePinnedRatioMax` times as long as its cached slices together. Entries that use too
little of their buffer are copied when they are inserted; when removals leave too few slices, the rest are copied out and
the buffer becomes free. So the pinned bytes stay a fixed part of the cached bytes under every policy.

It attaches to the cache as a listener. Copying takes time, so it is cut into slices like the passes: `compose.py` calls
`copy_out` before each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from entry_cache.cache_stats import Reason
from entry_cache.policy import Removed
from entry_cache.settings import CacheSettings
from foundation.model.entry import Entry

COPIED_PER_SLICE: Final = 4 * 1024 * 1024
"""Bytes that are copied out of buffers in 1 to 2 ms; the rest waits for the next slice."""

COPY_BYTES_PER_ENTRY: Final = 1024
"""Copying an entry costs as much as copying this many bytes more."""


_Slices = tuple[bytes | bytearray, list[Entry], int]
"""(a buffer, the entries with slices of it, the bytes of these slices)"""


def slices_by_buffer(entries: Iterable[Entry]) -> list[_Slices]:
    """Returns the buffers whose slices are among the bodies of the entries. Bodies of their own are left out."""
    parts: dict[int, list[Entry]] = {}
    part: list[Entry] = []
    last: object = None
    for entry in entries:
        body = entry.body
        if type(body) is memoryview:
            # A run was received together, so nearly all of its entries are in one buffer.
            if body.obj is not last:
                last = body.obj
                part = parts.setdefault(id(last), [])
            part.append(entry)
    return [(part[0].body.obj, part, sum([len(entry.body) for entry in part])) for part in parts.values()]  # type: ignore[union-attr, misc]


class _Buffer:
    """A receive buffer with cached slices."""

    __slots__ = ("cached", "entries", "length", "slices_bytes")

    def __init__(self, length: int) -> None:
        self.length = length
        self.slices_bytes = 0
        """The bytes of all cached slices."""
        self.cached = 0
        """The number of cached slices."""
        self.entries: list[Entry] = []
        """The entries of these slices, and some entries that were removed."""

    def survivors(self) -> list[Entry]:
        """Returns the entries that are still cached."""
        return [entry for entry in self.entries if entry.cached]


class PinnedBytes:
    """A listener that keeps the buffers with cached slices."""

    def __init__(self, *, strict: bool) -> None:
        """`strict`: a size pass must free the pinned bytes of what it removes (see `StrictSize`)."""
        self._strict = strict
        self._copy_entries = False
        self._ratio_max = 0.0
        self._buffers: dict[int, _Buffer] = {}
        """By `id`, which cannot be used anew while a slice of the buffer is cached."""
        self._leaving: dict[int, _Buffer] = {}
        """Buffers whose slices are still to be copied out; they no longer count."""
        self._copy_left = COPIED_PER_SLICE
        """Bytes that may still be copied in this slice."""
        self.count = 0
        """The lengths of all buffers with a cached slice, less the lengths of the slices."""

    # Events of the cache

    def configured(self, settings: CacheSettings) -> None:
        """Takes over `entryCachePinnedRatioMax` and `managedLedgerCacheCopyEntries`."""
        self._copy_entries = settings.copy_entries
        self._ratio_max = settings.pinned_ratio_max
        self._leave_idle(list(self._buffers))

    def slices_inserted(self, entries: Sequence[Entry]) -> None:
        """Copies what the settings or the ratio ask for, and counts the buffers of the rest."""
        # Under `managedLedgerCacheCopyEntries` no cached entry pins anything, so nothing is counted.
        if self._copy_entries:
            for entry in entries:
                if type(entry.body) is memoryview:
                    entry.body = bytes(entry.body)
            return
        for whole, slices, size in slices_by_buffer(entries):
            # A busy connection fills its buffers, so this copies while the connection is slow and there is time to copy.
            if len(whole) > size * self._ratio_max > 0:
                for entry in slices:
                    entry.body = bytes(entry.body)
            # Receive buffers are written to. The bytes that a bookie has stored for one entry are immutable.
            elif type(whole) is bytearray:
                self._add(whole, slices, size)

    def removed(self, removed: Removed, reason: Reason, now_ns: int) -> None:
        """Counts the removed slices. Their buffers leave at once if a strict size pass removed them.

        Evicting one slice frees nothing, so a strict size pass copies out the other slices of the same buffer.
        Otherwise it would empty the cache around a few large buffers.
        """
        # Nothing is tracked where all bodies are bytes; this test is then the whole cost of a removal.
        if self._buffers or self._leaving:
            self._remove(removed.entries, leave=self._strict and reason is Reason.SIZE)

    # Copying

    @property
    def has_more(self) -> bool:
        """True if slices are still to be copied out."""
        return bool(self._leaving)

    def copy_out(self) -> bool:
        """Begins a new slice of copying. Returns True if slices are left to be copied."""
        self._copy_left = COPIED_PER_SLICE
        self._copy()
        return bool(self._leaving)

    def _copy(self) -> None:
        while self._leaving and self._copy_left > 0:
            _, buffer = self._leaving.popitem()
            for entry in buffer.survivors():
                body = entry.body
                if type(body) is memoryview:
                    entry.body = bytes(body)
                    # It may go below zero by one buffer: a buffer becomes free only when all its slices are
                    # copied.
                    self._copy_left -= len(body) + COPY_BYTES_PER_ENTRY

    # Counting

    def _add(self, whole: bytearray, slices: list[Entry], size: int) -> None:
        key = id(whole)
        buffer = self._buffers.get(key)
        if buffer is None:
            buffer = self._buffers[key] = (
                self._leaving.pop(key) if key in self._leaving else _Buffer(len(whole))
            )
            # A buffer on its way out counts again from here on: a new slice of it is pinned for its own time.
            self.count += buffer.length - buffer.slices_bytes
        buffer.slices_bytes += size
        buffer.cached += len(slices)
        buffer.entries += slices
        self.count -= size

    def _remove(self, entries: Iterable[Entry], *, leave: bool) -> None:
        lost: dict[int, _Buffer] = {}
        for whole, slices, size in slices_by_buffer(entries):
            if type(whole) is bytearray:
                key = id(whole)
                buffer = lost[key] = self._buffers.get(key) or self._leaving[key]
                # Taken out of the count, and added back below with its new number of slices.
                if key in self._buffers:
                    self.count -= buffer.length - buffer.slices_bytes
                buffer.slices_bytes -= size
                buffer.cached -= len(slices)
        for key, buffer in lost.items():
            # The last slice is gone, so the buffer is free without a copy.
            if not buffer.cached:
                self._buffers.pop(key, None)
                self._leaving.pop(key, None)
            elif key in self._buffers:
                self.count += buffer.length - buffer.slices_bytes
                if leave:
                    self._leave(key)
        # A strict pass has marked them all above. Otherwise only those leave that are too long for their
        # slices.
        if not leave:
            self._leave_idle(lost)
        # Within what is left of this slice's quota; `copy_out` continues with the rest before the next pass.
        self._copy()

    def _leave_idle(self, keys: Iterable[int]) -> None:
        """Marks those buffers that are longer than the ratio allows for their slices."""
        for key in keys:
            buffer = self._buffers.get(key)
            if buffer is None:
                continue
            if buffer.length > buffer.slices_bytes * self._ratio_max > 0:
                self._leave(key)
            elif len(buffer.entries) > 2 * buffer.cached:
                buffer.entries = buffer.survivors()  # The removed ones would live as long as the buffer.

    def _leave(self, key: int) -> None:
        """Marks a buffer to be copied out; it no longer counts."""
        buffer = self._leaving[key] = self._buffers.pop(key)
        self.count -= buffer.length - buffer.slices_bytes
