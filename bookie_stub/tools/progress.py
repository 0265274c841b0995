"""Progress: prints about once a second how far long work has come."""

from __future__ import annotations

import time
from collections.abc import Callable

from foundation.units import MIB

Say = Callable[[str], None]
"""Prints one line for the operator."""
_EVERY_S = 1.0


class Progress:
    """Counts things and bytes of one long task."""

    def __init__(self, task: str, unit: str, say: Say, of_bytes: int = 0) -> None:
        """`unit` names the things counted; `of_bytes` is the expected total, 0 when it is not known."""
        self._task, self._unit, self._say = task, unit, say
        self._of_bytes = of_bytes
        self._began = self._said = time.monotonic()
        self.count = 0
        """Things so far."""
        self.bytes = 0
        """Bytes so far."""

    def add(self, count: int, size: int) -> None:
        """Counts `count` things of `size` bytes together. It prints a line if a second has passed."""
        self.count += count
        self.bytes += size
        now = time.monotonic()
        if now - self._said >= _EVERY_S:
            self._said = now
            share = f", {100 * self.bytes / self._of_bytes:.0f} %" if self._of_bytes else ""
            self._say(f"{self._task}: {self.text()}{share}")

    def text(self) -> str:
        """Returns things, bytes, seconds and speed so far."""
        elapsed_s = max(time.monotonic() - self._began, 1e-6)
        return (
            f"{self.count:,} {self._unit}, {self.bytes / MIB:,.1f} MiB in {elapsed_s:.1f} s,"
            f" {self.bytes / 1e6 / elapsed_s:,.1f} MB/s"
        )
