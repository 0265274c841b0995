"""The connection, as its requests see it: what they cost until they are answered, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from bookie_stub.compose.bookie import Bookie


class Peer(Protocol):
    bookie: Bookie

    def begin_adds(self, count: int, size: int) -> None:
        """`count` adds with `size` bytes are in hand until `end_adds`."""
        ...

    def end_adds(self, count: int, size: int, answers: bytes) -> None:
        """With the answers to all of them."""
        ...

    def begin_read(self) -> None: ...

    def end_read(self, answer: bytes) -> None: ...

    def send(self, frame: bytes) -> None:
        """For answers that nothing was waited for."""
        ...

    @property
    def offers_tls(self) -> bool:
        """Whether it may go over to TLS, and has not done so."""
        ...

    def go_over_to_tls(self, answer: bytes) -> None:
        """With this as the last thing that is sent in the clear."""
        ...

    def when_room(self, work: Callable[[], None]) -> None:
        """For requests that have waited: now, or when this connection may ask for more again."""
        ...
