"""Writes rows as Avro records column by column: each column becomes pieces of bytes, Arrow joins the pieces of a row.

The functions call each other recursively along the types; a step works on all rows of an Arrow batch.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_pulsar.columns.arrow_spans import bytes_scalar, flags, from_rows, numbers
from pyspark_pulsar.cutting.protobuf_columns import Flags, Ints, constant_bytes, join_rows, write_varints
from pyspark_pulsar.errors import OptionError

_NOTHING = bytes_scalar(b"")
_DECIMAL_BYTES = 16
_NULL_BRANCH, _VALUE_BRANCH = b"\x00", b"\x02"
"""The first and the second type of a union ["null", …]."""


def write_records(batch: pa.RecordBatch) -> pa.BinaryArray:
    """Returns one record per row, as `definition_of` describes it: every field a union of null and its type.

    OptionError for a column type that Avro does not have.
    """
    return _join([_optional(column) for column in batch.columns])


def _join(pieces: list[pa.BinaryArray]) -> pa.BinaryArray:
    return pieces[0] if len(pieces) == 1 else pc.binary_join_element_wise(*pieces, _NOTHING)


def _optional(column: pa.Array) -> pa.BinaryArray:
    """Returns the union's branch number and after it the value, if there is one."""
    there: Flags = column.is_valid().to_numpy(zero_copy_only=False)
    values = _plain(column)
    empty = values if there.all() else pc.if_else(flags(there), values, _NOTHING)
    branch = np.where(there, _VALUE_BRANCH[0], _NULL_BRANCH[0]).astype(np.uint8)
    return _join([from_rows(branch, np.ones(len(column), np.int64)), empty])


def _zigzag(values: Ints) -> Ints:
    return (values << 1) ^ (values >> 63)


def _longs(values: Ints) -> pa.BinaryArray:
    return from_rows(*join_rows([write_varints(_zigzag(values))]))


def _plain(column: pa.Array) -> pa.BinaryArray:
    """Returns each value without its branch; arbitrary bytes where it is null, which the caller replaces."""
    kind = column.type
    if pa.types.is_struct(kind):
        return _join([_optional(part) for part in column.flatten()])
    if pa.types.is_list(kind):
        return _blocks(_offsets(column), _optional(column.flatten()), len(column))
    if pa.types.is_map(kind):
        first, last = _offsets(column)[0], _offsets(column)[-1]
        keys, items = column.keys.slice(first, last - first), column.items.slice(first, last - first)
        return _blocks(_offsets(column), _join([_plain(keys), _optional(items)]), len(column))
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        values = column.cast(pa.binary()).fill_null(b"")
        lengths = pc.binary_length(values).to_numpy(zero_copy_only=False).astype(np.int64)
        return _join([_longs(lengths), values])
    if pa.types.is_decimal128(kind):
        return _decimals(column)
    if pa.types.is_boolean(kind):
        bits = column.fill_null(False).to_numpy(zero_copy_only=False).astype(np.uint8)
        return from_rows(bits, np.ones(len(column), np.int64))
    if pa.types.is_floating(kind):
        wire = np.dtype("<f4" if kind == pa.float32() else "<f8")
        written = column.fill_null(0.0).to_numpy(zero_copy_only=False).astype(wire)
        return from_rows(written.view(np.uint8), np.full(len(column), wire.itemsize))
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", tz=kind.tz)).cast(pa.int64())
    elif pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    elif not pa.types.is_integer(kind):
        raise OptionError(f"a column of type {kind} cannot be written as Avro: cast it")
    return _longs(column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64))


def _decimals(column: pa.Decimal128Array) -> pa.BinaryArray:
    """Returns each number without its point as 16 bytes, most significant first, and before them their count."""
    # Arrow keeps 16 bytes too, least significant first.
    rows = np.frombuffer(column.buffers()[1], np.uint8).reshape(-1, _DECIMAL_BYTES)
    written = np.empty((len(column), 1 + _DECIMAL_BYTES), np.uint8)
    written[:, 0] = _DECIMAL_BYTES << 1  # Zigzag, as in `_longs`.
    written[:, 1:] = rows[column.offset : column.offset + len(column), ::-1]
    return from_rows(written.reshape(-1), np.full(len(column), 1 + _DECIMAL_BYTES))


def _offsets(column: pa.Array) -> Ints:
    found: Ints = column.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _blocks(offsets: Ints, items: pa.BinaryArray, count: int) -> pa.BinaryArray:
    """Returns each row's items as one block and the final block of count 0.

    The items of all rows lie one after the other already, so a row's block is a slice of them: only offsets change.
    """
    ends = np.frombuffer(items.buffers()[1], np.int32)[items.offset : items.offset + len(items) + 1]
    borders = ends[offsets - offsets[0]]
    contents = pa.BinaryArray.from_buffers(
        pa.binary(), count, [None, numbers(borders, pa.int32()).buffers()[1], items.buffers()[2]]
    )
    lengths = np.diff(offsets)
    places, used = write_varints(_zigzag(lengths))
    heads = from_rows(*join_rows([(places, used & (lengths > 0)[:, None])]))
    ends_of_rows = from_rows(*join_rows([constant_bytes(b"\x00", count)]))
    return _join([heads, contents, ends_of_rows])
