"""Joins the chunks of messages that were too large for one entry, before anything else is cut.

A chunked message has the position of its last chunk, as in its message id. The frame of that chunk is replaced by one
that holds the whole payload, and the frames of the other chunks are left out. So no later stage knows of chunks.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

import numpy as np

from protocol.pulsar_api_pb2 import MessageMetadata
from pyspark_pulsar.cutting.entry_table import EntryField, EntryTable
from pyspark_pulsar.cutting.messages import SLACK_BYTES, Messages
from pyspark_pulsar.errors import MalformedEntry

_sizes: Final = struct.Struct(">II")
_u32: Final = struct.Struct(">I")

Parts = dict[int, bytes]
"""Payloads of the chunks of one message, by chunk number."""
LookBack = Callable[[int, bytes], Parts]
"""Called with an entry's row and the message's uuid; reads the chunks that precede the received range."""


class Chunks:
    """Chunks whose message is incomplete, of all topics of one task."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, bytes], Parts] = {}

    def forget(self, consumer_id: int) -> None:
        """Drops the chunks of a closed consumer; the next consumer of the topic is sent them again."""
        self._waiting = {key: parts for key, parts in self._waiting.items() if key[0] != consumer_id}

    def join(self, messages: Messages, entries: EntryTable, look_back: LookBack) -> Messages:
        """Returns frames of whole messages; `messages` itself if none is in chunks.

        `look_back` is called for a message whose first chunks are missing, because the range begins behind them.
        MalformedEntry where chunks are missing even then.
        """
        counts = entries.metadata.numbers(EntryField.CHUNKS)
        if not (counts > 1).any():
            return messages
        numbers = entries.metadata.numbers(EntryField.CHUNK_ID).tolist()
        uuids = entries.metadata.spans(EntryField.UUID)
        frames: list[bytes] = []
        view = memoryview(messages.buffer)
        for row, count in enumerate(counts.tolist()):
            if count <= 1:
                frames.append(bytes(view[messages.starts[row] : entries.payload_ends[row]]))
                continue
            uuid = bytes(view[uuids.starts[row] : uuids.starts[row] + uuids.lengths[row]])
            consumer_id = int(entries.consumer_ids[row])
            parts = self._waiting.setdefault((consumer_id, uuid), {})
            parts[numbers[row]] = bytes(view[entries.payload_starts[row] : entries.payload_ends[row]])
            if numbers[row] == count - 1:
                del self._waiting[consumer_id, uuid]
                if len(parts) < count:
                    parts = {**look_back(row, uuid), **parts}
                frames.append(_whole(messages, entries, row, parts, count))
        starts = np.cumsum([0, *(len(frame) for frame in frames)])[:-1].tolist()
        return Messages(bytearray(b"".join(frames) + bytes(SLACK_BYTES)), starts)


def parts_of(messages: Messages, entries: EntryTable, uuid: bytes) -> Parts:
    """Returns the chunks of the message `uuid` among these entries."""
    numbers = entries.metadata.numbers(EntryField.CHUNK_ID).tolist()
    uuids = entries.metadata.spans(EntryField.UUID)
    view = memoryview(messages.buffer)
    return {
        numbers[row]: bytes(view[entries.payload_starts[row] : entries.payload_ends[row]])
        for row in np.flatnonzero(uuids.present).tolist()
        if view[uuids.starts[row] : uuids.starts[row] + uuids.lengths[row]] == uuid
    }


def _whole(messages: Messages, entries: EntryTable, row: int, parts: Parts, count: int) -> bytes:
    if len(parts) < count:
        raise MalformedEntry(
            f"entry {entries.ledger_ids[row]}:{entries.entry_ids[row]} is the last of {count} chunks of a message, and "
            f"{count - len(parts)} of the others are missing: start behind this entry"
        )
    buffer, start = messages.buffer, messages.starts[row]
    command_size = _u32.unpack_from(buffer, start + 4)[0]
    command = bytes(buffer[start + 8 : start + 8 + command_size])
    metadata_size = _u32.unpack_from(buffer, int(entries.metadata_starts[row]) - 4)[0]
    metadata_start = int(entries.metadata_starts[row])
    metadata = MessageMetadata.FromString(bytes(buffer[metadata_start : metadata_start + metadata_size]))
    for name in ("num_chunks_from_msg", "total_chunk_msg_size", "chunk_id", "uuid"):
        metadata.ClearField(name)
    packed = metadata.SerializeToString()
    body = _u32.pack(len(packed)) + packed + b"".join(parts[number] for number in range(count))
    return _sizes.pack(4 + len(command) + len(body), len(command)) + command + body
