"""ReadDeadlines: reads that fail unless storage answers in time (`managedLedgerReadEntryTimeoutSeconds`).

All managed ledgers of a broker have the same timeout, so the reads stand in the order of their deadlines and only
the first needs a look. No clock and no timer: the composer calls `fire_due` a few times a second.
"""

from __future__ import annotations

from collections.abc import Callable

Overdue = Callable[[], None]
"""Fails a read with ReadTimedOut; an answer that comes later is ignored."""


class ReadDeadlines:
    """Reads that wait for storage, each with its deadline."""

    def __init__(self) -> None:
        self._due_ns: dict[Overdue, int] = {}

    def __len__(self) -> int:
        return len(self._due_ns)

    def add(self, overdue: Overdue, due_ns: int) -> None:
        """Calls `overdue` from `due_ns` on, unless it is removed before."""
        self._due_ns[overdue] = due_ns

    def remove(self, overdue: Overdue) -> None:
        """Forgets a read that has ended; harmless for one without a deadline."""
        self._due_ns.pop(overdue, None)

    def fire_due(self, now_ns: int) -> None:
        """Fails the reads whose time is up."""
        while self._due_ns:
            overdue, due_ns = next(iter(self._due_ns.items()))
            if due_ns > now_ns:
                return
            # Before the call, which may add a deadline for a read of its own.
            del self._due_ns[overdue]
            overdue()
