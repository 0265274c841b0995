"""The columns beside the value: six with the names and types of Pulsar's JVM connector, and eight more.

Each is a function from a table of messages to one Arrow array. A fact of the entry, such as its publish time, is read
once per entry and spread to its messages.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    TimestampType,
)

from pyspark_pulsar.columns.arrow_spans import as_text, binaries, from_rows, numbers, take_ranges, take_spans
from pyspark_pulsar.cutting.entry_table import EntryField, EntryTable
from pyspark_pulsar.cutting.message_table import MessageField, MessageTable
from pyspark_pulsar.cutting.protobuf_columns import (
    Bytes,
    Flags,
    Ints,
    constant_bytes,
    join_rows,
    read_fields,
    write_varints,
)


class Origin(NamedTuple):
    """The topic of each entry, as an index into the task's topics."""

    topics: pa.StringArray
    """Full names, one per topic of the task."""
    partitions: Ints
    """Partition number of each of the task's topics, -1 for a topic that is no partition."""
    topic_rows: Ints
    """Index into `topics`, one per entry."""


class WantedRows(NamedTuple):
    """The messages that become rows, and the entries and topics that they come from."""

    entries: EntryTable
    """All entries that were cut together, also those without wanted messages."""
    messages: MessageTable
    """The wanted messages, one row each."""
    origin: Origin
    """Topics of `entries`."""

    def per_message(self, per_entry: Ints) -> Ints:
        """Spreads a column with one element per entry to one element per message."""
        return per_entry[self.messages.entry_rows]


def _topic(rows: WantedRows) -> pa.Array:
    return rows.origin.topics.take(numbers(rows.per_message(rows.origin.topic_rows)))


def _partition_numbers(rows: WantedRows) -> Ints:
    return rows.origin.partitions[rows.per_message(rows.origin.topic_rows)]


def _partition(rows: WantedRows) -> pa.Array:
    return numbers(_partition_numbers(rows), pa.int32())


def _key(rows: WantedRows) -> pa.Array:
    data, spans = rows.messages.spans(rows.entries, MessageField.KEY, EntryField.PARTITION_KEY)
    keys = take_spans(data, spans)
    encoded = rows.messages.numbers(rows.entries, MessageField.KEY_IS_BASE64, EntryField.KEY_IS_BASE64) != 0
    return _from_base64(keys, encoded) if encoded.any() else keys


def _from_base64(keys: pa.BinaryArray, encoded: Flags) -> pa.BinaryArray:
    """Decodes keys that producers wrote as base64, because the field is text; others stay as they are."""
    plain: list[bytes | None] = keys.to_pylist()
    for row in np.flatnonzero(encoded).tolist():
        key = plain[row]
        if key is not None:
            try:
                plain[row] = base64.b64decode(key, validate=True)
            # The flag is the producer's claim; a key that is no base64 is passed on as it came.
            except binascii.Error:
                plain[row] = key
    return binaries(plain)


def _message_id(rows: WantedRows) -> pa.Array:
    """Serializes MessageIdData as clients do: ledger, entry, partition, batch index, batch size."""
    count = len(rows.messages)
    entries, messages = rows.entries, rows.messages
    parts = [
        constant_bytes(b"\x08", count),
        write_varints(rows.per_message(entries.ledger_ids)),
        constant_bytes(b"\x10", count),
        write_varints(rows.per_message(entries.entry_ids)),
    ]
    _add_where(parts, b"\x18", _partition_numbers(rows))
    # Left out of a message that is no batch, as clients do: an id with a batch index of 0 would be another id.
    _add_where(parts, b"\x20", messages.batch_indexes)
    if messages.fields is not None:
        _add_where(parts, b"\x30", rows.per_message(entries.message_counts()))
    return from_rows(*join_rows(parts))


def _add_where(parts: list[tuple[Bytes, Flags]], tag: bytes, numbers: Ints) -> None:
    """Appends a varint field, which is left out where the number is negative."""
    there = (numbers >= 0)[:, None]
    places, used = constant_bytes(tag, len(numbers))
    parts.append((places, used & there))
    places, used = write_varints(np.maximum(numbers, 0))
    parts.append((places, used & there))


def _timestamps(milliseconds: Ints, missing: Flags | None = None) -> pa.Array:
    return numbers(milliseconds * 1000, pa.timestamp("us", tz="UTC"), missing=missing)


def _publish_time(rows: WantedRows) -> pa.Array:
    return _timestamps(rows.per_message(rows.entries.metadata.numbers(EntryField.PUBLISH_TIME)))


def _event_time(rows: WantedRows) -> pa.Array:
    times = rows.messages.numbers(rows.entries, MessageField.EVENT_TIME, EntryField.EVENT_TIME)
    return _timestamps(times, times == 0)


_PAIR_KEY, _PAIR_VALUE = 1, 2


def _properties(rows: WantedRows) -> pa.Array:
    messages, entries = rows.messages, rows.entries
    if messages.fields is not None:
        data, source, wanted = messages.data, messages.fields, messages.field_rows
        found, starts, lengths = source.repeated(MessageField.PROPERTIES)
    else:
        data, source, wanted = entries.data, entries.metadata, messages.entry_rows
        found, starts, lengths = source.repeated(EntryField.PROPERTIES)
    # The fields also hold messages that were dropped by `select`: map the rows of fields to rows of messages.
    row_of = np.full(source.count, -1, np.int64)
    row_of[wanted] = np.arange(len(wanted))
    kept = row_of[found] >= 0
    found, starts, lengths = row_of[found[kept]], starts[kept], lengths[kept]
    pairs = read_fields(data, starts, starts + lengths, (_PAIR_KEY, _PAIR_VALUE))
    keys, values = pairs.spans(_PAIR_KEY), pairs.spans(_PAIR_VALUE)
    offsets = np.zeros(len(wanted) + 1, np.int32)
    np.cumsum(np.bincount(found, minlength=len(wanted)), out=offsets[1:])
    return pa.MapArray.from_arrays(
        numbers(offsets, pa.int32()),
        as_text(take_ranges(data, keys.starts, keys.starts + keys.lengths)),
        as_text(take_ranges(data, values.starts, values.starts + values.lengths)),
    )


def _ledger(rows: WantedRows) -> pa.Array:
    return numbers(rows.per_message(rows.entries.ledger_ids))


def _entry(rows: WantedRows) -> pa.Array:
    return numbers(rows.per_message(rows.entries.entry_ids))


def _batch_index(rows: WantedRows) -> pa.Array:
    return numbers(rows.messages.batch_indexes, pa.int32())


def _producer(rows: WantedRows) -> pa.Array:
    names = as_text(take_spans(rows.entries.data, rows.entries.metadata.spans(EntryField.PRODUCER_NAME)))
    return names.take(numbers(rows.messages.entry_rows))


def _sequence(rows: WantedRows) -> pa.Array:
    # The entry has the id of its first message; clients leave it out of the messages of a batch where ids are consecutive.
    of_entry = rows.per_message(rows.entries.metadata.numbers(EntryField.SEQUENCE_ID))
    if rows.messages.fields is None:
        return numbers(of_entry)
    own = rows.messages.fields.numbers(MessageField.SEQUENCE_ID)[rows.messages.field_rows]
    has_own = rows.messages.fields.present(MessageField.SEQUENCE_ID)[rows.messages.field_rows]
    return numbers(np.where(has_own, own, of_entry + rows.messages.batch_indexes))


def schema_versions(entries: EntryTable) -> Ints:
    """Returns the schema version of each entry; -1 where it has none, or one that is not 8 bytes long."""
    spans = entries.metadata.spans(EntryField.SCHEMA_VERSION)
    versions = np.full(len(entries), -1, np.int64)
    rows = np.flatnonzero(spans.present & (spans.lengths == 8))
    if rows.size:
        places = entries.data[spans.starts[rows][:, None] + np.arange(8)]
        versions[rows] = np.ascontiguousarray(places).view(">i8").ravel()
    return versions


def _schema_version(rows: WantedRows) -> pa.Array:
    versions = rows.per_message(schema_versions(rows.entries))
    return numbers(versions, missing=versions < 0)


def _redelivery_count(rows: WantedRows) -> pa.Array:
    return numbers(rows.per_message(rows.entries.redeliveries), pa.int32())


class MetadataColumn(NamedTuple):
    """One column beside the value."""

    spark_type: DataType
    """Type of the column in Spark's schema."""
    make: Callable[[WantedRows], pa.Array]
    """Returns one element per message; the caller casts it to the Arrow form of `spark_type`."""


METADATA_COLUMNS: Final[Mapping[str, MetadataColumn]] = {
    "__key": MetadataColumn(BinaryType(), _key),
    "__topic": MetadataColumn(StringType(), _topic),
    "__messageId": MetadataColumn(BinaryType(), _message_id),
    "__publishTime": MetadataColumn(TimestampType(), _publish_time),
    "__eventTime": MetadataColumn(TimestampType(), _event_time),
    "__messageProperties": MetadataColumn(MapType(StringType(), StringType()), _properties),
    "__ledger": MetadataColumn(LongType(), _ledger),
    "__entry": MetadataColumn(LongType(), _entry),
    "__batchIndex": MetadataColumn(IntegerType(), _batch_index),
    "__partition": MetadataColumn(IntegerType(), _partition),
    "__producer": MetadataColumn(StringType(), _producer),
    "__sequence": MetadataColumn(LongType(), _sequence),
    "__schemaVersion": MetadataColumn(LongType(), _schema_version),
    "__redeliveryCount": MetadataColumn(IntegerType(), _redelivery_count),
}
"""All columns beside the value, by name; docs/how-to/spark_source.md lists them for users."""

DEFAULT_METADATA: Final = (
    "__key",
    "__topic",
    "__messageId",
    "__publishTime",
    "__eventTime",
    "__messageProperties",
)
"""The columns beside the value of a query without the option `columns`, as in the JVM connector."""
