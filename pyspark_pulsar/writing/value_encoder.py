"""Encodes the value columns of rows as payloads, and gives the schema that the topic gets for them.

`make_encoder` runs on the driver and chooses a class; the object is pickled to the tasks.
"""

from __future__ import annotations

import base64
import datetime
import json
from typing import Any, Protocol

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
from pyspark_pulsar.columns.arrow_spans import binaries, from_rows, validity
from pyspark_pulsar.columns.avro_schema import definition_of
from pyspark_pulsar.columns.metadata_columns import METADATA_COLUMNS
from pyspark_pulsar.errors import OptionError
from pyspark_pulsar.options import SchemaChoice
from pyspark_pulsar.writing.avro_writer import write_records
from pyspark_pulsar.writing.message_rows import SINK_METADATA


class ValueEncoder(Protocol):
    """Turns the value columns of rows into payloads. Created on the driver and pickled to the tasks; stateless."""

    def pulsar_schema(self) -> Schema | None:
        """Returns the schema with which producers are opened; None leaves the topic's schema unchanged."""
        ...

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        """Returns one payload per row, null for a message without a value."""
        ...


class RawEncoder:
    """One column of bytes or text, written as it is."""

    def __init__(self, column: str, *, text: bool) -> None:
        self._column = column
        self._text = text

    def pulsar_schema(self) -> Schema | None:
        """Returns STRING for text, None for bytes, so that a topic keeps the schema that it has."""
        return Schema(name="String", schema_data=b"", type=Schema.String) if self._text else None

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        """Returns the column itself."""
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


class PrimitiveEncoder:
    """One column of numbers or booleans, written as Pulsar's clients do: big-endian, of fixed size."""

    def __init__(self, column: str, kind: type[DataType]) -> None:
        self._column = column
        self._kind = kind

    def pulsar_schema(self) -> Schema | None:
        """Returns the schema type of the number."""
        _, name, number = _PRIMITIVES[self._kind]
        return Schema(name=name, schema_data=b"", type=number)

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        """Converts all numbers to big-endian at once."""
        column = batch.column(batch.schema.get_field_index(self._column))
        missing = column.is_null().to_numpy(zero_copy_only=False)
        # numpy has no null in integers: fill, convert, and put the nulls back as validity bits.
        if column.null_count:
            column = column.fill_null(False if pa.types.is_boolean(column.type) else 0)
        wire = np.dtype(_PRIMITIVES[self._kind][0])
        written = column.to_numpy(zero_copy_only=False).astype(wire)
        plain = from_rows(written.view(np.uint8), np.full(len(written), wire.itemsize))
        return pa.BinaryArray.from_buffers(pa.binary(), len(plain), [validity(missing), *plain.buffers()[1:]])


class AvroValue:
    """Several columns as an Avro record; every field is a union with null, because Spark's columns are nullable."""

    def __init__(self, schema: StructType) -> None:
        self._schema = schema
        self._definition = json.dumps(definition_of(schema))

    def pulsar_schema(self) -> Schema | None:
        """Returns AVRO with the definition of the columns."""
        return Schema(name="", schema_data=self._definition.encode(), type=Schema.Avro)

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        """Encodes column by column."""
        return write_records(batch.select(self._schema.names))


class JsonValue:
    """Several columns as a JSON object per row; columns without a value are left out.

    Rows are encoded one by one in Python, so this is much slower than AVRO.
    """

    def __init__(self, schema: StructType) -> None:
        self._schema = schema
        self._definition = json.dumps(definition_of(schema))
        if '"logicalType": "decimal"' in self._definition:
            raise OptionError(
                "schemaType=JSON has no decimals: cast such columns to double or string, or use AVRO"
            )

    def pulsar_schema(self) -> Schema | None:
        """Returns JSON with the definition of the columns."""
        return Schema(name="", schema_data=self._definition.encode(), type=Schema.Json)

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        """Encodes row by row."""
        rows = batch.select(self._schema.names).to_pylist(maps_as_pydicts="lossy")
        return binaries([_json_bytes(row) for row in rows])


def _json_bytes(row: dict[str, Any]) -> bytes:
    there = {name: value for name, value in row.items() if value is not None}
    return json.dumps(there, default=_json_of, separators=(",", ":"), ensure_ascii=False).encode()


def _json_of(value: object) -> object:
    """Converts values as Pulsar's clients do: bytes to base64, times to microseconds, dates to days since 1970."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.datetime):
        zoned = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
        return int(zoned.timestamp() * 1_000_000)
    if isinstance(value, datetime.date):
        return (value - datetime.date(1970, 1, 1)).days
    raise OptionError(f"a value of type {type(value).__name__} cannot be written as JSON: cast the column")


def make_encoder(schema: StructType, choice: SchemaChoice | None) -> ValueEncoder:
    """Chooses the encoder by the value columns and schemaType (`choice`).

    OptionError where there is no value column, or one of a type that the schema cannot have.
    """
    # Also without those that only the broker or the producer sets, so that rows of the source can be written as they are.
    fields = [field for field in schema.fields if field.name not in METADATA_COLUMNS]
    if not fields:
        raise OptionError(
            f"no column holds a message's value: add a column besides {', '.join(SINK_METADATA)}"
        )
    wanted = None if choice is None else choice.type_name
    if choice is not None and choice.definition is not None:
        raise OptionError(
            "schemaDefinition is given to a writer, whose definition follows from the columns: leave it out"
        )
    if wanted == "JSON":
        return JsonValue(StructType(fields))
    if wanted == "AVRO" or len(fields) > 1 or isinstance(fields[0].dataType, StructType):
        return AvroValue(StructType(fields))
    field = fields[0]
    kind = type(field.dataType)
    if kind in (BinaryType, StringType) and wanted in (None, "BYTES", "STRING"):
        return RawEncoder(field.name, text=wanted == "STRING" or (kind is StringType and wanted is None))
    if kind in _PRIMITIVES and wanted in (None, _PRIMITIVES[kind][1].upper()):
        return PrimitiveEncoder(field.name, kind)
    raise OptionError(
        f"column {field.name} is of type {field.dataType.simpleString()}, which cannot be a value of type "
        f"{wanted or 'BYTES'}: cast it, or set schemaType=AVRO or JSON"
    )
