"""The frames that a connection received, as the cutting code reads them: one buffer and where each frame begins.

Lives below `client` and `cutting`, so that the connection can produce it and the cutting code can read it without
importing each other.
"""

from __future__ import annotations

from typing import Final, NamedTuple

SLACK_BYTES: Final = 16
"""Spare bytes after the last frame of a buffer.

`read_varints` reads up to 10 bytes from any start without a bounds check per byte, so a number that a damaged frame
cuts off must still end inside the buffer.
"""


class Messages(NamedTuple):
    """Whole MESSAGE frames in one buffer."""

    buffer: bytearray
    """Belongs to the taker until `Connection.reuse_buffer`; nothing is received into it meanwhile."""
    starts: list[int]
    """The index in `buffer` of each frame's size field, rising."""
