"""The format of an entry in a compacted ledger, which is Pulsar's.

    uint32 size of the id, MessageIdData (ledger and entry of the original), uint32 size of the rest,
    broker entry metadata block or nothing, body

All numbers are big-endian. The ids rise with the entries of the compacted ledger.
"""

from __future__ import annotations

import struct
from typing import Final

from google.protobuf.message import DecodeError

from foundation.model.entry import Entry
from foundation.model.errors import PersistenceError
from foundation.model.position import Position
from protocol import broker_entry_metadata
from protocol.pulsar_api_pb2 import MessageIdData

_U32: Final = struct.Struct(">I")


def encode_head(position: Position, partition: int, header: bytes, body_bytes: int) -> bytes:
    """Returns everything in front of the body.

    `partition` is the index of the topic among its partitions, -1 for none; `header` the broker entry metadata block.
    """
    packed = MessageIdData(
        ledgerId=position.ledger_id, entryId=position.entry_id, partition=partition
    ).SerializeToString()
    rest = _U32.pack(len(header) + body_bytes)
    return b"".join((_U32.pack(len(packed)), packed, rest, header))


def decode(stored: Entry) -> Entry:
    """Returns the original entry, with its own position. PersistenceError for other bytes."""
    whole = memoryview(stored.body)
    try:
        middle = 4 + _U32.unpack_from(whole)[0]
        found = MessageIdData.FromString(bytes(whole[4:middle]))
        size = _U32.unpack_from(whole, middle)[0]
        rest = whole[middle + 4 :]
        if len(rest) != size:
            raise ValueError(f"{len(rest)} bytes follow instead of {size}")
        header, body = broker_entry_metadata.split(rest)
    except (struct.error, ValueError, DecodeError) as error:
        raise PersistenceError(
            f"entry {stored.ledger_id}:{stored.entry_id} is no entry of a compacted ledger: {error}"
        ) from None
    return Entry(found.ledgerId, found.entryId, header, body, 0)
