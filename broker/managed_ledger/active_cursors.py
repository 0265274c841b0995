"""ActiveCursors: which cursors of a managed ledger are readers to come, and how many are behind a position.

The number of active cursors is the count of expected reads of a new entry; the rank of a cursor, the number
of cursors at its position or before, is the count for entries that it reads from storage (PIP-430). Ranks
are exact at every moment: positions stand in one sorted list, and nothing is put off.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort

from broker.model.position import Position


class ActiveCursors:
    __slots__ = ("_changed_at_ns", "_continue_caching_ns", "_positions", "_sorted")

    def __init__(self, continue_caching_ns: int, now_ns: int) -> None:
        """`continue_caching_ns`: how long new entries are cached after the last cursor left; 0 or less = not."""
        self._continue_caching_ns = continue_caching_ns
        self._changed_at_ns = now_ns
        self._positions: dict[str, Position | None] = {}
        self._sorted: list[Position] = []

    def __len__(self) -> int:
        """Cursors, with those that have no position."""
        return len(self._positions)

    def __contains__(self, name: str) -> bool:
        return name in self._positions

    def add(self, name: str, position: Position | None) -> None:
        """A cursor becomes active; without a position it counts as a reader but has no rank."""
        self._positions.setdefault(name, None)
        self.update(name, position)

    def update(self, name: str, position: Position | None) -> None:
        """The cursor has moved, forward or back, or lost its position. Ignored unless it is active."""
        before = self._positions.get(name)
        if before == position or name not in self._positions:
            return
        self._positions[name] = position
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
        self._changed_at_ns = now_ns
        return True

    def position(self, name: str) -> Position | None:
        return self._positions.get(name)

    def rank(self, name: str) -> int:
        """How many cursors stand where this one does or before, itself included; 0 if it has no position."""
        position = self._positions.get(name)
        return 0 if position is None else bisect_right(self._sorted, position)

    def rank_at(self, position: Position) -> int:
        """How many cursors stand at `position` or before: so many will still read an entry there."""
        return bisect_right(self._sorted, position)

    def slowest(self) -> Position | None:
        return self._sorted[0] if self._sorted else None

    def should_cache_added(self, now_ns: int) -> bool:
        """Whether a new entry is worth a place: somebody reads, or somebody did a short while ago."""
        return bool(self._positions) or now_ns - self._changed_at_ns < self._continue_caching_ns
