"""Encodes rows as messages of a batch, column by column: `u32 size, SingleMessageMetadata, payload` each.

All messages of an Arrow batch lie one after the other in one buffer, so an entry's payload is a slice of it. The fields
of the metadata come in the order of their numbers, each in a column of bytes, and Arrow joins the columns.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    DataType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pyspark_pulsar.columns.arrow_spans import binaries, bytes_scalar, from_rows, numbers
from pyspark_pulsar.cutting.protobuf_columns import (
    Bytes,
    Flags,
    Ints,
    constant_bytes,
    join_rows,
    write_varints,
)
from pyspark_pulsar.errors import OptionError

KEY: Final = "__key"
"""Column with a message's key, string or binary."""
_EVENT_TIME: Final = "__eventTime"
_PROPERTIES: Final = "__messageProperties"
TOPIC: Final = "__topic"
"""Column with the topic of each row, unless the option `topic` is given."""
SINK_METADATA: Final = (KEY, _EVENT_TIME, _PROPERTIES, TOPIC)
"""Columns with which a row sets more than its message's value."""
_TYPES: Final[Mapping[str, tuple[tuple[type[DataType], ...], str]]] = {
    KEY: ((StringType, BinaryType), "string or binary"),
    _EVENT_TIME: (
        (TimestampType, TimestampNTZType, LongType),
        "timestamp or bigint (milliseconds since 1970)",
    ),
    _PROPERTIES: ((MapType,), "map<string,string>"),
    TOPIC: ((StringType,), "string"),
}
"""Spark's types of these columns, and their names for an error."""

_Part = tuple[Bytes, Flags]
_NOTHING: Final = b""


def check_metadata(schema: StructType) -> None:
    """Raises OptionError where a metadata column has a wrong type, before any task has begun."""
    for field in schema.fields:
        types, expected = _TYPES.get(field.name, ((DataType,), ""))
        if not isinstance(field.dataType, (*types, NullType)):
            raise OptionError(
                f"{field.name} is of type {field.dataType.simpleString()}: {expected} is expected; cast the column"
            )


class MessageRows(NamedTuple):
    """Encoded messages for one topic, in one buffer."""

    data: pa.Buffer
    """The bytes of all messages of an Arrow batch; slices share them."""
    offsets: Ints
    """Index of each message in `data`, and after the last one its end."""
    sequence_ids: Ints
    """Rising, one per message."""

    def sizes(self) -> Ints:
        """Returns the bytes of each message, metadata included."""
        return np.diff(self.offsets)

    def slice(self, start: int, end: int) -> MessageRows:
        """Returns the messages from `start` up to but without `end`; the buffer is shared."""
        return MessageRows(self.data, self.offsets[start : end + 1], self.sequence_ids[start:end])


def message_rows(batch: pa.RecordBatch, payloads: pa.Array, sequence_ids: Ints) -> MessageRows:
    """Encodes one message per row of `batch`.

    `payloads` are the encoded values, null for a message without a value. OptionError where a metadata column has a
    wrong type.
    """
    count = len(payloads)
    plain = payloads.cast(pa.binary())
    null = _missing(plain)
    lengths = _lengths(plain)
    keys, encoded = _keys(batch)
    properties = _properties(batch)

    # Tags of SingleMessageMetadata: properties 0x0a, key 0x12, payload size 0x18, event time 0x28, key is base64 0x30,
    # sequence id 0x40, null value 0x48.
    tail = [constant_bytes(b"\x18", count), write_varints(lengths)]
    event_times = _event_times(batch)
    if event_times is not None:
        _where(tail, event_times > 0, b"\x28", event_times)
    if encoded.any():
        _where(tail, encoded, b"\x30", encoded.astype(np.int64))
    tail += [constant_bytes(b"\x40", count), write_varints(sequence_ids)]
    if null.any():
        _where(tail, null, b"\x48", null.astype(np.int64))
    ends = from_rows(*join_rows(tail))

    key_heads = _key_heads(keys, count)
    sizes = _lengths(ends) + sum(
        (_lengths(part) for part in (properties, key_heads, keys) if part is not None), 0
    )
    # The size field counts the metadata alone; the payload's size stands in the metadata.
    heads = np.ascontiguousarray(sizes.astype(">u4")).view(np.uint8)
    pieces = [from_rows(heads, np.full(count, 4)), properties, key_heads, keys, ends, plain]
    filled = [_filled(piece) for piece in pieces if piece is not None]
    whole = pc.binary_join_element_wise(*filled, _EMPTY)
    return MessageRows(whole.buffers()[2], _offsets(whole), sequence_ids)


_EMPTY: Final = bytes_scalar(b"")


def _filled(values: pa.BinaryArray) -> pa.BinaryArray:
    return values.fill_null(_EMPTY) if values.null_count else values


def _offsets(values: pa.BinaryArray) -> Ints:
    found = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    return found.astype(np.int64)


def _lengths(values: pa.BinaryArray) -> Ints:
    """Returns the length of each value; 0 for a null, whose offsets Arrow leaves undefined."""
    lengths = np.diff(_offsets(values))
    return np.where(_missing(values), 0, lengths) if values.null_count else lengths


def _missing(values: pa.Array) -> Flags:
    if not values.null_count:
        return np.zeros(len(values), np.bool_)
    found: Flags = values.is_null().to_numpy(zero_copy_only=False)
    return found


def _where(parts: list[_Part], there: Flags, tag: bytes, values: Ints) -> None:
    """Appends a varint field that only the rows `there` have."""
    places, used = constant_bytes(tag, len(values))
    parts.append((places, used & there[:, None]))
    places, used = write_varints(np.where(there, values, 0))
    parts.append((places, used & there[:, None]))


def _column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    index = batch.schema.get_field_index(name)
    return None if index < 0 else batch.column(index)


def _keys(batch: pa.RecordBatch) -> tuple[pa.BinaryArray | None, Flags]:
    """Returns the keys as protobuf text, and flags for those that are no UTF-8 and are encoded as base64."""
    column = _column(batch, KEY)
    nothing = np.zeros(batch.num_rows, np.bool_)
    if column is None or column.null_count == len(column):
        return None, nothing
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        # Nearly all keys are text: cast the column at once, and look at single keys only if that fails.
        try:
            return column.cast(pa.string()).cast(pa.binary()), nothing
        except pa.ArrowInvalid:
            plain: list[bytes | None] = column.to_pylist()
            encoded = np.array([key is not None and not _is_text(key) for key in plain])
            texts = [
                base64.b64encode(key or b"") if flag else key
                for key, flag in zip(plain, encoded, strict=True)
            ]
            return binaries(texts), encoded
    raise OptionError(f"{KEY} is of type {column.type}: string or binary is expected")


def _is_text(key: bytes) -> bool:
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


def _key_heads(keys: pa.BinaryArray | None, count: int) -> pa.BinaryArray | None:
    if keys is None:
        return None
    parts: list[_Part] = []
    _where(parts, ~_missing(keys), b"\x12", _lengths(keys))
    return from_rows(*join_rows(parts))


def _event_times(batch: pa.RecordBatch) -> Ints | None:
    """Returns event times in milliseconds since 1970, 0 where there is none; None without the column."""
    column = _column(batch, _EVENT_TIME)
    if column is None or column.null_count == len(column):
        return None
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64()).fill_null(0)
        found: Ints = column.to_numpy(zero_copy_only=False) // 1000
        return found
    if pa.types.is_int64(column.type):
        given: Ints = column.fill_null(0).to_numpy(zero_copy_only=False)
        return given
    raise OptionError(f"{_EVENT_TIME} is of type {column.type}: timestamp or long (milliseconds) is expected")


def _properties(batch: pa.RecordBatch) -> pa.BinaryArray | None:
    """Encodes each row's properties; None without the column.

    All pairs of the batch are encoded as one column. They are sorted by row already, so a row's properties are a slice
    of the result: only the offsets change.
    """
    column = _column(batch, _PROPERTIES)
    if column is None or column.null_count == len(column):
        return None
    if not pa.types.is_map(column.type):
        raise OptionError(f"{_PROPERTIES} is of type {column.type}: map<string,string> is expected")
    borders = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    keys, values = _text(column.keys), _text(column.items)
    inner = (
        _lengths(keys)
        + _lengths(values)
        + 2
        + _varint_lengths(_lengths(keys))
        + _varint_lengths(_lengths(values))
    )
    count = len(keys)
    heads = from_rows(
        *join_rows(
            [
                constant_bytes(b"\x0a", count),
                write_varints(inner),
                constant_bytes(b"\x0a", count),
                write_varints(_lengths(keys)),
            ]
        )
    )
    middles = from_rows(*join_rows([constant_bytes(b"\x12", count), write_varints(_lengths(values))]))
    pairs = pc.binary_join_element_wise(heads, keys, middles, values, _EMPTY)
    offsets = _offsets(pairs)[borders]
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(column), [None, numbers(offsets, pa.int32()).buffers()[1], pairs.buffers()[2]]
    )


def _text(values: pa.Array) -> pa.BinaryArray:
    return _filled(values.cast(pa.string()).cast(pa.binary()))


def _varint_lengths(values: Ints) -> Ints:
    lengths: Ints = write_varints(values)[1].sum(axis=1)
    return lengths
