"""SizedBookieConnection: a connection to a bookie whose reads follow what arrives (`byteBufAllocatorSize…`)."""

from __future__ import annotations

import asyncio

from bookkeeper.client.bookie_connection import FrameCutter, FrameReceiver
from protocol.receive_buffer_sizer import ReceiveBufferSizer


class SizedBookieConnection(FrameCutter, asyncio.BufferedProtocol):
    """asyncio's protocol object of one connection, with Netty's adaptive sizes of reads."""

    def __init__(self, receiver: FrameReceiver, frame_bytes_max: int, sizes: tuple[int, int, int]) -> None:
        """`sizes`: smallest, first and largest read in bytes; the rest as for `FrameCutter`."""
        super().__init__(receiver, frame_bytes_max)
        self._sizer = ReceiveBufferSizer(*sizes)
        self._buffer = memoryview(bytearray(self._sizer.guess))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by the loop before it receives."""
        if len(self._buffer) != self._sizer.guess:
            self._buffer = memoryview(bytearray(self._sizer.guess))
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the loop; delivers every frame that is whole."""
        self._sizer.record(nbytes)
        # Copied, because answers keep slices and the buffer is used again.
        self.data_received(bytes(self._buffer[:nbytes]))
