"""Takes MESSAGE frames apart and puts them together, for the few entries whose payload is not what the frame holds.

Used for chunks and for encrypted entries. All others are cut in place, see `entry_table`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import numpy as np

from protocol.pulsar_api_pb2 import MessageMetadata
from pyspark_pulsar.cutting.entry_table import EntryTable
from pyspark_pulsar.cutting.messages import SLACK_BYTES, Messages

_sizes: Final = struct.Struct(">II")
_u32: Final = struct.Struct(">I")


def frame_of(messages: Messages, entries: EntryTable, row: int) -> bytes:
    """Returns the whole frame of an entry."""
    return bytes(memoryview(messages.buffer)[messages.starts[row] : entries.payload_ends[row]])


def metadata_of(messages: Messages, entries: EntryTable, row: int) -> MessageMetadata:
    """Returns the metadata of an entry as a protobuf message."""
    start, end = int(entries.metadata_starts[row]), int(entries.payload_starts[row])
    return MessageMetadata.FromString(bytes(memoryview(messages.buffer)[start:end]))


def frame_with(messages: Messages, row: int, metadata: MessageMetadata, payload: bytes) -> bytes:
    """Returns the frame of an entry with other metadata and another payload, without a checksum."""
    buffer, start = messages.buffer, messages.starts[row]
    command_size = _u32.unpack_from(buffer, start + 4)[0]
    command = bytes(memoryview(buffer)[start + 8 : start + 8 + command_size])
    packed = metadata.SerializeToString()
    body = _u32.pack(len(packed)) + packed + payload
    return _sizes.pack(4 + len(command) + len(body), len(command)) + command + body


def messages_of(frames: Sequence[bytes]) -> Messages:
    """Returns frames in one buffer, as a connection would have received them."""
    starts = np.cumsum([0, *(len(frame) for frame in frames)])[:-1].tolist()
    return Messages(bytearray(b"".join(frames) + bytes(SLACK_BYTES)), starts)
