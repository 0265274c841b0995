"""CursorWatcher: through which a policy hears of the cursors of a log; the policy `magnetar` has one."""

from __future__ import annotations

from typing import Protocol

from foundation.model.position import Position


class AcknowledgingCursor(Protocol):
    """The part of a log's cursor that a policy reads: the cursor itself, so that none needs a function of its own."""

    @property
    def mark_delete_position(self) -> Position:
        """The last position up to which every entry is acknowledged."""
        ...


class CursorWatcher(Protocol):
    """Hears of every change of the active cursors of one log, after it has happened."""

    def added(self, name: str, cursor: AcknowledgingCursor | None) -> None:
        """A cursor became active, or reports again that it is; `moved` may follow."""
        ...

    def moved(self, name: str, before: Position | None, position: Position | None) -> None:
        """A cursor got, changed or lost its position."""
        ...

    def removed(self, name: str, now_ns: int) -> None:
        """A cursor is no longer active."""
        ...

    def forgotten(self, name: str) -> None:
        """A cursor was deleted and will not come back."""
        ...
