"""Messages as producers put them on the wire: from the checksum block to the end of the payload."""

from __future__ import annotations

import struct

from crc32c import crc32c

from protocol.pulsar_api_pb2 import MessageMetadata

SENT_AT_MS = 1_700_000_000_000


def message(
    payload: bytes = b"x",
    *,
    key: str | None = None,
    batch: int = 0,
    sequence_id: int = 0,
    producer: str = "p",
    chunk: tuple[int, int] | None = None,
    at_ms: int = SENT_AT_MS,
    deliver_at_ms: int = 0,
) -> bytes:
    """`batch`: messages in it, 0 = not batched. `chunk`: (number, of how many)."""
    metadata = MessageMetadata(producer_name=producer, sequence_id=sequence_id, publish_time=at_ms)
    if key is not None:
        metadata.partition_key = key
    if batch:
        metadata.num_messages_in_batch = batch
    if chunk is not None:
        metadata.chunk_id, metadata.num_chunks_from_msg = chunk
    if deliver_at_ms:
        metadata.deliver_at_time = deliver_at_ms
    packed = metadata.SerializeToString()
    covered = struct.pack(">I", len(packed)) + packed + payload
    return b"\x0e\x01" + struct.pack(">I", crc32c(covered)) + covered
