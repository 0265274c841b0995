"""RangeCache: the cached entries of one ledger, by entry id (PIP-430, RangeCache).

Invariant: `size_bytes` is the sum of the sizes of `entries`, and each entry's `holder` is this object while the entry
has a slot in the policy's queue. The `EntryCache` inserts and invalidates here; a policy removes here.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from entry_cache.policy import NO_LIMIT, Removed
from foundation.model.entry import Entry

if TYPE_CHECKING:
    from entry_cache.active_cursors import ActiveCursors

_entry_id = attrgetter("entry_id")


class CachedLog(Protocol):
    """The parts of an `EntryCache` that policies and listeners may look at."""

    name: str
    """The managed ledger's name."""

    cursors: ActiveCursors | None
    """The active cursors of the managed ledger; None before it has attached them."""

    ledgers: dict[int, RangeCache]
    """By id, the ledgers that have cached entries, or had some a short while ago."""

    @property
    def size_bytes(self) -> int:
        """The bytes of all its cached entries."""
        ...


class RangeCache:
    """The cached entries of one ledger: the `Holder` of its entries."""

    __slots__ = ("entries", "highest_id", "log", "lowest_id", "size_bytes")

    def __init__(self, log: CachedLog, lowest_id: int) -> None:
        """`log` is the cache of the managed ledger; no entry below `lowest_id` is inserted without lowering it."""
        self.log = log
        """The cache of the managed ledger that this ledger belongs to."""
        self.entries: dict[int, Entry] = {}
        """The entries by id. Insertion order is not the order of ids: a catch-up read inserts lower ids later."""
        self.size_bytes = 0
        """The bytes of all entries."""
        self.lowest_id = lowest_id
        """No entry below this id is present, so an invalidation from the front looks at few ids."""
        self.highest_id = lowest_id
        """No entry above this id is present."""

    def between(self, first_id: int, end_id: int) -> list[Entry]:
        """Returns the present entries from `first_id` up to but not including `end_id`, ascending."""
        held = self.entries
        return [held[entry_id] for entry_id in self.ids_between(first_id, end_id)]

    def ids_between(self, first_id: int, end_id: int) -> list[int]:
        """Returns the present ids of such a range, ascending.

        Costs the smaller of the range and of the number of entries: a range may span a whole ledger.
        """
        held = self.entries
        if end_id - first_id <= len(held):
            return [entry_id for entry_id in range(first_id, end_id) if entry_id in held]
        return sorted([entry_id for entry_id in held if first_id <= entry_id < end_id])

    def pop_range(self, first_id: int, end_id: int) -> list[Entry]:
        """Takes out the entries from `first_id` up to but not including `end_id`, and returns them ascending.

        They are no longer `cached`, and `size_bytes` falls by theirs; their slots in the queue stay.
        """
        held = self.entries
        if first_id <= self.lowest_id and end_id == NO_LIMIT:
            popped = sorted(held.values(), key=_entry_id)
            held.clear()
        else:
            if first_id <= self.lowest_id:
                first_id = self.lowest_id
                self.lowest_id = max(first_id, end_id)
            popped = [held.pop(entry_id) for entry_id in self.ids_between(first_id, end_id)]
        for entry in popped:
            entry.cached = False
            self.size_bytes -= entry.size
        return popped


def evict(entry: Entry, removed: Removed) -> None:
    """Removes a cached entry from its range cache and notes it in `removed`.

    This is the duty of every policy that removes (see `policy.py`).
    """
    holder = entry.holder
    assert holder is not None
    del holder.entries[entry.entry_id]
    holder.size_bytes -= entry.size
    entry.holder = None
    entry.cached = False
    removed.entries.append(entry)
    removed.size_bytes += entry.size
