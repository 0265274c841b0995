"""RareLines: keeps a flood of incidents from becoming a flood of log lines."""

from __future__ import annotations

import logging
from collections.abc import Callable


class RareLines:
    """Writes one line of a kind per second; the next one says how many were left out.

    A peer can cause some incidents thousands of times a second, and each line costs more than the incident.
    """

    def __init__(self, log: logging.Logger, now_ns: Callable[[], int]) -> None:
        self._log = log
        self._now_ns = now_ns
        self._next_ns = 0
        self._left_out = 0

    def warning(self, text: str) -> None:
        """Writes the line, or counts it."""
        now_ns = self._now_ns()
        if now_ns < self._next_ns:
            self._left_out += 1
            return
        self._next_ns = now_ns + 10**9
        more = f" ({self._left_out} more lines like this since the last one)" if self._left_out else ""
        self._left_out = 0
        self._log.warning("%s%s", text, more)
