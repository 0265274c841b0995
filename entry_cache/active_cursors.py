"""ActiveCursors: the cursors of a managed ledger that count as readers, and how many stand before a position.

PIP-430 asks two questions of it (ActiveManagedCursorContainer):

* A new entry is to be read by all active cursors: `len(cursors)`.
* An entry that a cursor reads from storage is to be read by the cursors at the same position or before it, which is
  the cursor's `rank`.

Pulsar answers with a linked list that it sorts late. Here the positions stand in one sorted list, which is exact at
every moment: with tens of cursors a bisection is cheaper than any lazy state.

The managed ledger owns this object and attaches it to its `EntryCache`. A policy that needs to know more about the
cursors than where they stand watches them through a `CursorWatcher`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from entry_cache.cursor_watcher import AcknowledgingCursor, CursorWatcher
from foundation.model.position import Position

NAMES_KEPT: Final = 100
"""An event names this many readers at most, so that it costs no more with ten thousand of them."""

CursorPlace = tuple[int, int, str]
"""(ledger id, entry id, name) of a cursor, in lists that are sorted by it."""


class ActiveCursors:
    """The active cursors of one managed ledger, by name, ordered by position."""

    __slots__ = (
        "_changed_at_ns",
        "_first_names",
        "_positions",
        "continue_caching_ns",
        "count",
        "places",
        "watcher",
    )

    def __init__(self, continue_caching_ns: int, now_ns: int) -> None:
        """`continue_caching_ns`: for how long new entries are cached after the last cursor left; 0 or less = not."""
        self.continue_caching_ns = continue_caching_ns
        """`managedLedgerContinueCachingAddedEntriesAfterLastActiveCursorLeavesMillis`."""
        self.places: list[CursorPlace] = []
        """The cursors that have a position, sorted. Only this object writes it; others may read it."""
        self.watcher: CursorWatcher | None = None
        """Hears of every change, for a policy that judges by cursors."""
        self.count = 0
        """How many cursors are active; the same as `len`, without a call."""
        self._first_names: tuple[str, ...] | None = None
        # The same tuples as in `places`.
        self._positions: dict[str, CursorPlace | None] = {}
        self._changed_at_ns = now_ns
        """When a cursor left the last time."""

    def __len__(self) -> int:
        """Returns the number of active cursors, those without a position included."""
        return len(self._positions)

    def __contains__(self, name: str) -> bool:
        return name in self._positions

    def __iter__(self) -> Iterator[str]:
        return iter(self._positions)

    def add(self, name: str, position: Position | None, cursor: AcknowledgingCursor | None = None) -> None:
        """Makes a cursor active; without a position it counts as a reader but has no rank.

        `cursor` is handed to the watcher: after a reconnect it would begin after its mark-delete position.
        """
        if name not in self._positions:
            self._positions[name] = None
            self.count += 1
            self._first_names = None
        if self.watcher is not None:
            self.watcher.added(name, cursor)
        self.update(name, position)

    def update(self, name: str, position: Position | None) -> None:
        """Moves a cursor forward or back, or takes its position away. Ignored unless it is active.

        Called for every run that a cursor reads.
        """
        positions = self._positions
        before = positions.get(name)
        if before is None:
            if position is None or name not in positions:
                return
        elif position is not None and before[1] == position[1] and before[0] == position[0]:
            return
        place = positions[name] = None if position is None else (position[0], position[1], name)
        places = self.places
        if before is not None:
            # The only cursor needs no search.
            del places[bisect_left(places, before) if len(places) > 1 else 0]
        if place is not None:
            insort(places, place)
        watcher = self.watcher
        if watcher is not None:
            watcher.moved(name, None if before is None else Position(before[0], before[1]), position)

    def remove(self, name: str, now_ns: int) -> bool:
        """Makes a cursor inactive. Returns True if it was active."""
        if name not in self._positions:
            return False
        self.update(name, None)
        del self._positions[name]
        self.count -= 1
        self._first_names = None
        self._changed_at_ns = now_ns
        if self.watcher is not None:
            self.watcher.removed(name, now_ns)
        return True

    def forget(self, name: str) -> None:
        """Tells the watcher that the cursor was deleted; it must have been removed before."""
        if self.watcher is not None:
            self.watcher.forgotten(name)

    def position(self, name: str) -> Position | None:
        """Returns the position of a cursor; None if it has none or is not active."""
        place = self._positions.get(name)
        return None if place is None else Position(place[0], place[1])

    @property
    def first_names(self) -> tuple[str, ...]:
        """The first `NAMES_KEPT` names, for events: made anew after a cursor has come or left, not at each insert."""
        if self._first_names is None:
            self._first_names = tuple(islice(self._positions, NAMES_KEPT))
        return self._first_names

    def rank(self, name: str) -> int:
        """Returns how many cursors stand at this one's position or before, itself included; 0 without a position.

        PIP-430 calls it getNumberOfCursorsAtSamePositionOrBefore: the expected reads of what this cursor reads.
        """
        place = self._positions.get(name)
        return 0 if place is None else count_to(self.places, place[:2])

    def slowest(self) -> Position | None:
        """Returns the lowest position of a cursor; None if no cursor has a position."""
        return Position(*self.places[0][:2]) if self.places else None

    def should_cache_added(self, now_ns: int) -> bool:
        """Returns True if a new entry is to be cached: a cursor is active, or was a short while ago.

        Without the second case a reconnect of the only consumer would leave a gap in the cache.
        """
        return bool(self._positions) or now_ns - self._changed_at_ns < self.continue_caching_ns


def count_to(places: Sequence[CursorPlace], position: tuple[int, int]) -> int:
    """Returns how many of the sorted places are at `position` or before."""
    return bisect_left(places, (position[0], position[1] + 1))
