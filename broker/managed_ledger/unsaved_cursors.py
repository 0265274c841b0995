"""UnsavedCursors: the cursors of a broker whose latest acknowledgements are not stored yet.

A cursor that may write only once per interval registers here, and the composer calls `write_due` a few times a
second. So thousands of cursors need no timers.
"""

from __future__ import annotations

from collections.abc import Callable

WriteIfDue = Callable[[int], None]
"""`write_if_due` of a cursor's writer: begins the write if the interval has passed, and then removes itself."""


class UnsavedCursors:
    """The writers with changes that are not being written yet."""

    def __init__(self) -> None:
        # A dict, because it keeps the order: the writer that waits longest is called first.
        self._writers: dict[WriteIfDue, None] = {}

    def __len__(self) -> int:
        return len(self._writers)

    def add(self, write_if_due: WriteIfDue) -> None:
        """Calls this writer from now on, until it is removed."""
        self._writers[write_if_due] = None

    def discard(self, write_if_due: WriteIfDue) -> None:
        """Removes the writer; harmless when it is absent."""
        self._writers.pop(write_if_due, None)

    def write_due(self, now_ns: int) -> None:
        """Begins the write of every cursor whose interval has passed."""
        # A copy, because a writer that begins removes itself.
        for write_if_due in tuple(self._writers):
            write_if_due(now_ns)
