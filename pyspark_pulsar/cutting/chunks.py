"""Joins the chunks of messages that were too large for one entry, before anything else is cut.

A chunked message has the position of its last chunk, as in its message id. The frame of that chunk is replaced by one
that holds the whole payload, and the frames of the other chunks are left out. So no later stage knows of chunks.

A message with a chunk that no private key opened gets that chunk's keys, and so counts as encrypted like any other entry.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import NamedTuple

import numpy as np

from protocol.pulsar_api_pb2 import MessageMetadata
from pyspark_pulsar.cutting.entry_table import EntryField, EntryTable
from pyspark_pulsar.cutting.frames import frame_of, frame_with, messages_of, metadata_of
from pyspark_pulsar.cutting.messages import Messages
from pyspark_pulsar.errors import MalformedEntry


class Part(NamedTuple):
    """One chunk of a message."""

    payload: bytes
    """The chunk's part of the message's payload."""
    encryption: MessageMetadata | None
    """The metadata of a chunk that is still encrypted, with the names of its keys; None for a plain one."""


Parts = dict[int, Part]
"""The chunks of one message, by chunk number."""
LookBack = Callable[[int, bytes], Parts | None]
"""Called with an entry's row and the message's uuid; reads the chunks that precede the received range. None for an entry
that came too late for its consumer, and is left out."""


class Chunks:
    """Chunks whose message is incomplete, of all topics of one task."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, bytes], Parts] = {}

    def forget(self, consumer_id: int) -> None:
        """Drops the chunks of a closed consumer; the next consumer of the topic is sent them again."""
        self._waiting = {key: parts for key, parts in self._waiting.items() if key[0] != consumer_id}

    def join(self, messages: Messages, entries: EntryTable, look_back: LookBack) -> Messages:
        """Returns frames of whole messages; `messages` itself if none is in chunks.

        `look_back` is called for a message whose first chunks are missing, because the range begins after them.
        MalformedEntry where chunks are missing even then.
        """
        counts = entries.metadata.numbers(EntryField.CHUNKS)
        if not (counts > 1).any():
            return messages
        numbers = entries.metadata.numbers(EntryField.CHUNK_ID).tolist()
        uuids = entries.metadata.spans(EntryField.UUID)
        encrypted = set(entries.encrypted_rows().tolist())
        frames: list[bytes] = []
        view = memoryview(messages.buffer)
        for row, count in enumerate(counts.tolist()):
            if count <= 1:
                frames.append(frame_of(messages, entries, row))
                continue
            uuid = bytes(view[uuids.starts[row] : uuids.starts[row] + uuids.lengths[row]])
            consumer_id = int(entries.consumer_ids[row])
            parts = self._waiting.setdefault((consumer_id, uuid), {})
            parts[numbers[row]] = _part(messages, entries, row, encrypted)
            if numbers[row] == count - 1:
                del self._waiting[consumer_id, uuid]
                if len(parts) < count:
                    earlier = look_back(row, uuid)
                    if earlier is None:
                        continue
                    parts = {**earlier, **parts}
                frames.append(_whole(messages, entries, row, parts, count))
        return messages_of(frames)


def parts_of(messages: Messages, entries: EntryTable, uuid: bytes) -> Parts:
    """Returns the chunks of the message `uuid` among these entries."""
    numbers = entries.metadata.numbers(EntryField.CHUNK_ID).tolist()
    uuids = entries.metadata.spans(EntryField.UUID)
    encrypted = set(entries.encrypted_rows().tolist())
    view = memoryview(messages.buffer)
    return {
        numbers[row]: _part(messages, entries, row, encrypted)
        for row in np.flatnonzero(uuids.present).tolist()
        if view[uuids.starts[row] : uuids.starts[row] + uuids.lengths[row]] == uuid
    }


def _part(messages: Messages, entries: EntryTable, row: int, encrypted: Set[int]) -> Part:
    payload = bytes(memoryview(messages.buffer)[entries.payload_starts[row] : entries.payload_ends[row]])
    return Part(payload, metadata_of(messages, entries, row) if row in encrypted else None)


def _whole(messages: Messages, entries: EntryTable, row: int, parts: Parts, count: int) -> bytes:
    if len(parts) < count:
        raise MalformedEntry(
            f"entry {entries.ledger_ids[row]}:{entries.entry_ids[row]} is the last of {count} chunks of a message, and "
            f"{count - len(parts)} of the others are missing: start after this entry"
        )
    metadata = metadata_of(messages, entries, row)
    for name in ("num_chunks_from_msg", "total_chunk_msg_size", "chunk_id", "uuid"):
        metadata.ClearField(name)
    closed = next((part.encryption for part in parts.values() if part.encryption is not None), None)
    if closed is not None:
        # Of any chunk: a plain last one must not let the ciphertext of an earlier one pass for the message's payload.
        metadata.ClearField("encryption_keys")
        metadata.encryption_keys.extend(closed.encryption_keys)
    return frame_with(messages, row, metadata, b"".join(parts[number].payload for number in range(count)))
