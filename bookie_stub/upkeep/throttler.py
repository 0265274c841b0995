"""Throttler: keeps a compaction below a rate (BookKeeper: `Throttler`).

It also ends the compaction when the bookie stops."""

from __future__ import annotations

from threading import Event
from time import monotonic

from bookie_stub.base.errors import BookieError

_PAUSE_S = 0.0002


class CompactionStopped(BookieError):
    """The bookie stops, so a compaction that is copying is given up."""


class Throttler:
    """Paces one compaction. One thread."""

    def __init__(self, per_s: float, stopping: Event, *, in_bytes: bool = False) -> None:
        """`per_s` is a number of records a second, or of bytes; 0 and less set no limit.

        `stopping` is set when the bookie stops.
        """
        self._per_s = per_s
        self._stopping = stopping
        self._in_bytes = in_bytes
        self._due = monotonic()

    def pause(self) -> None:
        """Gives the interpreter to other threads for a moment, whatever the rate. Raises CompactionStopped."""
        if self._stopping.wait(_PAUSE_S):
            raise CompactionStopped("compaction: the bookie stops")

    def acquire(self, size: int) -> None:
        """Waits until the rate allows a record of `size` bytes. Raises CompactionStopped."""
        now = monotonic()
        # Time that was not used is not saved up: a burst after a pause would disturb the adds.
        self._due = max(self._due, now)
        if self._due > now:
            self._stopping.wait(self._due - now)
        if self._stopping.is_set():
            raise CompactionStopped("compaction: the bookie stops")
        if self._per_s > 0:
            self._due += (size if self._in_bytes else 1) / self._per_s
