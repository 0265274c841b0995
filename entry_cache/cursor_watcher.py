"""CursorWatcher: through which a policy hears of the cursors of a log; the policy `magnetar` has one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from foundation.model.position import Position

Acknowledged = Callable[[], Position]
"""Returns the mark-delete position of a cursor."""


class CursorWatcher(Protocol):
    """Hears of every change of the active cursors of one log, after it has happened."""

    def added(self, name: str, acknowledged: Acknowledged | None) -> None:
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
