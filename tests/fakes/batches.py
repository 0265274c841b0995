"""Batches and single messages with keys, as producers put them on the wire."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from broker.compaction.codecs import pack
from broker.compaction.entry_content import batch_messages, read_entry, unpacked
from protocol.frame import message_body
from protocol.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata

Item = tuple[str | None, bytes]
"""(key, payload)"""


def batch(
    items: Sequence[Item],
    *,
    compression: int = 0,
    encrypted: bool = False,
    key: str | None = None,
    plain: bytes | None = None,
    removed: Sequence[int] = (),
) -> bytes:
    """`plain` replaces the payload, `removed` has the indexes that an earlier compaction removed."""
    parts = []
    for index, (own_key, payload) in enumerate(items):
        single = SingleMessageMetadata(payload_size=len(payload))
        if own_key is not None:
            single.partition_key = own_key
        if index in removed:
            single.compacted_out = True
        packed = single.SerializeToString()
        parts += [struct.pack(">I", len(packed)), packed, payload]
    payload = b"".join(parts) if plain is None else plain
    metadata = _metadata(len(payload), key, encrypted=encrypted)
    metadata.num_messages_in_batch = len(items)
    metadata.compression = compression  # type: ignore[assignment]
    return message_body(metadata, pack(compression, payload))


def single(
    key: str | None,
    payload: bytes,
    *,
    size: int | None = -1,
    chunk: tuple[str, int, int] | None = None,
    marker: int | None = None,
    encrypted: bool = False,
) -> bytes:
    """`size`: uncompressed size, -1 the payload's, None not there. `chunk`: (UUID, number, of how many)."""
    metadata = _metadata(len(payload) if size == -1 else size, key, encrypted=encrypted)
    if chunk is not None:
        metadata.uuid, metadata.chunk_id, metadata.num_chunks_from_msg = chunk
    if marker is not None:
        metadata.marker_type = marker
    return message_body(metadata, payload)


def _metadata(size: int | None, key: str | None, *, encrypted: bool) -> MessageMetadata:
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    if size is not None:
        metadata.uncompressed_size = size
    if key is not None:
        metadata.partition_key = key
    if encrypted:
        metadata.encryption_keys.add(key="k", value=b"v")
    return metadata


def items_of(body: bytes | memoryview) -> list[tuple[int, str | bytes, bytes]]:
    """The messages of a batch that are not removed: (index, key, payload)."""
    metadata, payload = read_entry(body)
    plain = unpacked(metadata, payload)
    return [
        (index, one.partition_key, plain[end - one.payload_size : end])
        for index, (one, _, end) in enumerate(batch_messages(metadata, plain))
        if not one.compacted_out
    ]
