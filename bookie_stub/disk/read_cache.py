"""The read cache: entries that came from an entry log and will be asked for soon, under one of three policies.

`ring` is BookKeeper's: segments that are filled one after the other, the oldest of which is given up as a
whole. `lru` evicts what was not used for longest. `served-first` evicts first what was already served, and
then the far ends of the loads: a cold reader reads forwards, so an entry that it has got is worth least, and
of those that it waits for the last one is.

All count an entry as the multiple of 64 bytes that it takes up; what the interpreter needs for it besides,
about 80 bytes in the ring and 200 in the others, comes on top. An owner is a number that stands for a
ledger until the ledger is deleted: what has another owner is never found, so a deleted ledger's entries
need not be looked for; they leave like everything else. One thread. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

ALIGNMENT_BYTES = 64
_ROUNDING = ALIGNMENT_BYTES - 1
SEGMENT_BYTES_MAX = 1 << 30
SEGMENTS_MIN = 2
_FREED_PER_BYTE = 2
"""A given-up segment is freed while the next one fills, so that no one waits for a million entries to go."""

_Key = tuple[int, int]
"""Owner and entry id."""


class ReadCache(Protocol):
    @property
    def size(self) -> int:
        """Bytes taken up."""
        ...

    @property
    def count(self) -> int:
        """Entries that can be found."""
        ...

    def get(self, owner: int, entry_id: int) -> bytes | None:
        """The entry, which then counts as served once more."""
        ...

    def put(self, owner: int, ids: Sequence[int], entries: Sequence[bytes], served: int) -> None:
        """Entries of one load, the first `served` of which have been handed out already.

        An entry that is bigger than the cache, or than a segment of it, is not kept.
        """
        ...

    def discard(self, owner: int, entry_id: int) -> None:
        """The entry has been written anew."""
        ...


def aligned(size: int) -> int:
    return (size + _ROUNDING) & -ALIGNMENT_BYTES


class _Segment:
    __slots__ = ("runs", "size")

    def __init__(self) -> None:
        self.runs: dict[int, dict[int, bytes]] = {}
        """Owner to entry id to entry."""
        self.size = 0
        """Bytes given out, whether their entries can still be found or not."""


class RingCache:
    """Segments in a ring; an entry read again goes to the current one, an older copy of it may be elsewhere."""

    def __init__(self, bytes_max: int) -> None:
        count = max(SEGMENTS_MIN, bytes_max // SEGMENT_BYTES_MAX)
        self._segment_bytes = bytes_max // count
        self._segments = [_Segment() for _ in range(count)]
        """The current one first, then from the youngest to the oldest."""
        self._given_up: list[dict[int, bytes]] = []

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def count(self) -> int:
        return sum(len(run) for segment in self._segments for run in segment.runs.values())

    def get(self, owner: int, entry_id: int) -> bytes | None:
        for segment in self._segments:
            run = segment.runs.get(owner)
            if run is not None:
                entry = run.get(entry_id)
                if entry is not None:
                    return entry
        return None

    def put(self, owner: int, ids: Sequence[int], entries: Sequence[bytes], served: int) -> None:
        current = self._segments[0]
        room = self._segment_bytes
        put = 0
        for entry_id, entry in zip(ids, entries, strict=True):
            size = len(entry)
            if size > room:
                continue
            if current.size + size > room:
                current = self._next_segment()
            run = current.runs.get(owner)
            if run is None:
                run = current.runs[owner] = {}
            run[entry_id] = entry
            size = (size + _ROUNDING) & -ALIGNMENT_BYTES
            current.size += size
            put += size
        if self._given_up:
            self._free(_FREED_PER_BYTE * put)

    def discard(self, owner: int, entry_id: int) -> None:
        for segment in self._segments:
            run = segment.runs.get(owner)
            if run is not None:
                run.pop(entry_id, None)

    def _next_segment(self) -> _Segment:
        oldest = self._segments.pop()
        self._given_up += oldest.runs.values()
        self._segments.insert(0, _Segment())
        return self._segments[0]

    def _free(self, size: int) -> None:
        while size > 0 and self._given_up:
            run = self._given_up[-1]
            while run and size > 0:
                size -= (len(run.popitem()[1]) + _ROUNDING) & -ALIGNMENT_BYTES
            if not run:
                self._given_up.pop()


class LruCache:
    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._entries: OrderedDict[_Key, bytes] = OrderedDict()
        """The one that was not used for longest first."""
        self.size = 0

    @property
    def count(self) -> int:
        return len(self._entries)

    def get(self, owner: int, entry_id: int) -> bytes | None:
        key = owner, entry_id
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def put(self, owner: int, ids: Sequence[int], entries: Sequence[bytes], served: int) -> None:
        kept = self._entries
        size = self.size
        for entry_id, entry in zip(ids, entries, strict=True):
            key = owner, entry_id
            older = kept.pop(key, None)
            if older is not None:
                size -= (len(older) + _ROUNDING) & -ALIGNMENT_BYTES
            if len(entry) <= self._bytes_max:
                kept[key] = entry
                size += (len(entry) + _ROUNDING) & -ALIGNMENT_BYTES
        while size > self._bytes_max:
            size -= (len(kept.popitem(last=False)[1]) + _ROUNDING) & -ALIGNMENT_BYTES
        self.size = size

    def discard(self, owner: int, entry_id: int) -> None:
        entry = self._entries.pop((owner, entry_id), None)
        if entry is not None:
            self.size -= aligned(len(entry))


class _Load:
    """Entries of one load that wait for their first reader, in the order of their ids."""

    __slots__ = ("entries", "owner")

    def __init__(self, owner: int) -> None:
        self.owner = owner
        self.entries: dict[int, bytes] = {}


class ServedFirstCache:
    """Served entries leave in the order of their first serving; while there is room, they stay for other readers.

    When there are none left, loads give up their last entries, one load after the other and each until it is no
    longer than the average; only the newest one is whole until the next one comes, for a reader that takes
    many entries in a row. So a cache that is too small for all readers keeps a shorter readahead for each of
    them, instead of a whole one for some; and what a reader has left behind shrinks, because nothing is
    added to it.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._served: OrderedDict[_Key, bytes] = OrderedDict()
        self._waiting: dict[_Key, _Load] = {}
        self._loads: OrderedDict[_Load, None] = OrderedDict()
        """Those that have entries waiting; the youngest, or the one that was shortened last, is at the end."""
        self.size = 0

    @property
    def count(self) -> int:
        return len(self._served) + len(self._waiting)

    def get(self, owner: int, entry_id: int) -> bytes | None:
        key = owner, entry_id
        if key not in self._waiting:
            return self._served.get(key)
        entry = self._served[key] = self._no_longer_waiting(key)
        return entry

    def put(self, owner: int, ids: Sequence[int], entries: Sequence[bytes], served: int) -> None:
        load = _Load(owner)
        for number, (entry_id, entry) in enumerate(zip(ids, entries, strict=True)):
            key = owner, entry_id
            if key in self._waiting or key in self._served:
                self.discard(owner, entry_id)
            if len(entry) > self._bytes_max:
                continue
            self.size += (len(entry) + _ROUNDING) & -ALIGNMENT_BYTES
            if number < served:
                self._served[key] = entry
            else:
                self._waiting[key] = load
                load.entries[entry_id] = entry
        self._make_room(load)
        if load.entries:
            self._loads[load] = None

    def discard(self, owner: int, entry_id: int) -> None:
        key = owner, entry_id
        if key in self._waiting:
            self.size -= aligned(len(self._no_longer_waiting(key)))
        elif key in self._served:
            self.size -= aligned(len(self._served.pop(key)))

    def _make_room(self, newest: _Load) -> None:
        while self.size > self._bytes_max and self._served:
            self.size -= aligned(len(self._served.popitem(last=False)[1]))
        while self.size > self._bytes_max and self._loads:
            load = next(reversed(self._loads))
            if len(load.entries) * len(self._loads) <= len(self._waiting) - len(newest.entries):
                load = next(iter(self._loads))
                self._loads.move_to_end(load)
            self._shorten(load)
            if not load.entries:
                del self._loads[load]
        while self.size > self._bytes_max:
            self._shorten(newest)

    def _shorten(self, load: _Load) -> None:
        entry_id, entry = load.entries.popitem()
        del self._waiting[load.owner, entry_id]
        self.size -= (len(entry) + _ROUNDING) & -ALIGNMENT_BYTES

    def _no_longer_waiting(self, key: _Key) -> bytes:
        load = self._waiting.pop(key)
        entry = load.entries.pop(key[1])
        if not load.entries:
            del self._loads[load]
        return entry


POLICIES: dict[str, type[RingCache] | type[LruCache] | type[ServedFirstCache]] = {
    "ring": RingCache,
    "lru": LruCache,
    "served-first": ServedFirstCache,
}
