"""Judges the body of a SEND in one pass: its checksum, and the chance of a delivery time or a transaction.

Runs once per message, in `ServerCnx`, so all questions share one reading of the head. Pure: no I/O, no clock.
"""

from __future__ import annotations

import re
import struct
from enum import Enum

from protocol.checksum import crc32c
from protocol.frame import CHECKSUM_BLOCK_BYTES


class Judgement(Enum):
    """The judgement of a body: whether it may be stored, and what must be read of it first."""

    CORRUPT = "corrupt"
    """The checksum is wrong: the body was damaged on its way."""
    PLAIN = "plain"
    """To be stored; it has no delivery time and names no transaction."""
    MAY_BE_DELAYED = "may be delayed"
    """To be stored; its metadata must be read to know whether it has a delivery time."""
    MAY_NAME_TRANSACTION = "may name a transaction"
    """The metadata of the body must be read to know whether it names a transaction; it may have a delivery time too."""


# Once: a member that is asked of its enum costs 90 ns, and each message would ask for four.
_PLAIN = Judgement.PLAIN
_MAGIC = 0x0E01
_HEAD = struct.Struct(">HII").unpack_from
_HEAD_BYTES = CHECKSUM_BLOCK_BYTES + 4
_U32 = struct.Struct(">I").unpack_from
_DELIVER_AT_BYTE = b"\x98"
"""First byte of the field `deliver_at_time`: field 19, a varint. Searching one byte costs half as much as two."""
_DELIVER_AT_TAG = b"\x98\x01"
"""First bytes of that field."""
_TRANSACTION_BYTE = b"\xb8"
"""First byte of the field `txnid_most_bits`: field 23, a varint."""
_TRANSACTION_TAG = re.compile(rb"\xb8(?:\x01|\x81)").search
"""Finds that field. protobuf reads the number 1 with trailing empty groups too, so 0x81 may begin it."""


def judge_body(buffer: bytearray, start: int, body: memoryview) -> Judgement:
    """Returns what is to be done with `body`, which begins at `start` of `buffer`.

    A body without a checksum is never corrupt, because Pulsar stores it unchanged. MAY_BE_DELAYED and
    MAY_NAME_TRANSACTION may be wrong: the bytes of the field's tag may stand in another field. PLAIN is right, but for
    a delivery time whose tag no client writes so.
    """
    length = len(body)
    if length < _HEAD_BYTES:
        # Too short for metadata. A body that begins like a checksum was cut short, so the checksum cannot match.
        return (
            Judgement.CORRUPT
            if length >= CHECKSUM_BLOCK_BYTES and body[0] == 0x0E and body[1] == 0x01
            else Judgement.PLAIN
        )
    magic, checksum, size = _HEAD(buffer, start)
    if magic == _MAGIC:
        # The CRC32C covers the rest of the frame, so a body cut short anywhere fails here.
        if checksum != crc32c(body[CHECKSUM_BLOCK_BYTES:]):
            return Judgement.CORRUPT
        at = start + _HEAD_BYTES
    else:
        (size,) = _U32(buffer, start)
        at = start + 4
    # In the buffer, because a memoryview has no search. A size that is too large ends with the buffer: at worst a later
    # message has the tag, and the metadata is read in vain.
    end = at + size
    if buffer.find(_TRANSACTION_BYTE, at, end) >= 0 and _TRANSACTION_TAG(buffer, at, end):
        return Judgement.MAY_NAME_TRANSACTION
    if buffer.find(_DELIVER_AT_BYTE, at, end) >= 0 and buffer.find(_DELIVER_AT_TAG, at, end) >= 0:
        return Judgement.MAY_BE_DELAYED
    return _PLAIN
