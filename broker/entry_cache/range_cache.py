"""RangeCache: the cached entries of one ledger, by entry id."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol

from broker.entry_cache.policies.policy import NO_LIMIT
from broker.model.entry import Entry

if TYPE_CHECKING:
    from broker.entry_cache.active_cursors import ActiveCursors

COPIED_MAX: Final = 200_000
"""Entries that are copied into a list in 3 to 5 ms."""

_entry_id = attrgetter("entry_id")


class CachedLog(Protocol):
    """What a policy may ask of the cache that an entry is in."""

    name: str
    readers: ActiveCursors | None
    """The cursors of the log; none where nobody has said."""

    @property
    def size_bytes(self) -> int: ...


class RangeCache:
    """The `Holder` of its entries."""

    __slots__ = ("entries", "highest_id", "log", "lowest_id", "size_bytes")

    def __init__(self, log: CachedLog, lowest_id: int) -> None:
        self.log = log
        self.entries: dict[int, Entry] = {}
        self.size_bytes = 0
        self.lowest_id = lowest_id
        """No entry below is present. Lets an invalidation from the front look at few ids."""
        self.highest_id = lowest_id
        """No entry above is present."""

    def pop_range(self, first_id: int, end_id: int) -> list[Entry]:
        """Take out, in order, the entries from `first_id` up to but not including `end_id`."""
        held = self.entries
        if first_id <= self.lowest_id:
            first_id = self.lowest_id
            if end_id == NO_LIMIT:
                popped = sorted(held.values(), key=_entry_id)
                held.clear()
                return popped
            self.lowest_id = max(first_id, end_id)
        return [held.pop(entry_id) for entry_id in self.ids_between(first_id, end_id)]

    @property
    def is_small(self) -> bool:
        """Whether copying a list of what is present holds nobody up."""
        return len(self.entries) <= COPIED_MAX

    def slices(self, count: int) -> Iterator[list[Entry]]:
        """What is present, so many ids or entries at a time; between two, entries may come and go."""
        if self.is_small:
            held = list(self.entries.values())
            yield from (held[start : start + count] for start in range(0, len(held), count))
            return
        get = self.entries.get
        start = self.lowest_id
        while start <= self.highest_id:
            part = [entry for entry_id in range(start, start + count) if (entry := get(entry_id)) is not None]
            if not part and start == self.lowest_id:
                self.lowest_id = start + count
            start += count
            yield part

    def ids_between(self, first_id: int, end_id: int) -> list[int]:
        """The ids that are present, ascending; costs the smaller of the range and of what is held."""
        held = self.entries
        if end_id - first_id <= len(held):
            return [entry_id for entry_id in range(first_id, end_id) if entry_id in held]
        return sorted([entry_id for entry_id in held if first_id <= entry_id < end_id])
