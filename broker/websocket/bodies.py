"""Builds the entries of published messages, and takes delivered entries apart. Pure."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.compaction.codecs import pack, unpack
from broker.compaction.entry_content import batch_messages, read_entry, unpacked
from broker.websocket.json_forms import NO_INDEX, DeliveredMetadata, SendRequest, encryption_context
from foundation.model.entry import Entry
from protocol.frame import message_body
from protocol.given_message import describe, describe_single
from protocol.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata

_U32: Final = struct.Struct(">I")


class Sender(NamedTuple):
    """Facts that all messages of a producer have in common."""

    producer_name: str
    """Name on the topic."""
    compression: int
    """Number of CompressionType."""


def single_body(sender: Sender, sequence_id: int, now_ms: int, request: SendRequest) -> bytes:
    """Returns the body of an entry with one message."""
    metadata = _metadata(sender, sequence_id, now_ms, len(request.payload))
    describe(metadata, request)
    return message_body(metadata, pack(sender.compression, request.payload))


def batch_body(sender: Sender, first_sequence_id: int, now_ms: int, requests: Sequence[SendRequest]) -> bytes:
    """Returns the body of an entry with several messages."""
    parts: list[bytes] = []
    for number, request in enumerate(requests):
        single = SingleMessageMetadata(
            payload_size=len(request.payload), sequence_id=first_sequence_id + number
        )
        describe_single(single, request)
        head = single.SerializeToString()
        parts += (_U32.pack(len(head)), head, request.payload)
    plain = b"".join(parts)
    metadata = _metadata(sender, first_sequence_id, now_ms, len(plain))
    metadata.num_messages_in_batch = len(requests)
    metadata.highest_sequence_id = first_sequence_id + len(requests) - 1
    metadata.replicate_to.extend(requests[0].replicate_to)
    return message_body(metadata, pack(sender.compression, plain))


def _metadata(sender: Sender, sequence_id: int, now_ms: int, size: int) -> MessageMetadata:
    return MessageMetadata(
        producer_name=sender.producer_name,
        sequence_id=sequence_id,
        publish_time=now_ms,
        uncompressed_size=size,
        compression=sender.compression,  # type: ignore[arg-type]  # A number of the enumeration, checked before.
    )


class Message(NamedTuple):
    """One message of an entry."""

    place: int
    """Its place in the batch, -1 outside of one."""
    payload: bytes
    """Decompressed, unless it is encrypted."""
    metadata: DeliveredMetadata
    """For the client."""


class Contents(NamedTuple):
    """The messages of an entry that are to be delivered."""

    messages: list[Message]
    """In their order."""
    batch_size: int
    """Messages of the batch with those that are acknowledged; 0 = no batch."""
    encrypted: bool
    """True when the payload is one message that the broker cannot read."""
    chunk: tuple[str, int, int] | None
    """(id of the large message, number of this part, parts) of a chunk."""


def contents_of(entry: Entry, ack_set: Sequence[int]) -> Contents:
    """Returns the messages of an entry, those left out that `ack_set` has as acknowledged.

    ProtocolError for an entry that is no message of Pulsar.
    """
    metadata, payload = read_entry(entry.body)
    if metadata.encryption_keys:
        message = Message(NO_INDEX, bytes(payload), _delivered(metadata, metadata))
        return Contents([message], 0, encrypted=True, chunk=None)
    if not metadata.HasField("num_messages_in_batch"):
        chunk = None
        if metadata.num_chunks_from_msg > 1:
            # The parts of a compressed message were cut after its compression.
            chunk = (str(metadata.uuid), metadata.chunk_id, metadata.num_chunks_from_msg)
            plain = bytes(payload)
        else:
            plain = unpack(metadata.compression, payload, metadata.uncompressed_size)
        return Contents(
            [Message(NO_INDEX, plain, _delivered(metadata, metadata))], 0, encrypted=False, chunk=chunk
        )
    plain = unpacked(metadata, payload)
    messages = []
    for index, (single, _, end) in enumerate(batch_messages(metadata, plain)):
        if single.compacted_out or (ack_set and not ack_set[index // 64] >> index % 64 & 1):
            continue
        messages.append(Message(index, plain[end - single.payload_size : end], _delivered(metadata, single)))
    return Contents(messages, metadata.num_messages_in_batch, encrypted=False, chunk=None)


def unpack_chunks(entry: Entry, parts: Sequence[bytes]) -> bytes:
    """Returns the payload of a message that came in parts; `entry` is the last one."""
    metadata, _ = read_entry(entry.body)
    return unpack(metadata.compression, memoryview(b"".join(parts)), metadata.uncompressed_size)


def _delivered(
    metadata: MessageMetadata, message: MessageMetadata | SingleMessageMetadata
) -> DeliveredMetadata:
    """Returns the part that clients get; `message` is that of one message in a batch, else `metadata` again."""
    return DeliveredMetadata(
        properties={pair.key: pair.value for pair in message.properties},
        publish_time_ms=metadata.publish_time,
        event_time_ms=message.event_time,
        key=message.partition_key if message.HasField("partition_key") else None,
        encryption=encryption_context(metadata),
    )
