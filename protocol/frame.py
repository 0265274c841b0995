"""The byte layout of Pulsar's frames and their checksum.

Simple command:   uint32 total size, uint32 command size, command
Payload command:  the same, then [0x0e02, uint32 size, broker entry metadata] [0x0e01, uint32 CRC32C]
                  uint32 metadata size, metadata, payload
All numbers are big-endian. The total size does not count its own four bytes; the CRC32C covers all that follows it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from google.protobuf.message import Message

from protocol.checksum import crc32c
from protocol.pulsar_api_pb2 import BaseCommand, MessageIdData, MessageMetadata
from protocol.varint import varint

FRAME_PADDING_BYTES: Final = 10 * 1024
"""Bytes that a frame may have above `maxMessageSize`, with its size field (recorded of Pulsar 4.2.4)."""

CHECKSUM_BLOCK_BYTES: Final = 6
"""Length of the magic 0x0e01 with the CRC32C after it."""

SIZES: Final = struct.Struct(">II")
"""Total size and command size, the first 8 bytes of every frame."""
_U32: Final = struct.Struct(">I")


def command_frame(command: BaseCommand) -> bytes:
    """Returns the frame of a command without a message."""
    body = command.SerializeToString()
    return SIZES.pack(len(body) + 4, len(body)) + body


_HEADS: Final[dict[object, bytes]] = {
    field.message_type: b"\x08" + varint(field.number) + varint(field.number << 3 | 2)
    for field in BaseCommand.DESCRIPTOR.fields
    if field.message_type
}
"""By the class of a command: the bytes of a BaseCommand before the size of its command, which are its type and a tag.

In Pulsar's protocol the type is the number of the field.
"""


def frame_of(part: Message) -> bytes:
    """Returns the frame of a command without a message: `part` is one of the `Command…` messages of Pulsar's protocol."""
    body = part.SerializeToString()
    # Not copied into a BaseCommand: that costs as much as all the rest.
    command = _HEADS[part.DESCRIPTOR] + varint(len(body)) + body
    size = len(command)
    return SIZES.pack(size + 4, size) + command


def frame_of_parts(first: Message, parts: Iterable[bytes], last: Message) -> bytes:
    """Returns the frame of a command with a long list, of which the parts are encodings made before.

    By protobuf's rules encodings of one message in a row are one encoding, whose fields are those of all. `first` and `last`
    have the fields before and after the list; `last` has a required one.
    """
    encoded = [first.SerializePartialToString(), *parts, last.SerializePartialToString()]
    head = _HEADS[first.DESCRIPTOR] + varint(sum(map(len, encoded)))
    size = len(head) + sum(map(len, encoded))
    return b"".join([SIZES.pack(size + 4, size), head, *encoded])


def message_id_of(
    entry: tuple[int, int], partition: int | None = None, batch_index: int | None = None
) -> MessageIdData:
    """Returns the id of an entry (ledger id, entry id) as commands have it; -1 stands for "before everything"."""
    ledger_id, entry_id = (number & 0xFFFF_FFFF_FFFF_FFFF for number in entry)
    return MessageIdData(ledgerId=ledger_id, entryId=entry_id, partition=partition, batch_index=batch_index)


def message_body(metadata: MessageMetadata, payload: bytes) -> bytes:
    """Returns the bytes that follow a SEND command: checksum, metadata, payload."""
    return assemble_body(metadata.SerializeToString(), payload, checksum=True)


def assemble_body(metadata: bytes, payload: bytes, *, checksum: bool) -> bytes:
    """Returns the bytes that follow a SEND command, from encoded metadata; older clients send no checksum."""
    covered = _U32.pack(len(metadata)) + metadata + payload
    return b"\x0e\x01" + _U32.pack(crc32c(covered)) + covered if checksum else covered


def has_checksum(body: bytes | memoryview) -> bool:
    """Returns True when an entry's body begins with a checksum."""
    return len(body) >= CHECKSUM_BLOCK_BYTES and body[0] == 0x0E and body[1] == 0x01


def metadata_span(body: bytes | memoryview) -> tuple[int, int]:
    """Returns the offsets of start and end of the message metadata.

    ValueError when the body is shorter than its sizes say.
    """
    at = CHECKSUM_BLOCK_BYTES if has_checksum(body) else 0
    if len(body) < at + 4:
        raise ValueError(
            f"message body of {len(body)} bytes; at least {at + 4} are needed for the metadata size"
        )
    size: int = _U32.unpack_from(body, at)[0]
    start = at + 4
    if start + size > len(body):
        raise ValueError(f"metadata of {size} bytes in a message of {len(body)}")
    return start, start + size
