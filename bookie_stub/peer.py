"""The connection, as its requests see it: what they cost until they are answered, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from bookie_stub.bookie import Bookie


class Peer(Protocol):
    bookie: Bookie

    def begin_add(self, size: int) -> None:
        """`size` bytes are in hand until `end_add`."""
        ...

    def end_add(self, size: int, answer: bytes) -> None: ...

    def begin_read(self) -> None: ...

    def end_read(self, answer: bytes) -> None: ...

    def send(self, frame: bytes) -> None:
        """For answers that nothing was waited for."""
        ...

    def when_room(self, work: Callable[[], None]) -> None:
        """For requests that have waited: now, or when this connection may ask for more again."""
        ...
