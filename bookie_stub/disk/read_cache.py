"""The read cache: entries loaded from logs, under one of three policies.

| policy | evicted when the cache is full |
|---|---|
| `ring` | BookKeeper's `ReadCache`: segments are filled in turn, the oldest one is evicted as a whole |
| `lru` | the entry that was neither put nor served for longest |
| `served-first` | served entries in the order of their first serving, then the far ends of the longest loads |

`served-first` fits cold readers, who read forwards once: an entry that was served is worth least to them, and of the
entries that wait to be served the last one is. `lru` keeps just what was served, and thrashes sooner than the ring.
docs/reference/benchmarks.md has the measurements.

All count an entry as its length rounded up to 64 bytes, as BookKeeper does. The interpreter needs about 80 bytes more per
entry in the ring and 200 in the others.

An *owner* is a number that stands for a ledger until the ledger is deleted. Entries of another owner are never found, so
those of a deleted ledger need no search; they are evicted like all others. One thread. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

ALIGNMENT_BYTES = 64
"""An entry counts as a multiple of this."""
_ROUNDING = ALIGNMENT_BYTES - 1
# `aligned` is written out where it runs for each entry of a load: a call costs more than the sum.
SEGMENT_BYTES_MAX = 1 << 30
"""Bytes of a segment of the ring at most, as at BookKeeper."""
SEGMENTS_MIN = 2
"""Segments of a ring of less than 3 GiB."""
_FREED_PER_BYTE = 2
"""Bytes of an evicted segment that are freed for each byte put. Freeing a million entries at once would stop the loop."""

_Key = tuple[int, int]
"""Owner and entry id."""


class ReadCache(Protocol):
    """A cache of entries that were loaded from entry logs."""

    @property
    def size(self) -> int:
        """Bytes taken in all segments. Evicted segments whose memory is not freed yet do not count."""
        ...

    @property
    def count(self) -> int:
        """Entries that can be found."""
        ...

    evicted_unserved: int
    """Entries evicted before they were first served, since the start: each was read from disk in vain."""

    def get(self, owner: int, entry_id: int) -> bytes | None:
        """Returns the entry, which then counts as served, or None."""
        ...

    def put(self, owner: int, ids: Sequence[int], entries: Sequence[bytes], served: int) -> None:
        """Stores the entries of one load; the first `served` were served.

        An entry larger than the cache, or than a segment of it, is not stored.
        """
        ...

    def discard(self, owner: int, entry_id: int) -> None:
        """Removes an entry that was written again. The stored version is out of date."""
        ...


def aligned(size: int) -> int:
    """Returns `size` rounded up to a multiple of 64."""
    return (size + _ROUNDING) & -ALIGNMENT_BYTES


class _Segment:
    def __init__(self) -> None:
        self.owners: dict[int, dict[int, bytes]] = {}
        """The entries of each owner, by entry id."""
        self.unserved: dict[int, set[int]] = {}
        """Ids of the entries that were not served yet, by owner. Beside `owners`, so that a hit costs one removal from a
        set and no object per entry."""
        self.size = 0
        """Bytes taken, those of discarded and replaced entries included: a segment is only ever filled."""


class RingCache:
    """The policy `ring`. An entry that is loaded again goes to the current segment, beside an older copy elsewhere."""

    def __init__(self, bytes_max: int) -> None:
        count = max(SEGMENTS_MIN, bytes_max // SEGMENT_BYTES_MAX)
        self._segment_bytes = bytes_max // count
        self._segments = [_Segment() for _ in range(count)]
        """The current one first, then from the youngest to the oldest."""
        self._given_up: list[dict[int, bytes]] = []
        """Entries of evicted segments whose memory is still to be freed."""
        self.evicted_unserved = 0
        """Entries evicted before they were first served, since the start: each was read from disk in vain."""

    @property
    def size(self) -> int:
        """Bytes taken in all segments. Evicted segments whose memory is not freed yet do not count."""
        return sum(segment.size for segment in self._segments)

    @property
    def count(self) -> int:
        """Copies of entries; one in two segments counts twice."""
        return sum(len(entries) for segment in self._segments for entries in segment.owners.values())

    def get(self, owner: int, entry_id: int) -> bytes | None:
        """Looks from the youngest segment to the oldest; serving moves nothing."""
        for segment in self._segments:
            found = segment.owners.get(owner)
            if found is not None:
                entry = found.get(entry_id)
                if entry is not None:
                    segment.unserved[owner].discard(entry_id)
                    return entry
        return None

    def put(self, owner: int, ids: Sequence[int], entries: Sequence[bytes], served: int) -> None:
        """Fills the current segment. When it is full the oldest segment is evicted and an empty one becomes current."""
        current = self._segments[0]
        bytes_max = self._segment_bytes
        put = 0
        for number, (entry_id, entry) in enumerate(zip(ids, entries, strict=True)):
            size = len(entry)
            if size > bytes_max:
                continue
            # Not rounded up, as BookKeeper compares it: the last entry of a segment may lack its padding.
            if current.size + size > bytes_max:
                current = self._next_segment()
            own = current.owners.get(owner)
            if own is None:
                own = current.owners[owner] = {}
                current.unserved[owner] = set()
            own[entry_id] = entry
            if number >= served:
                current.unserved[owner].add(entry_id)
            else:
                current.unserved[owner].discard(entry_id)
            size = (size + _ROUNDING) & -ALIGNMENT_BYTES
            current.size += size
            put += size
        if self._given_up:
            self._free(_FREED_PER_BYTE * put)

    def discard(self, owner: int, entry_id: int) -> None:
        """Removes the copies in all segments."""
        for segment in self._segments:
            found = segment.owners.get(owner)
            if found is not None:
                found.pop(entry_id, None)
                segment.unserved[owner].discard(entry_id)

    def _next_segment(self) -> _Segment:
        oldest = self._segments.pop()
        self.evicted_unserved += sum(map(len, oldest.unserved.values()))
        # Kept for `_free`, which drops them bit by bit while the next segment fills.
        self._given_up += oldest.owners.values()
        self._segments.insert(0, _Segment())
        return self._segments[0]

    def _free(self, size: int) -> None:
        while size > 0 and self._given_up:
            entries = self._given_up[-1]
            while entries and size > 0:
                size -= (len(entries.popitem()[1]) + _ROUNDING) & -ALIGNMENT_BYTES
            if not entries:
                self._given_up.pop()


class LruCache:
    """The policy `lru`, a queue of entries. Putting and serving an entry move it to the end."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._entries: OrderedDict[_Key, bytes] = OrderedDict()
        """The entry that was not used for longest is first."""
        self._unserved: set[_Key] = set()
        self.evicted_unserved = 0
        """Entries evicted before they were first served, since the start: each was read from disk in vain."""
        self.size = 0
        """Bytes taken."""

    @property
    def count(self) -> int:
        """Entries stored."""
        return len(self._entries)

    def get(self, owner: int, entry_id: int) -> bytes | None:
        """Moves the entry to the end of the queue."""
        key = owner, entry_id
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
            self._unserved.discard(key)
        return entry

    def put(self, owner: int, ids: Sequence[int], entries: Sequence[bytes], served: int) -> None:
        """Puts all entries, then evicts from the head; `served` matters to the count alone."""
        kept, unserved = self._entries, self._unserved
        size = self.size
        for number, (entry_id, entry) in enumerate(zip(ids, entries, strict=True)):
            key = owner, entry_id
            if number < served:
                unserved.discard(key)
            elif len(entry) <= self._bytes_max:
                unserved.add(key)
            # Popped rather than replaced, so that the entry moves to the end of the queue.
            older = kept.pop(key, None)
            if older is not None:
                size -= (len(older) + _ROUNDING) & -ALIGNMENT_BYTES
            if len(entry) <= self._bytes_max:
                kept[key] = entry
                size += (len(entry) + _ROUNDING) & -ALIGNMENT_BYTES
        while size > self._bytes_max:
            key, evicted = kept.popitem(last=False)
            size -= (len(evicted) + _ROUNDING) & -ALIGNMENT_BYTES
            if key in unserved:
                unserved.remove(key)
                self.evicted_unserved += 1
        self.size = size

    def discard(self, owner: int, entry_id: int) -> None:
        """Removes the one copy."""
        entry = self._entries.pop((owner, entry_id), None)
        if entry is not None:
            self.size -= aligned(len(entry))
            self._unserved.discard((owner, entry_id))


class _Load:
    """One load's entries that were not served yet, by ascending id."""

    __slots__ = ("entries", "owner")

    def __init__(self, owner: int) -> None:
        self.owner = owner
        self.entries: dict[int, bytes] = {}


class ServedFirstCache:
    """The policy `served-first`.

    Served entries are evicted first, in the order of their first serving; until then other readers of the same place find
    them. When none is left, loads are shortened from their far ends, in turn, each until it is no longer than the average.
    The newest load stays whole until the next one comes, for a reader that takes many entries in a row.

    So a cache too small for all readers keeps a shorter readahead for each of them, instead of a whole one for some. A load
    that its reader has abandoned shrinks with the others, as no entry is added to it.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._served: OrderedDict[_Key, bytes] = OrderedDict()
        """Served entries in the order of their first serving."""
        self._unserved: dict[_Key, _Load] = {}
        """The load of each entry that was not served yet."""
        self._loads: OrderedDict[_Load, None] = OrderedDict()
        """Loads with unserved entries; the youngest, or the one that was shortened last, is at the end."""
        self.evicted_unserved = 0
        """Entries evicted before they were first served, since the start: each was read from disk in vain."""
        self.size = 0
        """Bytes taken."""

    @property
    def count(self) -> int:
        """Entries stored, served or not."""
        return len(self._served) + len(self._unserved)

    def get(self, owner: int, entry_id: int) -> bytes | None:
        """Moves an entry to the served ones when it is first served."""
        key = owner, entry_id
        if key not in self._unserved:
            return self._served.get(key)
        entry = self._served[key] = self._take_unserved(key)
        return entry

    def put(self, owner: int, ids: Sequence[int], entries: Sequence[bytes], served: int) -> None:
        """Stores the load, then evicts. The far end of this load is cut last of all."""
        load = _Load(owner)
        for number, (entry_id, entry) in enumerate(zip(ids, entries, strict=True)):
            key = owner, entry_id
            if key in self._unserved or key in self._served:
                self.discard(owner, entry_id)
            if len(entry) > self._bytes_max:
                continue
            self.size += (len(entry) + _ROUNDING) & -ALIGNMENT_BYTES
            if number < served:
                self._served[key] = entry
            else:
                self._unserved[key] = load
                load.entries[entry_id] = entry
        self._evict(load)
        if load.entries:
            self._loads[load] = None

    def discard(self, owner: int, entry_id: int) -> None:
        """Removes the one copy, served or not."""
        key = owner, entry_id
        if key in self._unserved:
            self.size -= aligned(len(self._take_unserved(key)))
        elif key in self._served:
            self.size -= aligned(len(self._served.pop(key)))

    def _evict(self, newest: _Load) -> None:
        while self.size > self._bytes_max and self._served:
            self.size -= aligned(len(self._served.popitem(last=False)[1]))
        while self.size > self._bytes_max and self._loads:
            load = next(reversed(self._loads))
            # Go on with the load that was shortened last while it is longer than the average, else take the next in turn.
            if len(load.entries) * len(self._loads) <= len(self._unserved) - len(newest.entries):
                load = next(iter(self._loads))
                self._loads.move_to_end(load)
            self._shorten(load)
            if not load.entries:
                del self._loads[load]
        while self.size > self._bytes_max:
            # Only this load is left, and it alone exceeds the cache.
            self._shorten(newest)

    def _shorten(self, load: _Load) -> None:
        # The last item is the highest id, thus the far end, because entries were put in by ascending id.
        entry_id, entry = load.entries.popitem()
        del self._unserved[load.owner, entry_id]
        self.evicted_unserved += 1
        self.size -= (len(entry) + _ROUNDING) & -ALIGNMENT_BYTES

    def _take_unserved(self, key: _Key) -> bytes:
        load = self._unserved.pop(key)
        entry = load.entries.pop(key[1])
        if not load.entries:
            del self._loads[load]
        return entry


POLICIES: dict[str, type[RingCache] | type[LruCache] | type[ServedFirstCache]] = {
    "ring": RingCache,
    "lru": LruCache,
    "served-first": ServedFirstCache,
}
"""The class of each value of `readCachePolicy`."""
