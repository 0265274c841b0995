"""PublishBuffer: limits the bytes of unconfirmed messages of all connections together.

Above the limit, each connection that brings more is not read any more. All are read again when half of the limit is free:
without the gap, reading would stop and resume with every message.
"""

from __future__ import annotations

from typing import Protocol


class WaitingClient(Protocol):
    """A connection or session that is not read while the buffer is full."""

    def resume_publishing(self) -> None:
        """The buffer has free space again."""
        ...


class PublishBuffer:
    """A counter with a limit, and the connections that wait for it."""

    def __init__(self, bytes_max: int) -> None:
        """`bytes_max`: `maxMessagePublishBufferSizeInMB` in bytes; 0 or less = no limit."""
        self._bytes_max = _limit(bytes_max)
        self._waiting: list[WaitingClient] = []
        self.used_bytes = 0
        """Bytes of unconfirmed messages."""
        self.pauses = 0
        """Times that a connection had to wait, since the start."""

    def resize(self, bytes_max: int) -> None:
        """Sets a new limit. A larger one resumes waiting connections; a smaller one acts on later messages."""
        self._bytes_max = _limit(bytes_max)
        self.give_back(0)

    def take(self, size: int) -> bool:
        """Adds bytes of new messages. Returns True above the limit; the caller must then `wait`."""
        # Counted also above the limit: the bytes are in memory already, so refusing them would save nothing.
        self.used_bytes += size
        return self.used_bytes > self._bytes_max

    def wait(self, client: WaitingClient) -> None:
        """Remembers a connection until half of the limit is free."""
        self.pauses += 1
        self._waiting.append(client)

    def give_back(self, size: int) -> None:
        """Subtracts confirmed bytes and resumes connections at half of the limit."""
        self.used_bytes -= size
        if self._waiting and self.used_bytes <= self._bytes_max // 2:
            # A resumed connection may have to wait again at once.
            waiting, self._waiting = self._waiting, []
            for client in waiting:
                client.resume_publishing()

    def forget(self, client: WaitingClient) -> None:
        """Drops a connection that is closed; ignored for one that does not wait."""
        if client in self._waiting:
            self._waiting.remove(client)


def _limit(bytes_max: int) -> int:
    return bytes_max if bytes_max > 0 else 1 << 62
