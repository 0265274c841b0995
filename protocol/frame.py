"""The byte layout of Pulsar's frames and their checksum.

Simple command:   uint32 total size, uint32 command size, command
Payload command:  the same, then [0x0e02, uint32 size, broker entry metadata] [0x0e01, uint32 CRC32C]
                  uint32 metadata size, metadata, payload
All numbers are big-endian. The total size does not count its own four bytes; the CRC32C covers all that follows it.
"""

from __future__ import annotations

import struct
from typing import Final

from protocol.checksum import crc32c
from protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata

FRAME_PADDING_BYTES: Final = 10 * 1024
"""Bytes that a frame may have above `maxMessageSize`, with its size field (recorded of Pulsar 4.2.4)."""

CHECKSUM_BLOCK_BYTES: Final = 6
"""Length of the magic 0x0e01 with the CRC32C behind it."""

SIZES: Final = struct.Struct(">II")
"""Total size and command size, the first 8 bytes of every frame."""
_U32: Final = struct.Struct(">I")


def command_frame(command: BaseCommand) -> bytes:
    """Returns the frame of a command without a message."""
    body = command.SerializeToString()
    return SIZES.pack(len(body) + 4, len(body)) + body


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
