"""PublishBuffer: bytes of messages that all connections together have taken and not yet confirmed.

Over the limit every connection that brings more stops being read; when half is free again all are read on.
"""

from __future__ import annotations

from typing import Protocol


class Reader(Protocol):
    def resume_publishing(self) -> None: ...


class PublishBuffer:
    __slots__ = ("_bytes_max", "_waiting", "pauses", "used_bytes")

    def __init__(self, bytes_max: int) -> None:
        """`bytes_max` 0 or less: no limit."""
        self._bytes_max = _limit(bytes_max)
        self._waiting: list[Reader] = []
        self.used_bytes = 0
        self.pauses = 0

    def resize(self, bytes_max: int) -> None:
        """What waits and fits now goes on; what is in work and does not fit any more stays."""
        self._bytes_max = _limit(bytes_max)
        self.give_back(0)

    def take(self, size: int) -> bool:
        """True: the limit is reached, the caller must `wait`."""
        self.used_bytes += size
        return self.used_bytes > self._bytes_max

    def wait(self, reader: Reader) -> None:
        self.pauses += 1
        self._waiting.append(reader)

    def give_back(self, size: int) -> None:
        self.used_bytes -= size
        if self._waiting and self.used_bytes <= self._bytes_max // 2:
            waiting, self._waiting = self._waiting, []
            for reader in waiting:
                reader.resume_publishing()

    def forget(self, reader: Reader) -> None:
        if reader in self._waiting:
            self._waiting.remove(reader)


def _limit(bytes_max: int) -> int:
    return bytes_max if bytes_max > 0 else 1 << 62
