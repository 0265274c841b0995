"""Reads JSON values: with Arrow's parser over all values at once, or with Python's one by one where Arrow's cannot.

Arrow's parser cannot read maps (objects in JSON, lists of pairs to Arrow), bytes (base64 in JSON) and decimals, and
gives no result for values that are not one object each.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from pyspark_pulsar.columns.arrow_spans import bytes_scalar, numbers
from pyspark_pulsar.columns.avro_schema import AvroNode
from pyspark_pulsar.errors import MalformedEntry

_NEWLINE, _NOTHING = bytes_scalar(b"\n"), bytes_scalar(b"")


def read_json(
    values: pa.BinaryArray, schema: pa.Schema, definition: AvroNode | None = None
) -> dict[str, pa.Array]:
    """Returns a column per field of `schema`; `values` have no nulls. Fields that a value lacks are null.

    Times are milliseconds, unless the record's `definition` says microseconds, as that of this package's sink does.
    MalformedEntry where a value is no JSON object, or a field has another type.
    """
    if len(values) and all(_arrow_can(field.type) for field in schema):
        table = _read_all(values, schema)
        if table is not None:
            return {
                field.name: _finish(
                    table.column(field.name).combine_chunks(), field.type, _part(definition, field.name)
                )
                for field in schema
            }
    return _one_by_one(values, schema, definition)


def _part(node: AvroNode | None, name: str) -> AvroNode | None:
    """Returns the definition of a field, `items` or `values` below a node, which may be a union with null."""
    if node is None:
        return None
    nullable = node.nullable_part()
    return (node if nullable is None else nullable[1]).parts.get(name)


def _factor(node: AvroNode | None) -> int:
    """Returns the microseconds in a unit of a time: 1000, or 1 where the definition says microseconds."""
    if node is None:
        return 1000
    nullable = node.nullable_part()
    return 1 if (node if nullable is None else nullable[1]).logical.endswith("timestamp-micros") else 1000


def _arrow_can(kind: pa.DataType, *, top: bool = True) -> bool:
    """Returns False for types that Arrow's parser reads otherwise than Pulsar's clients write them."""
    if pa.types.is_struct(kind):
        return all(_arrow_can(kind.field(number).type, top=False) for number in range(kind.num_fields))
    if pa.types.is_list(kind):
        return _arrow_can(kind.value_type, top=False)
    # `_finish` converts the unit of whole columns only, so a time inside of a struct or list is read in Python.
    if pa.types.is_timestamp(kind):
        return top
    return not (pa.types.is_map(kind) or pa.types.is_binary(kind) or pa.types.is_decimal(kind))


def _on_wire(kind: pa.DataType) -> pa.DataType:
    """Returns the type that a field has in JSON, in which times and dates are numbers."""
    if pa.types.is_struct(kind):
        return pa.struct([(kind.field(n).name, _on_wire(kind.field(n).type)) for n in range(kind.num_fields)])
    if pa.types.is_list(kind):
        return pa.list_(_on_wire(kind.value_type))
    if pa.types.is_timestamp(kind):
        return pa.int64()
    return pa.int32() if pa.types.is_date32(kind) else kind


def _finish(column: pa.Array, kind: pa.DataType, node: AvroNode | None) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pc.multiply(column, numbers(np.array([_factor(node)]))[0]).view(kind)
    return column if column.type == kind else column.cast(kind)


def _read_all(values: pa.BinaryArray, schema: pa.Schema) -> pa.Table | None:
    """Parses all values as one text of lines; None where that gives something else than one object per value."""
    lines = pc.binary_join_element_wise(values, _NOTHING, _NEWLINE).buffers()[2]
    wire = pa.schema([(field.name, _on_wire(field.type)) for field in schema])
    parse = arrow_json.ParseOptions(
        explicit_schema=wire, newlines_in_values=True, unexpected_field_behavior="ignore"
    )
    # A block must hold a whole object, or the parser fails.
    read = arrow_json.ReadOptions(use_threads=False, block_size=max(1 << 20, 2 * _longest(values)))
    try:
        table = arrow_json.read_json(pa.BufferReader(lines), read, parse)
    except pa.ArrowInvalid:
        return None
    # A value that holds no object, or two of them, would shift every row after it.
    return table if table.num_rows == len(values) else None


def _longest(values: pa.BinaryArray) -> int:
    return int(np.diff(np.frombuffer(values.buffers()[1], np.int32)).max(initial=0))


def _one_by_one(
    values: pa.BinaryArray, schema: pa.Schema, definition: AvroNode | None
) -> dict[str, pa.Array]:
    rows = []
    for value in values.to_pylist():
        try:
            row = json.loads(value)
        except ValueError as error:
            raise MalformedEntry(
                f"a value is no JSON, as the topic's schema says: {error}: {value[:100]!r}"
            ) from None
        if not isinstance(row, dict):
            raise MalformedEntry(f"a value is no JSON object, as the topic's schema says: {value[:100]!r}")
        rows.append(row)
    columns = {}
    for field in schema:
        node = _part(definition, field.name)
        plain = [_plain(row.get(field.name), field.type, node) for row in rows]
        try:
            columns[field.name] = pa.array(plain, field.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise MalformedEntry(f"field {field.name} is not of the topic's schema: {error}") from None
    return columns


def _plain(value: Any, kind: pa.DataType, node: AvroNode | None) -> Any:
    """Converts a value of Python's parser to what Arrow accepts for this type."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        fields = (kind.field(number) for number in range(kind.num_fields))
        return {part.name: _plain(value.get(part.name), part.type, _part(node, part.name)) for part in fields}
    if pa.types.is_list(kind):
        return [_plain(item, kind.value_type, _part(node, "items")) for item in value]
    if pa.types.is_map(kind):
        return [(key, _plain(item, kind.item_type, _part(node, "values"))) for key, item in value.items()]
    if pa.types.is_timestamp(kind):
        return int(value) * _factor(node)
    if pa.types.is_binary(kind) and isinstance(value, str):
        return base64.b64decode(value)
    return value
