"""ReadingCursor: how fast one cursor reads and when it moved last, as far as views have looked at it."""

from __future__ import annotations

from typing import Final

from entry_cache.active_cursors import CursorPlace
from entry_cache.cursor_watcher import AcknowledgingCursor
from foundation.model.position import Position

SPEED_GUESS: Final = 1000.0
"""Entries per second of a cursor that was not seen reading yet."""


class ReadingCursor:
    """One active cursor, for `LogReaders`; its position stands in `ActiveCursors`."""

    __slots__ = (
        "_seen_position",
        "_speed",
        "look_soon",
        "moved_ns",
        "name",
        "of_log",
        "removed",
        "stopped",
    )

    def __init__(self, name: str) -> None:
        """Begins with a guessed speed."""
        self.name = name
        """The cursor's name, unique within the log."""
        self.of_log: AcknowledgingCursor | None = None
        """The log's cursor, which knows its mark-delete position; None if the log did not say, or after the removal."""
        self.removed = False
        """True once the cursor is no longer active."""
        self.stopped = False
        """True if it had not moved for a long time at the last check, and has not moved since."""
        self.look_soon = False
        """True while it stands in the queue of cursors that the next view looks at first."""
        self.moved_ns = -1
        """When a look found it at another place than the look before; -1 = never."""
        self._seen_position: Position | None = None
        self._speed = SPEED_GUESS

    def look(self, position: Position, now_ns: int) -> None:
        """Measures the speed by how far the cursor has come since the last check."""
        seen = self._seen_position
        # `moved_ns` stays: it must tell since when the cursor stands here, or a stopped cursor would never be
        # found.
        if position == seen:
            return
        if seen is not None:
            entries = _entries_moved(seen, position)
            # A jump back or into another ledger says nothing about speed, and two checks at one time would
            # divide by zero.
            if entries and now_ns > self.moved_ns:
                speed = entries * 1e9 / (now_ns - self.moved_ns)
                # Half of the old speed stays, so that one late batch does not reorder all victims.
                self._speed = (self._speed + speed) / 2
        self._seen_position = position
        self.moved_ns = now_ns

    def speed(self, now_ns: int) -> float:
        """Returns entries per second; a cursor that stands still reads at most one entry in the time since it moved."""
        idle_ns = now_ns - self.moved_ns
        # Without this limit a consumer that stopped a minute ago would still count as the next to come.
        return min(self._speed, 1e9 / idle_ns) if idle_ns > 0 else self._speed


class DepartedCursor:
    """A cursor that left and is expected back for a while."""

    __slots__ = ("left_ns", "place")

    def __init__(self, name: str, acknowledged: Position, left_ns: int) -> None:
        """The cursor would begin again after `acknowledged`, its mark-delete position."""
        self.place: CursorPlace = (acknowledged.ledger_id, acknowledged.entry_id + 1, name)
        """The position where it would begin again, and its name."""
        self.left_ns = left_ns
        """When it left. How long it is expected since then may change at run time."""


def _entries_moved(before: Position, after: Position) -> int:
    """Returns how far a cursor has come within a ledger; 0 if it went back, or into another ledger."""
    return max(0, after.entry_id - before.entry_id) if before.ledger_id == after.ledger_id else 0
