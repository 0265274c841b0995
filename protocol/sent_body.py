"""Judges the body of a SEND in one look: its checksum, and the chance that it has a delivery time.

Runs once per message, in `ServerCnx`, so both questions share one reading of the head. Pure: no I/O, no clock.
"""

from __future__ import annotations

import struct
from typing import Final

from crc32c import crc32c

from protocol.frame import CHECKSUM_BLOCK_BYTES

CORRUPT: Final = 0
"""The checksum is wrong: the body was damaged on its way."""
PLAIN: Final = 1
"""To be stored; it has no delivery time."""
MAY_BE_DELAYED: Final = 2
"""To be stored; its metadata must be read to know whether it has a delivery time."""

_MAGIC = 0x0E01
_HEAD = struct.Struct(">HII").unpack_from
_HEAD_BYTES = CHECKSUM_BLOCK_BYTES + 4
_U32 = struct.Struct(">I").unpack_from
_DELIVER_AT_TAG = b"\x98\x01"
"""First bytes of the field `deliver_at_time`: field 19, a varint."""


def judge_body(buffer: bytearray, start: int, body: memoryview) -> int:
    """Returns CORRUPT, PLAIN or MAY_BE_DELAYED; `body` begins at `start` of `buffer`.

    A body without a checksum is never corrupt, because Pulsar stores it unchanged. MAY_BE_DELAYED may be wrong: the bytes
    of the field's tag may stand in another field.
    """
    length = len(body)
    if length < _HEAD_BYTES:
        # Too short for metadata. A body that begins like a checksum was cut short, so the checksum cannot match.
        return CORRUPT if length >= CHECKSUM_BLOCK_BYTES and body[0] == 0x0E and body[1] == 0x01 else PLAIN
    magic, checksum, size = _HEAD(buffer, start)
    if magic == _MAGIC:
        # The CRC32C covers the rest of the frame, so a body cut short anywhere fails here.
        if checksum != crc32c(body[CHECKSUM_BLOCK_BYTES:]):
            return CORRUPT
        at = start + _HEAD_BYTES
    else:
        (size,) = _U32(buffer, start)
        at = start + 4
    # In the buffer, because a memoryview has no search. A size that is too large ends with the buffer: at worst a later
    # message has the tag, and the metadata is read in vain.
    return MAY_BE_DELAYED if buffer.find(_DELIVER_AT_TAG, at, at + size) >= 0 else PLAIN
