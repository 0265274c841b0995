"""SizedServedConnection: a connection whose reads follow what arrives (`byteBufAllocatorSize…`).

`BookieServer` imports it where these keys are set. Without them a connection's reads cost nothing more.
"""

from __future__ import annotations

from bookie_stub.wire.connection import ServedConnection, ServerSide
from protocol.receive_buffer_sizer import ReceiveBufferSizer


class SizedServedConnection(ServedConnection):
    """asyncio's side of one client, with Netty's adaptive sizes of reads."""

    def __init__(self, server: ServerSide, sizes: tuple[int, int, int]) -> None:
        """`sizes`: smallest, first and largest read in bytes."""
        super().__init__(server)
        self._sizer = ReceiveBufferSizer(*sizes)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by asyncio before it receives."""
        return super().get_buffer(sizehint)[: self._sizer.guess]

    def buffer_updated(self, nbytes: int) -> None:
        """Called by asyncio when `nbytes` were received."""
        self._sizer.record(nbytes)
        super().buffer_updated(nbytes)
