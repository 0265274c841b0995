"""Reads from an entry what compaction must know: the key and the size of each message in it.

An entry is a single message, a chunk of one, a batch, or opaque. Opaque entries cannot be looked into: batches of encrypted
messages, and bytes that are no valid message. Compaction copies them whole.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from broker.compaction.codecs import unpack
from protocol.errors import ProtocolError
from protocol.frame import metadata_span
from protocol.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata

_U32: Final = struct.Struct(">I")

MessageKey = str | bytes | None
"""A partition key; `bytes` when it is not UTF-8, None for a message without one."""


class Chunk(NamedTuple):
    """The place of a chunk in its message."""

    uuid: str | bytes
    """Equal in all chunks of a message."""
    is_last: bool
    """True when the chunk completes the message."""


class EntryContent(NamedTuple):
    """The messages of one entry, those left out that an earlier compaction has removed."""

    messages: list[tuple[MessageKey, int]]
    """(key, payload bytes) of each; 0 bytes delete the key."""
    chunk: Chunk | None = None
    """None for a whole message or a batch."""


class BatchMessage(NamedTuple):
    """One message of a batch."""

    single: SingleMessageMetadata
    """Its own metadata."""
    start: int
    """Offset of its size field in the unpacked batch."""
    end: int
    """Offset of the end of its payload."""


NOTHING: Final = EntryContent([])
"""A marker of the broker's own, which no client gets."""


def read_content(body: bytes | memoryview) -> EntryContent | None:
    """Returns the messages of an entry, None for an opaque one."""
    try:
        metadata, payload = read_entry(body)
        if metadata.HasField("marker_type"):
            return NOTHING
        if not metadata.HasField("num_messages_in_batch"):
            return _single(metadata, len(payload))
        if metadata.encryption_keys:
            return None
        return EntryContent(_keys_and_sizes(metadata, unpacked(metadata, payload)))
    except ProtocolError:
        return None


def _single(metadata: MessageMetadata, payload_bytes: int) -> EntryContent:
    # The payload may be compressed or encrypted, so an empty one may have bytes; the client's own count decides.
    size = metadata.uncompressed_size if metadata.HasField("uncompressed_size") else payload_bytes
    key = metadata.partition_key if metadata.HasField("partition_key") else None
    chunks = metadata.num_chunks_from_msg
    if chunks > 1 and metadata.HasField("uuid"):
        return EntryContent([(key, size)], Chunk(metadata.uuid, metadata.chunk_id >= chunks - 1))
    return EntryContent([(key, size)])


def _keys_and_sizes(metadata: MessageMetadata, plain: bytes) -> list[tuple[MessageKey, int]]:
    """Returns (key, payload bytes) of the messages of a batch. ProtocolError when the batch is damaged."""
    # As `batch_messages`, written out: this is the loop over all messages of a topic, and takes two thirds of the time.
    parse, size_at = SingleMessageMetadata.FromString, _U32.unpack_from
    found: list[tuple[MessageKey, int]] = []
    start, length = 0, len(plain)
    try:
        for _ in range(metadata.num_messages_in_batch):
            middle = start + 4 + size_at(plain, start)[0]
            single = parse(plain[start + 4 : middle])
            size = single.payload_size
            start = middle + size
            if not middle <= start <= length:
                raise ProtocolError(f"a message of {size} bytes leaves its batch")
            if not single.compacted_out:
                key = single.partition_key
                # An empty key is a key; only here the presence of the field tells it from none.
                found.append((key if key or single.HasField("partition_key") else None, size))
    except (struct.error, DecodeError) as error:
        raise ProtocolError(f"a batch is damaged: {error}") from None
    return found


def read_entry(body: bytes | memoryview) -> tuple[MessageMetadata, memoryview]:
    """Returns the metadata and the payload of an entry. ProtocolError when the body is no message."""
    try:
        start, end = metadata_span(body)
        return MessageMetadata.FromString(bytes(body[start:end])), memoryview(body)[end:]
    except (ValueError, DecodeError) as error:
        raise ProtocolError(f"unreadable message metadata: {error}") from None


def unpacked(metadata: MessageMetadata, payload: memoryview) -> bytes:
    """Returns the decompressed payload of a batch. ProtocolError when it cannot be decompressed."""
    return unpack(metadata.compression, payload, metadata.uncompressed_size)


def batch_messages(metadata: MessageMetadata, plain: bytes) -> list[BatchMessage]:
    """Returns the messages of an unpacked batch in order. ProtocolError when the batch is damaged."""
    parse, size_at = SingleMessageMetadata.FromString, _U32.unpack_from
    messages: list[BatchMessage] = []
    start = 0
    try:
        for _ in range(metadata.num_messages_in_batch):
            middle = start + 4 + size_at(plain, start)[0]
            single = parse(plain[start + 4 : middle])
            end = middle + single.payload_size
            if not middle <= end <= len(plain):
                raise ProtocolError(f"a message of {single.payload_size} bytes at {start} leaves its batch")
            messages.append(BatchMessage(single, start, end))
            start = end
    except (struct.error, DecodeError) as error:
        raise ProtocolError(f"a batch is damaged at offset {start}: {error}") from None
    return messages
