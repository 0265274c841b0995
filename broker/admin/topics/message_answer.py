"""The answer that shows one entry: its payload as the body, its metadata as `X-Pulsar-…` headers, as Pulsar words them.

A batch is shown as one entry: the body holds all its messages, and clients take them apart. The payload is decompressed.
That of an encrypted entry or of a chunk is shown as it is stored: without the key, or without its other chunks, nothing can
be decompressed.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import json
import re
from collections.abc import Container, Iterator

from aiohttp import web

from broker.compaction.codecs import unpack
from broker.compaction.entry_content import read_entry
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError
from foundation.units import MS_PER_SECOND
from protocol.broker_entry_metadata import decode
from protocol.errors import ProtocolError
from protocol.pulsar_api_pb2 import CompressionType, MessageMetadata

IN_THREAD_BYTES = 256 << 10
"""A payload above this size is decompressed in a thread: 1 MiB takes 1 to 5 ms."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_FRAME_BYTES = 10
"""Magic, checksum and size in front of the metadata; Pulsar counts them to the size of a batch."""

Header = tuple[str, str]
"""Name and value of an HTTP header."""


class UnreadableEntry(BrokerError):
    """The stored bytes are no message, or cannot be decompressed."""

    status = 422


async def entry_answer(entry: Entry, *, uncommitted: bool, aborted: bool) -> web.Response:
    """Returns the answer for an entry. UnreadableEntry for bytes that are no message.

    `uncommitted`: its transaction is open; `aborted`: it was aborted.
    """
    try:
        metadata, payload = read_entry(entry.body)
        body = await _plain(metadata, payload)
    except ProtocolError as error:
        raise UnreadableEntry(f"Entry {entry.ledger_id}:{entry.entry_id} cannot be read: {error}") from None
    answer = web.Response(body=body, content_type="application/json")
    for name, value in [*_headers(entry, metadata, len(payload)), *_transaction(metadata)]:
        answer.headers.add(f"X-Pulsar-{name}", _CONTROL.sub("?", value))
    if aborted:
        answer.headers["X-Pulsar-txn-aborted"] = "true"
    answer.headers["X-Pulsar-txn-uncommitted"] = _word(uncommitted)
    return answer


async def _plain(metadata: MessageMetadata, payload: memoryview) -> bytes:
    chunk = metadata.num_chunks_from_msg > 1
    if metadata.compression == CompressionType.NONE or metadata.encryption_keys or chunk:
        return bytes(payload)
    size = metadata.uncompressed_size
    if max(size, len(payload)) <= IN_THREAD_BYTES:
        return unpack(metadata.compression, payload, size)
    return await asyncio.to_thread(unpack, metadata.compression, payload, size)


def _headers(entry: Entry, metadata: MessageMetadata, payload_bytes: int) -> Iterator[Header]:
    """Yields the headers of fields that the producer or the broker has set."""
    fields: dict[str, object] = {field.name: value for field, value in metadata.ListFields()}
    stamp = decode(entry.header)
    yield "Message-ID", f"{entry.ledger_id}:{entry.entry_id}"
    # JSON with escapes is ASCII, so no property can add a header.
    properties = {_text(one.key): _text(one.value) for one in metadata.properties}
    yield "PROPERTY", json.dumps(properties, separators=(",", ":"))
    if stamp.broker_timestamp_ms is not None:
        yield "Broker-Entry-METADATA-timestamp", _time(stamp.broker_timestamp_ms)
    if stamp.index is not None:
        yield "Broker-Entry-METADATA-index", str(stamp.index)
    for field in ("publish_time", "event_time", "deliver_at_time"):
        if field in fields:
            yield field.replace("_", "-"), _time(getattr(metadata, field))
    if "num_messages_in_batch" in fields:
        yield "num-batch-message", str(metadata.num_messages_in_batch)
        yield "batch-size", str(payload_bytes + _FRAME_BYTES)
    if "null_value" in fields:
        yield "null-value", _word(metadata.null_value)
    if "num_chunks_from_msg" in fields:
        yield "PROPERTY-TOTAL-CHUNKS", str(metadata.num_chunks_from_msg)
        yield "PROPERTY-CHUNK-ID", str(metadata.chunk_id)
        yield "num-chunks-from-msg", str(metadata.num_chunks_from_msg)
    yield "Is-Encrypted", _word(bool(metadata.encryption_keys))
    yield from _fields(metadata, fields)


_TEXTS = ("producer_name", "replicated_from", "partition_key", "encryption_algo", "uuid")
_NUMBERS = (
    "sequence_id",
    "uncompressed_size",
    "marker_type",
    "highest_sequence_id",
    "total_chunk_msg_size",
    "chunk_id",
)
_FLAGS = ("partition_key_b64_encoded", "null_partition_key")
_BYTES = ("encryption_param", "schema_version", "ordering_key")


def _fields(metadata: MessageMetadata, present: Container[str]) -> Iterator[Header]:
    """Yields the fields whose header is named like the field."""
    for field in _TEXTS:
        if field in present:
            yield field.replace("_", "-"), _text(getattr(metadata, field))
    for field in _NUMBERS:
        if field in present:
            yield field.replace("_", "-"), str(getattr(metadata, field))
    for field in _FLAGS:
        if field in present:
            yield field.replace("_", "-"), _word(getattr(metadata, field))
    for field in _BYTES:
        if field in present:
            yield f"Base64-{field.replace('_', '-')}", _base64(getattr(metadata, field))
    for cluster in metadata.replicate_to:
        yield "replicated-to", _text(cluster)
    for key in metadata.encryption_keys:
        yield "Base64-encryption-keys", _base64(key.SerializeToString())
    if "compression" in present:
        # A newer client may use a codec that this version has no name for.
        names = {number: name for name, number in CompressionType.items()}
        yield "compression", names.get(metadata.compression, str(metadata.compression))


def _transaction(metadata: MessageMetadata) -> Iterator[Header]:
    if metadata.HasField("txnid_most_bits"):
        yield "txnid-least-bits", str(metadata.txnid_least_bits)
        yield "txnid-most-bits", str(metadata.txnid_most_bits)


def _text(text: str | bytes) -> str:
    # protobuf returns `bytes` for a text that is not UTF-8.
    return text.decode(errors="replace") if isinstance(text, bytes) else text


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _word(flag: bool) -> str:
    return "true" if flag else "false"


def _time(ms: int) -> str:
    """Formats a wall clock time as Pulsar does; a time outside of its calendar is shown as the number."""
    try:
        time = datetime.datetime.fromtimestamp(ms // MS_PER_SECOND, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return str(ms)
    part = f".{ms % MS_PER_SECOND:03d}".rstrip("0") if ms % MS_PER_SECOND else ""
    return f"{time:%Y-%m-%dT%H:%M:%S}{part}Z"
