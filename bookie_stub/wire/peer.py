"""The connection as its requests see it: charges and answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from bookie_stub.compose.bookie import Bookie


class Peer(Protocol):
    """Implemented by `ServedConnection`. The requests of both wire versions use nothing else of it."""

    bookie: Bookie
    """Serves the requests."""

    def begin_adds(self, count: int, size: int) -> None:
        """Charges `count` adds of `size` bytes together to the connection until `end_adds`."""
        ...

    def end_adds(self, count: int, size: int, answers: bytes) -> None:
        """Takes the charge off and sends the answers to these adds."""
        ...

    def begin_read(self) -> None:
        """Charges one read to the connection until `end_read`."""
        ...

    def end_read(self, answer: bytes) -> None:
        """Takes the charge off and sends the answer."""
        ...

    def send(self, frame: bytes) -> None:
        """Sends an answer for which nothing was charged."""
        ...

    @property
    def offers_tls(self) -> bool:
        """True while the connection may start TLS. It is configured and not yet in use."""
        ...

    def start_tls(self, answer: bytes) -> None:
        """Sends the last answer in clear text, then begins the TLS handshake."""
        ...

    def when_unblocked(self, work: Callable[[], None]) -> None:
        """Runs `work` as soon as the connection may have another request.

        For requests that have waited in the bookie, such as long polls: thousands may wake together."""
        ...
