"""Turns MESSAGE frames into a table of entries: consumer, position, metadata, and the payload's place in the buffer.

A frame: `u32 total size, u32 command size, BaseCommand(MESSAGE), [0x0e02 u32 size, broker entry metadata,]
[0x0e01 u32 CRC32C,] u32 metadata size, MessageMetadata, payload`. The checksum covers everything after it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from crc32c import crc32c

from pyspark_pulsar.cutting.messages import Messages
from pyspark_pulsar.cutting.protobuf_columns import Bytes, Fields, Flags, Ints, read_fields
from pyspark_pulsar.errors import MalformedEntry

# Field numbers of BaseCommand, CommandMessage and MessageIdData.
_MESSAGE: Final = 9
_CONSUMER_ID, _MESSAGE_ID, _REDELIVERY_COUNT = 1, 2, 3
_LEDGER_ID, _ENTRY_ID = 1, 2


class EntryField:
    """Field numbers of the protocol's MessageMetadata, under shorter names than the `.proto` has."""

    PRODUCER_NAME: Final = 1
    """The field `producer_name`."""
    SEQUENCE_ID: Final = 2
    """The field `sequence_id`."""
    PUBLISH_TIME: Final = 3
    """The field `publish_time`: ms since 1970."""
    PROPERTIES: Final = 4
    """The field `properties`, repeated."""
    PARTITION_KEY: Final = 6
    """The field `partition_key`."""
    COMPRESSION: Final = 8
    """The field `compression`, a `CompressionType`."""
    UNCOMPRESSED_SIZE: Final = 9
    """The field `uncompressed_size`: bytes."""
    MESSAGES_IN_BATCH: Final = 11
    """The field `num_messages_in_batch`; absent for an entry that is no batch."""
    EVENT_TIME: Final = 12
    """The field `event_time`: ms since 1970, 0 = none."""
    ENCRYPTION_KEYS: Final = 13
    """The field `encryption_keys`, repeated; present = the payload is encrypted."""
    SCHEMA_VERSION: Final = 16
    """The field `schema_version`: bytes."""
    KEY_IS_BASE64: Final = 17
    """The field `partition_key_b64_encoded`."""
    MARKER_TYPE: Final = 20
    """The field `marker_type`; present = written by a broker for itself."""
    TRANSACTION: Final = 23
    """The field `txnid_most_bits`; present = published in a transaction."""
    NULL_VALUE: Final = 25
    """The field `null_value`: a tombstone for compaction."""
    UUID: Final = 26
    """The field `uuid`: names the message that a chunk belongs to."""
    CHUNKS: Final = 27
    """The field `num_chunks_from_msg`."""
    CHUNKED_BYTES: Final = 28
    """The field `total_chunk_msg_size`: bytes of all chunks."""
    CHUNK_ID: Final = 29
    """The field `chunk_id`: number of the chunk, from 0."""


_SINGLE = tuple(
    number
    for name, number in vars(EntryField).items()
    if name.isupper() and number not in (EntryField.PROPERTIES, EntryField.ENCRYPTION_KEYS)
)
_REPEATED = (EntryField.PROPERTIES, EntryField.ENCRYPTION_KEYS)


class EntryTable:
    """Entries in order of arrival, as columns with one element per entry."""

    def __init__(self, data: Bytes, command: Fields, message_id: Fields, ends: Ints) -> None:
        """Reads the commands; `cut_entries` adds the metadata columns once the checksums are verified."""
        self.data = data
        """The receive buffer as numpy bytes; starts, ends and spans are indexes into it."""
        self.consumer_ids = command.numbers(_CONSUMER_ID)
        """Consumer that the broker sent the entry to; unique per connection."""
        self.redeliveries = command.numbers(_REDELIVERY_COUNT)
        """How often the broker has sent the entry before."""
        self.ledger_ids = message_id.numbers(_LEDGER_ID)
        """Ledger of each entry."""
        self.entry_ids = message_id.numbers(_ENTRY_ID)
        """Entry id within the ledger."""
        self.payload_ends = ends
        """Index after the payload, which is the end of the frame."""
        self.payload_starts: Ints
        """Index of the payload's first byte."""
        self.metadata_starts: Ints
        """Index of the first byte of MessageMetadata."""
        self.metadata: Fields
        """Fields of MessageMetadata, by the numbers in `EntryField`."""

    def __len__(self) -> int:
        return len(self.ledger_ids)

    def batched(self) -> Flags:
        """Returns True for entries that hold a batch, even of one message."""
        return self.metadata.present(EntryField.MESSAGES_IN_BATCH)

    def encrypted_rows(self) -> Ints:
        """Returns the rows of encrypted entries, in order."""
        return np.unique(self.metadata.repeated(EntryField.ENCRYPTION_KEYS)[0])

    def message_counts(self) -> Ints:
        """Returns the number of messages of each entry, at least 1."""
        return np.maximum(self.metadata.numbers(EntryField.MESSAGES_IN_BATCH, 1), 1)


def cut_entries(messages: Messages) -> EntryTable:
    """Cuts frames into a table of entries. MalformedEntry where a checksum or a size is wrong."""
    data, starts, command_starts, command_ends = _frames(messages)
    command, message_id = _read_commands(data, starts, command_starts, command_ends)
    ends = starts + 4 + _u32(data, starts)
    table = EntryTable(data, command, message_id, ends)
    bodies = _after_entry_metadata(data, command_ends)
    bodies = _check_sums(messages.buffer, data, bodies, ends, table)
    table.metadata_starts = metadata_starts = bodies + 4
    table.payload_starts = metadata_starts + _u32(data, bodies)
    if (table.payload_starts > ends).any():
        raise MalformedEntry("an entry's metadata reaches past its end")
    # Only after the checksums: damaged metadata would be reported as malformed instead of as a wrong checksum.
    table.metadata = read_fields(data, metadata_starts, table.payload_starts, _SINGLE, _REPEATED)
    return table


def _frames(messages: Messages) -> tuple[Bytes, Ints, Ints, Ints]:
    data: Bytes = np.frombuffer(messages.buffer, np.uint8)
    starts = np.array(messages.starts, np.int64)
    command_starts = starts + 8
    return data, starts, command_starts, command_starts + _u32(data, starts + 4)


def _read_commands(
    data: Bytes, starts: Ints, command_starts: Ints, command_ends: Ints
) -> tuple[Fields, Fields]:
    outer = read_fields(data, command_starts, command_ends, (_MESSAGE,)).spans(_MESSAGE)
    command = read_fields(
        data, outer.starts, outer.starts + outer.lengths, (_CONSUMER_ID, _MESSAGE_ID, _REDELIVERY_COUNT)
    )
    inner = command.spans(_MESSAGE_ID)
    return command, read_fields(data, inner.starts, inner.starts + inner.lengths, (_LEDGER_ID, _ENTRY_ID))


def _u32(data: Bytes, at: Ints) -> Ints:
    """Reads big-endian numbers at any indexes; a view as `>u4` would need aligned ones."""
    found = data[at].astype(np.int64) << 24
    found |= data[at + 1].astype(np.int64) << 16
    found |= data[at + 2].astype(np.int64) << 8
    found |= data[at + 3]
    return found


def _after_entry_metadata(data: Bytes, at: Ints) -> Ints:
    """Skips the block 0x0e02, which a broker sends if exposingBrokerEntryMetadataToClientEnabled is set (PIP-90)."""
    shown = (data[at] == 0x0E) & (data[at + 1] == 0x02)
    if not shown.any():
        return at
    return np.where(shown, at + 6 + _u32(data, at + 2), at)


def _check_sums(buffer: bytearray, data: Bytes, at: Ints, ends: Ints, table: EntryTable) -> Ints:
    """Verifies each entry's CRC32C, if it has one; returns the indexes of the metadata's size fields."""
    summed = (data[at] == 0x0E) & (data[at + 1] == 0x01)
    wanted = _u32(data, at + 2)
    view = memoryview(buffer)
    # The one loop over entries in this module: crc32c takes one piece of bytes at a time.
    for row in np.flatnonzero(summed).tolist():
        if crc32c(view[at[row] + 6 : ends[row]]) != wanted[row]:
            raise MalformedEntry(
                f"entry {table.ledger_ids[row]}:{table.entry_ids[row]} arrived with a wrong checksum"
            )
    return np.where(summed, at + 6, at)
