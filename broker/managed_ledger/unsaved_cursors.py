"""UnsavedCursors: the cursors of a broker whose latest acknowledgements are not stored yet.

A cursor that may write only once per interval registers here, and the composer calls `write_due` a few times a
second. So thousands of cursors need no timers.
"""

from __future__ import annotations

from typing import Protocol


class UnsavedCursor(Protocol):
    """The writer of one cursor's info."""

    def write_if_due(self, now_ns: int) -> None:
        """Begins the write if the interval has passed; the writer then removes itself from the set."""
        ...


class UnsavedCursors:
    """The writers with changes that are not being written yet."""

    __slots__ = ("_writers",)

    def __init__(self) -> None:
        # A dict, because it keeps the order: the writer that waits longest is called first.
        self._writers: dict[UnsavedCursor, None] = {}

    def __len__(self) -> int:
        return len(self._writers)

    def add(self, writer: UnsavedCursor) -> None:
        """Calls `write_if_due` of this writer from now on, until it is removed."""
        self._writers[writer] = None

    def discard(self, writer: UnsavedCursor) -> None:
        """Removes the writer; harmless when it is absent."""
        self._writers.pop(writer, None)

    def write_due(self, now_ns: int) -> None:
        """Begins the write of every cursor whose interval has passed."""
        # A copy, because a writer that begins removes itself.
        for writer in tuple(self._writers):
            writer.write_if_due(now_ns)
