"""Turns entries into a table of messages: decompresses payloads and finds each message of a batch.

A batch is a sequence of `u32 size, SingleMessageMetadata, payload`. Each message's end follows from its payload size, so
in general a batch must be walked message by message, one step of Python each. Producers mostly write messages of equal
layout, though: then all starts follow from the first, and a few numpy steps prove it (`_prove_alike`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from pyspark_pulsar.cutting.compression import unpack
from pyspark_pulsar.cutting.entry_table import EntryField, EntryTable
from pyspark_pulsar.cutting.messages import SLACK_BYTES
from pyspark_pulsar.cutting.protobuf_columns import Bytes, Fields, Flags, Ints, Spans, read_fields
from pyspark_pulsar.errors import MalformedEntry

UNPACKED_BYTES_MAX: Final = 64 << 20
"""Decompressed bytes in memory at a time, unless one entry has more."""
_UNIFORM_MESSAGES_MIN: Final = 8
"""Smallest batch for the proof; for fewer messages walking is quicker."""

_size_at = struct.Struct(">I").unpack_from
_PAYLOAD_SIZE_TAG: Final = 0x18
_PROPERTIES_TAG, _KEY_TAG = 0x0A, 0x12


class MessageField:
    """Field numbers of the protocol's SingleMessageMetadata, under shorter names than the `.proto` has."""

    PROPERTIES: Final = 1
    """The field `properties`, repeated."""
    KEY: Final = 2
    """The field `partition_key`."""
    COMPACTED_OUT: Final = 4
    """The field `compacted_out`: the compaction dropped the message, its place remains."""
    EVENT_TIME: Final = 5
    """The field `event_time`: ms since 1970, 0 = none."""
    KEY_IS_BASE64: Final = 6
    """The field `partition_key_b64_encoded`."""
    SEQUENCE_ID: Final = 8
    """The field `sequence_id` of the message within its producer."""
    NULL_VALUE: Final = 9
    """The field `null_value`: a tombstone for compaction."""


_SINGLE = (
    MessageField.KEY,
    MessageField.COMPACTED_OUT,
    MessageField.EVENT_TIME,
    MessageField.KEY_IS_BASE64,
    MessageField.SEQUENCE_ID,
    MessageField.NULL_VALUE,
)


class MessageTable:
    """Messages in the order of their entries, as columns with one element per message.

    Either all of them come in batches, with metadata of their own, or none does and `fields` is None.
    """

    def __init__(
        self,
        data: Bytes,
        entry_rows: Ints,
        starts: Ints,
        ends: Ints,
        batch_indexes: Ints,
        fields: Fields | None,
        field_rows: Ints,
    ) -> None:
        self.data = data
        """The receive buffer, or the decompressed payloads; starts, ends and spans are indexes into it."""
        self.entry_rows = entry_rows
        """Row of each message's entry in the table of entries."""
        self.starts = starts
        """First byte of each message's value."""
        self.ends = ends
        """The byte after each message's value."""
        self.batch_indexes = batch_indexes
        """Index in the batch from 0; -1 outside of batches."""
        self.fields = fields
        """Fields of SingleMessageMetadata, by the numbers in `MessageField`."""
        self.field_rows = field_rows
        """Row of each message in `fields`; `select` drops messages without copying the fields."""

    def __len__(self) -> int:
        return len(self.starts)

    def select(self, chosen: Flags) -> MessageTable:
        """Returns the messages for which `chosen` is True."""
        if chosen.all():
            return self
        rows = np.flatnonzero(chosen)
        return MessageTable(
            self.data,
            self.entry_rows[rows],
            self.starts[rows],
            self.ends[rows],
            self.batch_indexes[rows],
            self.fields,
            self.field_rows[rows],
        )

    def numbers(self, entries: EntryTable, in_batch: int, alone: int) -> Ints:
        """Returns a number per message, 0 where it is absent.

        `in_batch` is its field in SingleMessageMetadata, `alone` the one in MessageMetadata for messages outside of
        batches.
        """
        if self.fields is not None:
            return self.fields.numbers(in_batch)[self.field_rows]
        return entries.metadata.numbers(alone)[self.entry_rows]

    def spans(self, entries: EntryTable, in_batch: int, alone: int) -> tuple[Bytes, Spans]:
        """Returns the spans of a bytes field and the bytes that they are indexes into; fields as in `numbers`."""
        if self.fields is not None:
            return self.data, self.fields.spans(in_batch).take(self.field_rows)
        return entries.data, entries.metadata.spans(alone).take(self.entry_rows)


class _Payloads(NamedTuple):
    """Uncompressed payloads of the entries `rows`: bytes, starts and ends."""

    buffer: bytearray | memoryview
    data: Bytes
    rows: Ints
    starts: Ints
    ends: Ints


def cut_messages(entries: EntryTable, rows: Ints, buffer: bytearray) -> Iterator[MessageTable]:
    """Yields the messages of the entries `rows`, in a table each for batches and others, compressed and plain.

    `buffer` is the bytearray of `entries.data`. The caller sorts by entry and batch index to restore the order.
    None of the entries is encrypted. MalformedEntry for damaged ones.
    """
    compressed = entries.metadata.numbers(EntryField.COMPRESSION)[rows] != 0
    batched = entries.batched()[rows]
    # Four groups, because each has one kind of metadata and one buffer that its spans are indexes into.
    for in_batches in (True, False):
        plain = rows[(batched == in_batches) & ~compressed]
        if plain.size:
            payloads = _Payloads(
                buffer, entries.data, plain, entries.payload_starts[plain], entries.payload_ends[plain]
            )
            yield _cut(entries, payloads, in_batches)
        packed = rows[(batched == in_batches) & compressed]
        for portion in _portions(entries, packed):
            yield _cut(entries, _unpack(entries, portion, buffer), in_batches)


def _portions(entries: EntryTable, rows: Ints) -> Iterator[Ints]:
    """Groups consecutive entries whose decompressed payloads have a bounded size together."""
    if rows.size:
        sizes = entries.metadata.numbers(EntryField.UNCOMPRESSED_SIZE)[rows]
        # By the bytes in front of each entry, so that an entry above the limit still belongs to a portion.
        portion_of = (np.cumsum(sizes) - sizes) // UNPACKED_BYTES_MAX
        for number in np.unique(portion_of):
            yield rows[portion_of == number]


def _unpack(entries: EntryTable, rows: Ints, buffer: bytearray) -> _Payloads:
    sizes = entries.metadata.numbers(EntryField.UNCOMPRESSED_SIZE)[rows]
    kinds = entries.metadata.numbers(EntryField.COMPRESSION)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    # Spare bytes, because reading a damaged number may go on after the last message.
    unpacked = bytearray(int(ends[-1]) + SLACK_BYTES)
    view = memoryview(buffer)
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        packed = view[entries.payload_starts[row] : entries.payload_ends[row]]
        unpacked[start:end] = memoryview(unpack(int(kinds[row]), packed, end - start))
    return _Payloads(unpacked, np.frombuffer(unpacked, np.uint8), rows, starts, ends)


def _cut(entries: EntryTable, payloads: _Payloads, in_batches: bool) -> MessageTable:
    if in_batches:
        return _cut_batches(entries, payloads)
    count = len(payloads.rows)
    alone = np.full(count, -1, np.int64)
    return MessageTable(
        payloads.data, payloads.rows, payloads.starts, payloads.ends, alone, None, np.arange(count)
    )


def _cut_batches(entries: EntryTable, payloads: _Payloads) -> MessageTable:
    counts = entries.message_counts()[payloads.rows]
    heads: list[Ints] = []
    values: list[Ints] = []
    ends: list[Ints] = []
    for start, end, count in zip(
        payloads.starts.tolist(), payloads.ends.tolist(), counts.tolist(), strict=True
    ):
        # A message has at least 5 bytes. Refuse an impossible count before arrays of `count` elements are made.
        if count * 5 > end - start:
            raise MalformedEntry(f"a batch of {count} messages in {end - start} bytes")
        found = _prove_alike(payloads, start, end, count) or _walk(payloads.buffer, start, end, count)
        heads.append(found[0])
        values.append(found[1])
        ends.append(found[2])
    head_starts, value_starts, value_ends = (
        np.concatenate(heads),
        np.concatenate(values),
        np.concatenate(ends),
    )
    fields = read_fields(payloads.data, head_starts, value_starts, _SINGLE, (MessageField.PROPERTIES,))
    total = len(value_starts)
    first_of_entry = np.repeat(np.cumsum(counts) - counts, counts)
    return MessageTable(
        payloads.data,
        np.repeat(payloads.rows, counts),
        value_starts,
        value_ends,
        np.arange(total) - first_of_entry,
        fields,
        np.arange(total),
    )


def _prove_alike(payloads: _Payloads, start: int, end: int, count: int) -> tuple[Ints, Ints, Ints] | None:
    """Returns starts of metadata, starts of values and their ends, if all messages are laid out like the first.

    Sound, because a message's layout follows from its sizes, tags and lengths up to the payload size, and these bytes
    are compared between all messages. Keys and property texts may differ, as long as their lengths do not. None where
    any of the bytes differs.
    """
    if count < _UNIFORM_MESSAGES_MIN or (end - start) % count:
        return None
    stride = (end - start) // count
    head = _size_at(payloads.buffer, start)[0]
    if 4 + head > stride:
        return None
    # The first message alone is read in Python; the others are compared with it.
    layout = _layout(payloads.buffer, start, head)
    if layout is None or 4 + head + layout[1] != stride:
        return None
    columns = payloads.data[start:end].reshape(count, stride)[:, layout[0]]
    if not (columns == columns[0]).all():
        return None
    heads = start + 4 + stride * np.arange(count)
    return heads, heads + head, heads + (stride - 4)


def _layout(buffer: bytearray | memoryview, start: int, head: int) -> tuple[list[int], int] | None:
    """Returns the bytes that determine a message's layout, as indexes from `start`, and its payload size.

    None for a message whose fields come in another order than payload size after properties and key.
    """
    places = [0, 1, 2, 3]
    at, after = start + 4, start + 4 + head
    while at < after:
        tag = buffer[at]
        places.append(at - start)
        at += 1
        value = shift = 0
        while True:
            byte = buffer[at]
            places.append(at - start)
            value |= (byte & 0x7F) << shift
            at += 1
            shift += 7
            if byte < 0x80:
                break
            if at >= after:
                return None
        if tag == _PAYLOAD_SIZE_TAG:
            return places, value
        if tag not in (_PROPERTIES_TAG, _KEY_TAG):
            return None
        at += value
    return None


def _walk(buffer: bytearray | memoryview, start: int, end: int, count: int) -> tuple[Ints, Ints, Ints]:
    """Returns what `_prove_alike` does, message by message. MalformedEntry where they do not fit into the batch."""
    heads: list[int] = []
    values: list[int] = []
    ends: list[int] = []
    at = start
    for _ in range(count):
        head = at + 4
        # A size field that is cut off by the end of the batch is not read at all: the bytes after it belong to
        # another entry.
        value = head + _size_at(buffer, at)[0] if head <= end else end + 1
        if value > end:
            raise MalformedEntry("a message's metadata reaches past the end of its batch")
        size = buffer[head + 1]
        # Most messages have no key and no properties and fewer than 128 bytes: the payload size is the first field.
        if buffer[head] == _PAYLOAD_SIZE_TAG and size < 0x80:
            at = value + size
        else:
            layout = _layout(buffer, at, value - head)
            if layout is None:
                raise MalformedEntry("a message of a batch does not say how long it is")
            at = value + layout[1]
        if at > end:
            raise MalformedEntry("a message reaches past the end of its batch")
        heads.append(head)
        values.append(value)
        ends.append(at)
    return np.array(heads), np.array(values), np.array(ends)
