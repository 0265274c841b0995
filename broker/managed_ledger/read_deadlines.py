"""ReadDeadlines: storage reads that must have ended by some time (`managedLedgerReadEntryTimeoutSeconds`).

All logs of a broker have the same timeout, so the reads stand in the order of their deadlines. No clock and no
timer: the owner calls `fire_due`.
"""

from __future__ import annotations

from typing import Protocol


class Overdue(Protocol):
    def overdue(self) -> None:
        """The time is up."""
        ...


class ReadDeadlines:
    __slots__ = ("_due_ns",)

    def __init__(self) -> None:
        self._due_ns: dict[Overdue, int] = {}

    def __len__(self) -> int:
        return len(self._due_ns)

    def add(self, read: Overdue, due_ns: int) -> None:
        self._due_ns[read] = due_ns

    def remove(self, read: Overdue) -> None:
        """It has ended, or never had a deadline."""
        self._due_ns.pop(read, None)

    def fire_due(self, now_ns: int) -> None:
        while self._due_ns:
            read, due_ns = next(iter(self._due_ns.items()))
            if due_ns > now_ns:
                return
            del self._due_ns[read]
            read.overdue()
