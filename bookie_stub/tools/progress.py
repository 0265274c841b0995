"""How far long work has come, said about once a second: amount, bytes, speed."""

from __future__ import annotations

import time
from collections.abc import Callable

Say = Callable[[str], None]
_EVERY_S = 1.0
_MIB = 1 << 20


class Progress:
    def __init__(self, what: str, unit: str, say: Say, of_bytes: int = 0) -> None:
        """`of_bytes`: how many there will be; 0 when that is not known."""
        self._what, self._unit, self._say = what, unit, say
        self._of_bytes = of_bytes
        self._began = self._said = time.monotonic()
        self.count = 0
        self.bytes = 0

    def add(self, count: int, size: int) -> None:
        self.count += count
        self.bytes += size
        now = time.monotonic()
        if now - self._said >= _EVERY_S:
            self._said = now
            share = f", {100 * self.bytes / self._of_bytes:.0f} %" if self._of_bytes else ""
            self._say(f"{self._what}: {self.text()}{share}")

    def text(self) -> str:
        elapsed_s = max(time.monotonic() - self._began, 1e-6)
        return (
            f"{self.count:,} {self._unit}, {self.bytes / _MIB:,.1f} MiB in {elapsed_s:.1f} s,"
            f" {self.bytes / 1e6 / elapsed_s:,.1f} MB/s"
        )
