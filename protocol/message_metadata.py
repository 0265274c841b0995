"""Reads the fields of MessageMetadata that a broker needs.

`broker/service/entry_facts.py` calls this once per entry and keeps the result. Pure: no I/O, no clock.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from google.protobuf.message import DecodeError

from protocol.errors import ProtocolError
from protocol.frame import assemble_body, has_checksum, metadata_span
from protocol.pulsar_api_pb2 import MessageMetadata

TXN_COMMIT = 21
"""Pulsar's marker type of an entry that commits a transaction on its topic."""
TXN_ABORT = 22
"""Pulsar's marker type of an entry that aborts one."""

NO_KEY = b"NONE_KEY"
"""Key that Pulsar hashes for messages without one, so all of them go to one Key_Shared consumer."""

SOURCE_POSITION: Final = "__MSG_PROP_REPL_SOURCE_POSITION"
"""Property of a replicated message: its ledger id and entry id in the source cluster, as `12:3`."""
_MARK: Final = SOURCE_POSITION.encode()
_MARKERS: Final = range(10, 14)
"""Marker types of replicated subscriptions."""


class MessageFacts:
    """Fields of one entry's message metadata."""

    __slots__ = (
        "batched",
        "chunk",
        "chunks",
        "deliver_at_ms",
        "encrypted",
        "highest_sequence_id",
        "key",
        "marker",
        "messages",
        "producer_name",
        "publish_time_ms",
        "sequence_id",
        "txn",
    )

    def __init__(self, metadata: MessageMetadata) -> None:
        self.batched = metadata.HasField("num_messages_in_batch")
        """True for a batch, also one of a single message."""
        self.messages = max(1, metadata.num_messages_in_batch)
        """Messages in the entry, at least 1."""
        self.publish_time_ms = metadata.publish_time
        """Time at which the client sent it, by the client's clock."""
        self.deliver_at_ms = metadata.deliver_at_time
        """Earliest delivery that the producer asked for, in ms since 1970; 0 = at once. May be any 64-bit number."""
        self.producer_name = _bytes_of(metadata.producer_name).decode(errors="replace")
        """Name of the producer; bytes that are not UTF-8 are replaced."""
        self.sequence_id = metadata.sequence_id
        """Of the message, or of the first one in a batch."""
        # A batch of older clients has no highest id; protobuf reads an absent one as 0.
        self.highest_sequence_id = max(metadata.highest_sequence_id, metadata.sequence_id)
        """Of the last message in a batch."""
        self.chunk = metadata.chunk_id if metadata.HasField("chunk_id") else 0
        """Index of the chunk, 0 for a whole message."""
        self.chunks = metadata.num_chunks_from_msg if metadata.HasField("num_chunks_from_msg") else 0
        """Number of chunks, 0 for a whole message."""
        self.encrypted = len(metadata.encryption_keys) > 0
        """True when the message has encryption keys."""
        # One test for both: only markers that end transactions matter here, and they name their transaction.
        in_transaction = metadata.HasField("txnid_most_bits")
        self.txn = (metadata.txnid_most_bits, metadata.txnid_least_bits) if in_transaction else None
        """Most and least bits of the transaction, None outside of one."""
        self.marker = metadata.marker_type if in_transaction else 0
        """`TXN_COMMIT` or `TXN_ABORT` for an entry that ends a transaction, 0 for a message."""
        self.key = _key(metadata)
        """Ordering key, else partition key, else `NO_KEY`."""


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
    # protobuf returns `bytes` for a text field that is not UTF-8.
    return text if isinstance(text, bytes) else text.encode()


def read_facts(body: bytes | memoryview) -> MessageFacts:
    """Reads the fields from an entry's body. ProtocolError when the body is no message."""
    try:
        start, end = metadata_span(body)
        return MessageFacts(MessageMetadata.FromString(bytes(body[start:end])))
    except (ValueError, DecodeError) as error:
        raise ProtocolError(f"unreadable message metadata: {error}") from None


def count_messages(body: bytes | memoryview) -> int:
    """Returns the number of messages in an entry, at least 1. ProtocolError when the body is no message."""
    try:
        start, end = metadata_span(body)
        return max(1, MessageMetadata.FromString(bytes(body[start:end])).num_messages_in_batch)
    except (ValueError, DecodeError) as error:
        raise ProtocolError(f"unreadable message metadata: {error}") from None


def names_transaction(body: bytes | memoryview) -> bool:
    """Returns True when the metadata names a transaction; False for a body that is no message."""
    try:
        return read_facts(body).txn is not None
    except ProtocolError:
        return False


def in_transaction(body: bytes | memoryview, most: int, least: int) -> bytes | memoryview:
    """Returns the body with the transaction in its metadata. ProtocolError for a marker, or when it names another one.

    The Go client names the transaction in SEND alone. Readers of the log know only the metadata, so without the addition
    they could not tell an aborted message from a plain one.
    """
    try:
        start, end = metadata_span(body)
        metadata = MessageMetadata.FromString(bytes(body[start:end]))
    except (ValueError, DecodeError) as error:
        raise ProtocolError(f"unreadable message metadata: {error}") from None
    if metadata.HasField("marker_type"):
        raise ProtocolError(f"SEND in transaction ({most},{least}) with a marker, which only a broker writes")
    if metadata.HasField("txnid_most_bits"):
        if (metadata.txnid_most_bits, metadata.txnid_least_bits) != (most, least):
            raise ProtocolError(f"SEND in transaction ({most},{least}) whose metadata names another one")
        return body
    # Fields may follow in any order, so the addition needs no new encoding of the rest.
    extra = MessageMetadata(txnid_most_bits=most, txnid_least_bits=least).SerializePartialToString()
    return assemble_body(bytes(body[start:end]) + extra, bytes(body[end:]), checksum=has_checksum(body))


class ReplicatedMessage:
    """Origin of a message that the replicator of another cluster passes on."""

    __slots__ = ("from_cluster", "marker", "position")

    def __init__(self, metadata: MessageMetadata) -> None:
        self.from_cluster = _bytes_of(metadata.replicated_from).decode(errors="replace")
        """Name of the cluster, "" where the message names none."""
        self.marker = metadata.marker_type in _MARKERS
        """True for a marker of replicated subscriptions; its receipt has no position of the source."""
        self.position = _position(metadata)
        """Ledger id and entry id in the source cluster; None where the message has none, or an unreadable one."""


def read_replicated(body: bytes | memoryview) -> ReplicatedMessage | None:
    """Reads the origin of a message; None for a body that is no message."""
    try:
        start, end = metadata_span(body)
        return ReplicatedMessage(MessageMetadata.FromString(bytes(body[start:end])))
    except (ValueError, DecodeError):
        return None


def read_source(body: bytes | memoryview) -> ReplicatedMessage | None:
    """Reads as `read_replicated`, and returns None for a message without a position; cheap for those that name none."""
    return read_replicated(body) if _MARK in bytes(body) else None


def _position(metadata: MessageMetadata) -> tuple[int, int] | None:
    for pair in metadata.properties:
        if pair.key == SOURCE_POSITION:
            ledger_id, colon, entry_id = _bytes_of(pair.value).decode(errors="replace").partition(":")
            if colon and _is_number(ledger_id) and _is_number(entry_id):
                return int(ledger_id), int(entry_id)
            return None
    return None


def _is_number(text: str) -> bool:
    # Nineteen digits are the longest 64-bit number; more would not fit into a receipt.
    return text.isascii() and text.isdigit() and len(text) <= 19 and int(text) < 1 << 63
