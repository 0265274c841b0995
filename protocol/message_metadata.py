"""The few fields of MessageMetadata that a broker asks for, read once per entry and then carried."""

from __future__ import annotations

import base64
import binascii

from google.protobuf.message import DecodeError

from protocol.errors import ProtocolError
from protocol.frame import metadata_span
from protocol.pulsar_api_pb2 import MessageMetadata

NO_KEY = b"NONE_KEY"
"""What Pulsar hashes for a message without a key, so that all of them go to one Key_Shared consumer."""


class MessageFacts:
    __slots__ = (
        "batched",
        "chunk",
        "chunks",
        "deliver_at_ms",
        "encrypted",
        "highest_sequence_id",
        "key",
        "messages",
        "producer_name",
        "publish_time_ms",
        "sequence_id",
    )

    def __init__(self, metadata: MessageMetadata) -> None:
        self.batched = metadata.HasField("num_messages_in_batch")
        self.messages = max(1, metadata.num_messages_in_batch)
        self.publish_time_ms = metadata.publish_time
        self.deliver_at_ms = metadata.deliver_at_time
        self.producer_name = _bytes_of(metadata.producer_name).decode(errors="replace")
        self.sequence_id = metadata.sequence_id
        self.highest_sequence_id = max(metadata.highest_sequence_id, metadata.sequence_id)
        self.chunk = metadata.chunk_id if metadata.HasField("chunk_id") else 0
        self.chunks = metadata.num_chunks_from_msg if metadata.HasField("num_chunks_from_msg") else 0
        self.encrypted = len(metadata.encryption_keys) > 0
        self.key = _key(metadata)


def _key(metadata: MessageMetadata) -> bytes:
    if metadata.HasField("ordering_key"):
        return metadata.ordering_key
    if not metadata.HasField("partition_key"):
        return NO_KEY
    key = _bytes_of(metadata.partition_key)
    if metadata.partition_key_b64_encoded:
        try:
            return base64.b64decode(key)
        except binascii.Error:
            return key
    return key


def _bytes_of(text: str | bytes) -> bytes:
    """protobuf hands out `bytes` where what came is not UTF-8."""
    return text if isinstance(text, bytes) else text.encode()


def read_facts(body: bytes | memoryview) -> MessageFacts:
    """ProtocolError where the bytes are no message; a broker that stored such an entry cannot read more of it."""
    try:
        start, end = metadata_span(body)
        return MessageFacts(MessageMetadata.FromString(bytes(body[start:end])))
    except (ValueError, DecodeError) as error:
        raise ProtocolError(f"unreadable message metadata: {error}") from None
