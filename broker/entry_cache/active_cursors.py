"""ActiveCursors: which cursors of a managed ledger are readers to come, and how many are behind a position.

The number of active cursors is the count of expected reads of a new entry; the rank of a cursor, the number
of cursors at its position or before, is the count for entries that it reads from storage (PIP-430). Ranks
are exact at every moment: positions stand in one sorted list, and nothing is put off.

A policy that decides by positions instead of counts looks at `view`: who reads on, who has stopped, who may come
back. Nothing of that is kept up to date while messages flow; a view compares with the one before.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from typing import Final

from broker.entry_cache.policies.policy import NO_LIMIT
from broker.entry_cache.reader_view import NOBODY, ReaderView, ReadingAt, entries_moved
from broker.model.position import LATEST, Position

SPEED_GUESS: Final = 1000.0
"""Entries a second of a cursor that nobody has seen read yet."""

Acknowledged = Callable[[], Position]
"""The mark-delete position of a cursor."""


class _Pace:
    """How fast a cursor reads, as far as the views can tell that were taken of it."""

    __slots__ = ("_speed", "moved_ns", "position")

    def __init__(self, position: Position, now_ns: int) -> None:
        self.position = position
        self.moved_ns = now_ns
        """When a view last saw it at another place than the view before."""
        self._speed = SPEED_GUESS

    def seen_at(self, position: Position, now_ns: int) -> None:
        if position == self.position:
            return
        entries = entries_moved(self.position, position)
        if entries and now_ns > self.moved_ns:
            now = entries * 1e9 / (now_ns - self.moved_ns)
            self._speed = (self._speed + now) / 2
        self.position = position
        self.moved_ns = now_ns

    def speed(self, now_ns: int) -> float:
        """Entries a second; one that stands still can be no faster than one entry since it moved."""
        idle_ns = now_ns - self.moved_ns
        return min(self._speed, 1e9 / idle_ns) if idle_ns else self._speed


class _Departed:
    """A cursor that left and is expected back for a while, to begin behind what it has acknowledged."""

    __slots__ = ("acknowledged", "next_read", "until_ns")

    def __init__(self, acknowledged: Position, until_ns: int) -> None:
        self.acknowledged = acknowledged
        self.next_read = Position(acknowledged.ledger_id, acknowledged.entry_id + 1)
        self.until_ns = until_ns


class ActiveCursors:
    __slots__ = (
        "_acknowledged",
        "_changed_at_ns",
        "_continue_caching_ns",
        "_departed",
        "_last_view",
        "_names",
        "_paces",
        "_positions",
        "_sorted",
        "_version",
    )

    def __init__(self, continue_caching_ns: int, now_ns: int) -> None:
        """`continue_caching_ns`: how long new entries are cached after the last cursor left, and a cursor that
        left is expected back; 0 or less = not."""
        self._continue_caching_ns = continue_caching_ns
        self._changed_at_ns = now_ns
        self._positions: dict[str, Position | None] = {}
        self._sorted: list[Position] = []
        self._names: tuple[str, ...] | None = None
        """All of them, once somebody has asked."""
        self._acknowledged: dict[str, Acknowledged] = {}
        self._departed: dict[str, _Departed] = {}
        self._paces: dict[str, _Pace] = {}
        self._version = 0
        """Grows when a cursor comes, goes or moves."""
        self._last_view = (NOBODY, 0, -1)

    def __len__(self) -> int:
        """Cursors, with those that have no position."""
        return len(self._positions)

    def __contains__(self, name: str) -> bool:
        return name in self._positions

    def __iter__(self) -> Iterator[str]:
        return iter(self._positions)

    def add(self, name: str, position: Position | None, acknowledged: Acknowledged | None = None) -> None:
        """A cursor becomes active; without a position it counts as a reader but has no rank. `acknowledged`
        says where it would read again from if it came back."""
        self._positions.setdefault(name, None)
        self._version += 1
        self._names = None
        self._departed.pop(name, None)
        if acknowledged is not None:
            self._acknowledged[name] = acknowledged
        self.update(name, position)

    def update(self, name: str, position: Position | None) -> None:
        """The cursor has moved, forward or back, or lost its position. Ignored unless it is active."""
        before = self._positions.get(name)
        if before == position or name not in self._positions:
            return
        self._positions[name] = position
        self._version += 1
        if before is not None:
            del self._sorted[bisect_left(self._sorted, before)]
        if position is not None:
            insort(self._sorted, position)

    def remove(self, name: str, now_ns: int) -> bool:
        """The cursor is no longer a reader; whether it was."""
        if name not in self._positions:
            return False
        self.update(name, None)
        del self._positions[name]
        self._version += 1
        self._names = None
        self._paces.pop(name, None)
        acknowledged = self._acknowledged.pop(name, None)
        if acknowledged is not None and self._continue_caching_ns > 0:
            self._departed[name] = _Departed(acknowledged(), now_ns + self._continue_caching_ns)
        self._changed_at_ns = now_ns
        return True

    def forget(self, name: str) -> None:
        """The cursor will not come back: it was deleted."""
        if self._departed.pop(name, None) is not None:
            self._version += 1

    def position(self, name: str) -> Position | None:
        return self._positions.get(name)

    def rank(self, name: str) -> int:
        """How many cursors stand where this one does or before, itself included; 0 if it has no position."""
        position = self._positions.get(name)
        return 0 if position is None else bisect_right(self._sorted, position)

    def rank_at(self, position: Position) -> int:
        """How many cursors stand at `position` or before: so many will still read an entry there."""
        return bisect_right(self._sorted, position)

    def names_at_or_before(self, position: Position) -> tuple[str, ...]:
        """Who will read an entry there; those without a position count."""
        if not self._sorted or self._sorted[-1] <= position:
            if self._names is None:
                self._names = tuple(self._positions)
            return self._names
        names = self._positions.items()
        return tuple([name for name, stands in names if stands is None or stands <= position])

    def slowest(self) -> Position | None:
        return self._sorted[0] if self._sorted else None

    def expected_from(self, ledger_id: int, now_ns: int) -> int:
        """The lowest entry id of the ledger that a reader is to come for: one that is active, however slow, or one that
        has left and is expected back. NO_LIMIT where nobody is."""
        places = [one.next_read for one in self._departed.values() if one.until_ns > now_ns]
        places += self._sorted[:1]
        if not places or (first := min(places)).ledger_id > ledger_id:
            return NO_LIMIT
        return first.entry_id if first.ledger_id == ledger_id else 0

    def should_cache_added(self, now_ns: int) -> bool:
        """Whether a new entry is worth a place: somebody reads, or somebody did a short while ago."""
        return bool(self._positions) or now_ns - self._changed_at_ns < self._continue_caching_ns

    # For policies that decide by positions

    def view(self, now_ns: int, patience_ns: int) -> ReaderView:
        """The readers as they stand, for one pass or a slice of it. Who has not moved for `patience_ns`, as far
        as earlier views can tell, has stopped. Where no cursor has moved since the last view, that one may serve
        again for up to a tenth of `patience_ns`."""
        view, taken_ns, version = self._last_view
        if version == self._version and now_ns - taken_ns <= patience_ns // 10:
            return view
        view = self._new_view(now_ns, patience_ns)
        self._last_view = (view, now_ns, self._version)
        return view

    def _new_view(self, now_ns: int, patience_ns: int) -> ReaderView:
        reading: list[ReadingAt] = []
        stopped: list[Position] = []
        unacknowledged = LATEST
        for name, position in self._positions.items():
            if position is None:
                continue
            pace = self._paces.get(name)
            if pace is None:
                pace = self._paces[name] = _Pace(position, now_ns)
            else:
                pace.seen_at(position, now_ns)
            if now_ns - pace.moved_ns <= patience_ns:
                reading.append(ReadingAt(position, pace.speed(now_ns)))
            else:
                stopped.append(position)
            acknowledged = self._acknowledged.get(name)
            if acknowledged is not None:
                unacknowledged = min(unacknowledged, acknowledged())
        for name, departed in list(self._departed.items()):
            if departed.until_ns <= now_ns:
                del self._departed[name]
            else:
                reading.append(ReadingAt(departed.next_read, SPEED_GUESS))
                unacknowledged = min(unacknowledged, departed.acknowledged)
        return ReaderView(reading, stopped, unacknowledged)
