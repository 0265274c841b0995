"""The columns of a row that are not metadata, as a message's payload, and the schema that says so to Pulsar."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from protocol.pulsar_api_pb2 import Schema
from pyspark_pulsar.columns.arrow_spans import from_rows, validity
from pyspark_pulsar.errors import OptionError
from pyspark_pulsar.options import SchemaChoice
from pyspark_pulsar.writing.message_rows import SINK_METADATA


class ValueEncoder(Protocol):
    def pulsar_schema(self) -> Schema | None: ...

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        """One payload per row, null for a message without a value."""
        ...


class RawValue:
    """Bytes and text as they are."""

    def __init__(self, column: str, *, text: bool) -> None:
        self._column = column
        self._text = text

    def pulsar_schema(self) -> Schema | None:
        return Schema(name="String", schema_data=b"", type=Schema.String) if self._text else None

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        return batch.column(batch.schema.get_field_index(self._column))


_PRIMITIVES: dict[type[DataType], tuple[str, str, Schema.Type.ValueType]] = {
    ByteType: (">i1", "INT8", Schema.Int8),
    ShortType: (">i2", "INT16", Schema.Int16),
    IntegerType: (">i4", "INT32", Schema.Int32),
    LongType: (">i8", "INT64", Schema.Int64),
    FloatType: (">f4", "Float", Schema.Float),
    DoubleType: (">f8", "Double", Schema.Double),
    BooleanType: (">i1", "Boolean", Schema.Bool),
}


class PrimitiveValue:
    """A number as Pulsar's clients write it: big-endian, all its bytes."""

    def __init__(self, column: str, kind: type[DataType]) -> None:
        self._column = column
        self._kind = kind

    def pulsar_schema(self) -> Schema | None:
        _, name, number = _PRIMITIVES[self._kind]
        return Schema(name=name, schema_data=b"", type=number)

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        column = batch.column(batch.schema.get_field_index(self._column))
        missing = column.is_null().to_numpy(zero_copy_only=False)
        if column.null_count:
            column = column.fill_null(False if pa.types.is_boolean(column.type) else 0)
        wire = np.dtype(_PRIMITIVES[self._kind][0])
        written = column.to_numpy(zero_copy_only=False).astype(wire)
        plain = from_rows(written.view(np.uint8), np.full(len(written), wire.itemsize))
        return pa.BinaryArray.from_buffers(pa.binary(), len(plain), [validity(missing), *plain.buffers()[1:]])


def make_encoder(schema: StructType, choice: SchemaChoice | None) -> ValueEncoder:
    """OptionError where rows have nothing that could be a value."""
    fields = [field for field in schema.fields if field.name not in SINK_METADATA]
    if len(fields) != 1:
        names = ", ".join(field.name for field in fields) or "none"
        raise OptionError(
            f"one column must hold the message's value, besides {', '.join(SINK_METADATA)}; found {names}"
        )
    field = fields[0]
    kind = type(field.dataType)
    if kind in (BinaryType, StringType):
        return RawValue(field.name, text=kind is StringType)
    if kind in _PRIMITIVES:
        return PrimitiveValue(field.name, kind)
    raise OptionError(
        f"column {field.name} is of type {field.dataType.simpleString()}, which cannot be a value"
    )
