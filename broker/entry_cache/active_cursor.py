"""ActiveCursor: one reader of a log: where it stands and how fast it reads, as far as anybody has looked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.entry_cache.reader_view import Place
from broker.model.position import Position

SPEED_GUESS: Final = 1000.0
"""Entries a second of a cursor that nobody has seen read yet."""

Acknowledged = Callable[[], Position]
"""The mark-delete position of a cursor."""


class ActiveCursor:
    __slots__ = (
        "_seen_position",
        "_speed",
        "acknowledged",
        "gone",
        "look_soon",
        "moved_ns",
        "name",
        "position",
        "stopped",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.position: Position | None = None
        self.acknowledged: Acknowledged | None = None
        self.gone = False
        """It is no longer active."""
        self.stopped = False
        """It had not moved for a long time when it was last looked at, and has not since."""
        self.look_soon = False
        """It stands in the line of those that are looked at out of turn."""
        self.moved_ns = -1
        """When it was first seen, or last seen at another place than the time before; -1 = never."""
        self._seen_position: Position | None = None
        self._speed = SPEED_GUESS

    def look(self, now_ns: int) -> None:
        """How far it has come since the last look says how fast it is."""
        position, seen = self.position, self._seen_position
        if position is None or position == seen:
            return
        if seen is not None:
            entries = _entries_moved(seen, position)
            if entries and now_ns > self.moved_ns:
                now = entries * 1e9 / (now_ns - self.moved_ns)
                self._speed = (self._speed + now) / 2
        self._seen_position = position
        self.moved_ns = now_ns

    def speed(self, now_ns: int) -> float:
        """Entries a second; one that stands still can be no faster than one entry since it moved."""
        idle_ns = now_ns - self.moved_ns
        return min(self._speed, 1e9 / idle_ns) if idle_ns > 0 else self._speed


class DepartedCursor:
    """A cursor that left and is expected back for a while, to begin behind what it has acknowledged."""

    __slots__ = ("place", "until_ns")

    def __init__(self, name: str, acknowledged: Position, until_ns: int) -> None:
        self.place: Place = (acknowledged.ledger_id, acknowledged.entry_id + 1, name)
        self.until_ns = until_ns


def _entries_moved(before: Position, after: Position) -> int:
    """How far a cursor has come within a ledger; 0 if it went back, or into another one."""
    return max(0, after.entry_id - before.entry_id) if before.ledger_id == after.ledger_id else 0
