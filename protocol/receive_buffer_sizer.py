"""ReceiveBufferSizer: guesses how many bytes the next read of a connection brings.

The algorithm of Netty's AdaptiveRecvByteBufAllocator, decision for decision (golden vectors `adaptive`): a read that fills
the buffer raises the guess by four size classes, two small ones lower it by one. Pure arithmetic, no buffers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

SIZES: Final = (*range(16, 512, 16), *(512 << shift for shift in range(22)))
"""Size classes in bytes: steps of 16 below 512, then doublings up to 1 GiB."""

STEPS_UP: Final = 4
"""Size classes that one full read adds."""


class ReceiveBufferSizer:
    """Guesses the bytes of the next read from the last ones."""

    __slots__ = ("_index", "_index_max", "_index_min", "_received", "_was_small", "guess", "small")

    def __init__(self, minimum: int = 1024, initial: int = 16384, maximum: int = 1048576) -> None:
        """Sizes in bytes, 0 < minimum <= initial <= maximum. ValueError otherwise, or for a maximum below 16."""
        if not 0 < minimum <= initial <= maximum or maximum < SIZES[0]:
            raise ValueError(
                f"receive buffer sizes must rise from minimum to maximum, with a maximum of at least {SIZES[0]}: "
                f"minimum {minimum}, initial {initial}, maximum {maximum}"
            )
        self._index_min = bisect_left(SIZES, minimum)
        self._index_max = bisect_right(SIZES, maximum) - 1
        self._received = 0
        self._was_small = False
        self.small = -1
        """Reads up to this size are small: two in a row lower `guess`."""
        self.guess = minimum
        """Bytes to provide for the next read."""
        self._move(max(bisect_right(SIZES, initial) - 1, 0))
        self.guess = max(self.guess, minimum)

    def record(self, received: int) -> None:
        """Notes one read that is a whole read loop, as with asyncio. One between `small` and `guess` changes nothing."""
        self.read(received, self.guess)
        self.loop_ended()

    def read(self, received: int, offered: int) -> None:
        """Notes one of several reads in a loop; `offered` is the size of its buffer."""
        if received == offered:  # More is waiting, so the next read of this loop is larger already.
            self._learn(received)
        self._received += received

    def loop_ended(self) -> None:
        """Ends a loop of reads: its sum decides about the next guess."""
        self._learn(self._received)
        self._received = 0

    def _learn(self, received: int) -> None:
        if received <= self.small:
            # Two small reads in a row, as in Netty: one short read between large ones must not shrink the buffer.
            if self._was_small:
                self._move(max(self._index - 1, self._index_min))
            else:
                self._was_small = True
        elif received >= self.guess:
            self._move(min(self._index + STEPS_UP, self._index_max))

    def _move(self, index: int) -> None:
        self._index = index
        self._was_small = False
        self.guess = SIZES[index]
        # At the minimum no read is small, since nothing shrinks from there; but of the first size Netty never grows.
        self.small = -1 if index == self._index_min > 0 else SIZES[max(0, index - 1)]
