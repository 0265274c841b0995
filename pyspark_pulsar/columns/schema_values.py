"""Reads values by the topic's schema: primitives become a column `value`, records a column per field.

`values_of_topic` and `values_of_choice` run on the driver and choose one of the classes; the object is pickled to the
tasks, which read with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from protocol.pulsar_api_pb2 import Schema
from pyspark_pulsar.columns.arrow_spans import as_text, flags, numbers, spread
from pyspark_pulsar.columns.avro_reader import read_records
from pyspark_pulsar.columns.avro_schema import AvroNode, parse_definition, spark_struct
from pyspark_pulsar.columns.json_reader import read_json
from pyspark_pulsar.columns.metadata_columns import METADATA_COLUMNS, WantedRows, schema_versions
from pyspark_pulsar.columns.value_columns import RawValue, SchemaSource, ValueColumns, is_null, value_bytes
from pyspark_pulsar.cutting.protobuf_columns import Flags
from pyspark_pulsar.errors import MalformedEntry, OptionError
from pyspark_pulsar.options import SCHEMA_TYPES, SchemaChoice


class TextValue:
    """A column `value string`; invalid UTF-8 is replaced by U+FFFD."""

    def spark_fields(self) -> StructType:
        """Returns a column `value string`."""
        return StructType([StructField("value", StringType())])

    def read(self, rows: WantedRows, wanted: Sequence[str], schemas: SchemaSource) -> dict[str, pa.Array]:
        """Casts the payloads without copying, if they are valid UTF-8."""
        return {"value": as_text(value_bytes(rows))}


_MS_PER_DAY: Final = 86_400_000


class _Primitive(NamedTuple):
    column: DataType
    """Of the column `value`."""
    width: int
    """Bytes of a value."""
    number: str = ""
    """numpy's name of a value that is one number of the column; empty for one that `_decode` has to convert."""
    arrow: pa.DataType | None = None
    """The column's type in Arrow, for such a number."""


_PRIMITIVES: Final[Mapping[str, _Primitive]] = {
    "BOOLEAN": _Primitive(BooleanType(), 1),
    "INT8": _Primitive(ByteType(), 1, ">i1", pa.int8()),
    "INT16": _Primitive(ShortType(), 2, ">i2", pa.int16()),
    "INT32": _Primitive(IntegerType(), 4, ">i4", pa.int32()),
    "INT64": _Primitive(LongType(), 8, ">i8", pa.int64()),
    "FLOAT": _Primitive(FloatType(), 4, ">f4", pa.float32()),
    "DOUBLE": _Primitive(DoubleType(), 8, ">f8", pa.float64()),
    "DATE": _Primitive(DateType(), 8),
    "TIME": _Primitive(TimestampType(), 8),
    "TIMESTAMP": _Primitive(TimestampType(), 8),
    "INSTANT": _Primitive(TimestampType(), 12),
    "LOCAL_DATE": _Primitive(DateType(), 8, ">i8", pa.date32()),
    "LOCAL_TIME": _Primitive(LongType(), 8, ">i8", pa.int64()),
    "LOCAL_DATE_TIME": _Primitive(TimestampNTZType(), 16),
}
"""By schema type. LOCAL_TIME is nanoseconds of the day."""


class PrimitiveValue:
    """A column `value` of numbers, booleans or times, as Pulsar's clients write them: big-endian, of fixed size."""

    def __init__(self, name: str) -> None:
        """`name` is a key of `_PRIMITIVES`."""
        self._name = name

    def spark_fields(self) -> StructType:
        """Returns a column `value` of the type that fits."""
        return StructType([StructField("value", _PRIMITIVES[self._name].column)])

    def read(self, rows: WantedRows, wanted: Sequence[str], schemas: SchemaSource) -> dict[str, pa.Array]:
        """Reads the column. Raises MalformedEntry where a value has another length than its type."""
        width = _PRIMITIVES[self._name].width
        messages = rows.messages
        null = is_null(rows)
        starts = messages.starts[~null]
        lengths = messages.ends[~null] - starts
        if (lengths != width).any():
            wrong = int(lengths[lengths != width][0])
            raise MalformedEntry(f"a value has {wrong} bytes, the topic's schema {self._name} says {width}")
        places = np.ascontiguousarray(messages.data[starts[:, None] + np.arange(width)])
        column = _decode(self._name, places)
        return {"value": spread(column, ~null) if null.any() else column}


def _decode(name: str, places: Any) -> pa.Array:
    """Converts values to an Arrow column; `places` holds the bytes of each value as a row."""

    def big(kind: str, first: int = 0, last: int | None = None) -> Any:
        return np.ascontiguousarray(places[:, first:last]).view(kind).ravel()

    if name == "BOOLEAN":
        return flags(places[:, 0] != 0)
    primitive = _PRIMITIVES[name]
    if primitive.number:
        return numbers(big(primitive.number), primitive.arrow)
    if name == "DATE":
        # Rounded down, so that a time before 1970 falls on its own day and not on the next.
        return numbers(big(">i8") // _MS_PER_DAY, pa.date32())
    if name == "INSTANT":
        micros = big(">i8", 0, 8) * 1_000_000 + big(">i4", 8) // 1000
    elif name == "LOCAL_DATE_TIME":
        micros = big(">i8", 0, 8) * (_MS_PER_DAY * 1000) + big(">i8", 8) // 1000
        return numbers(micros).view(pa.timestamp("us"))
    else:
        micros = big(">i8").astype(np.int64) * 1000
    return numbers(micros).view(pa.timestamp("us", tz="UTC"))


class RecordValue:
    """A column per field of a record, written as AVRO or JSON.

    An AVRO value can only be read with the schema that it was written with, so values are grouped by topic and schema
    version; then columns are cast to the newest schema: fields by name, missing ones null, numbers widened.
    """

    def __init__(self, kind: str, fields: StructType, definition: str | None, *, fixed: bool) -> None:
        """`fixed` marks the user's own definition, which then holds for the messages of all versions.

        OptionError where a field has the name of a metadata column.
        """
        clash = [name for name in fields.names if name in METADATA_COLUMNS]
        if clash:
            raise OptionError(
                f"the topic's schema has a field {clash[0]}, which is the name of a metadata column: set "
                "schemaType=BYTES and parse the values yourself"
            )
        self._kind = kind
        self._fields = fields
        self._definition = definition
        self._fixed = fixed

    def spark_fields(self) -> StructType:
        """Returns a column per field of the newest schema, or of the user's definition."""
        return self._fields

    def read(self, rows: WantedRows, wanted: Sequence[str], schemas: SchemaSource) -> dict[str, pa.Array]:
        """Reads the column. Raises also BrokerRefused where a writer's schema version is missing on the broker."""
        chosen = StructType([part for part in self._fields.fields if part.name in wanted])
        schema = to_arrow_schema(chosen, timezone="UTC")
        if self._kind == "JSON":
            null = is_null(rows)
            definition = None if self._definition is None else parse_definition(self._definition)
            columns = read_json(value_bytes(rows).drop_null(), schema, definition)
            return {name: spread(one, ~null) if null.any() else one for name, one in columns.items()}
        return self._read_avro(rows, schema, schemas)

    def _read_avro(self, rows: WantedRows, schema: pa.Schema, schemas: SchemaSource) -> dict[str, pa.Array]:
        """Reads the messages of one topic and schema version at a time."""
        versions = rows.per_message(schema_versions(rows.entries))
        topics = rows.per_message(rows.origin.topic_rows)
        there = ~is_null(rows)
        if self._fixed:
            # One definition for all: a single group of messages, whatever their topics and versions.
            versions = np.zeros_like(versions)
            topics = versions
        kinds = np.stack([topics[there], versions[there]], axis=1)
        pieces: list[tuple[Flags, dict[str, pa.Array]]] = []
        for topic_row, version in np.unique(kinds, axis=0).tolist():
            mine = there & (topics == topic_row) & (versions == version)
            writer = self._writer(rows, topic_row, version, schemas)
            found = read_records(
                rows.messages.data, rows.messages.starts[mine], rows.messages.ends[mine], writer
            )
            pieces.append((mine, found))
        return {part.name: _gather(part, pieces, len(there)) for part in schema}

    def _writer(self, rows: WantedRows, topic_row: int, version: int, schemas: SchemaSource) -> AvroNode:
        if self._fixed or version < 0:
            assert self._definition is not None
            return parse_definition(self._definition)
        return parse_definition(schemas.definition(rows.origin.topics[topic_row].as_py(), version))


def _gather(part: pa.Field, pieces: Sequence[tuple[Flags, dict[str, pa.Array]]], count: int) -> pa.Array:
    """Merges one field of messages of several schemas; null where a schema does not have it."""
    source = np.full(count, -1, np.int64)
    columns = []
    length = 0
    for mine, found in pieces:
        if part.name in found:
            column = found[part.name]
            source[mine] = length + np.arange(len(column))
            length += len(column)
            # Cast before they are joined: `concat_arrays` takes arrays of one type alone, and versions may differ in
            # width.
            columns.append(_fitted(column, part))
    if not columns:
        return pa.nulls(count, part.type)
    together = columns[0] if len(columns) == 1 else pa.concat_arrays(columns)
    if len(columns) == 1 and (source >= 0).all():
        return together
    return together.take(numbers(source, missing=source < 0))


def _fitted(column: pa.Array, part: pa.Field) -> pa.Array:
    try:
        return column if column.type == part.type else column.cast(part.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise MalformedEntry(
            f"field {part.name} was written as {column.type} and is {part.type} in the schema that is read; give the "
            "older definition as schemaDefinition, or read the column as bytes with schemaType=BYTES"
        ) from None


# The choice of a class


def _number_of(name: str) -> int:
    """Returns the number on the wire of a schema type, which is spelled LocalDateTime there."""
    return Schema.Type.Value("Bool" if name == "BOOLEAN" else name.title().replace("_", ""))


_NAMES: Final = {_number_of(name): name for name in SCHEMA_TYPES if name != "BYTES"}
"""Schema types that have columns; all others (none, protobuf, key and value) are read as bytes."""


def values_of_topic(schema: Schema | None) -> ValueColumns:
    """Returns the value columns for the schema that the broker has; None is a topic without a schema."""
    name = "BYTES" if schema is None else _NAMES.get(schema.type, "BYTES")
    definition = None if schema is None else schema.schema_data.decode(errors="replace")
    return _values(name, definition, None, fixed=False)


def values_of_choice(choice: SchemaChoice, given: StructType | None) -> ValueColumns:
    """Returns the value columns for the options schemaType and schemaDefinition.

    `given` is the user's `.schema(...)`; for JSON it can replace the definition. OptionError where one is missing.
    """
    return _values(choice.type_name, choice.definition, given, fixed=True)


def _values(name: str, definition: str | None, given: StructType | None, *, fixed: bool) -> ValueColumns:
    if name == "BYTES":
        return RawValue()
    if name == "STRING":
        return TextValue()
    if name in _PRIMITIVES:
        return PrimitiveValue(name)
    if definition:
        return RecordValue(name, spark_struct(parse_definition(definition)), definition, fixed=fixed)
    if given is None or name == "AVRO":
        more = "" if name == "AVRO" else ", or the columns by .schema(...)"
        raise OptionError(f"schemaType is {name}: give the record's definition as schemaDefinition{more}")
    columns = [part for part in given.fields if part.name not in METADATA_COLUMNS]
    return RecordValue(name, StructType(columns), None, fixed=fixed)


def same_schema(first: Schema | None, second: Schema | None) -> bool:
    """Returns True if values of both read alike: equal types, and for records equal definitions as JSON."""
    if first is None or second is None:
        return first is second
    if first.type != second.type:
        return False
    return first.type not in (Schema.Json, Schema.Avro) or _canonical(first) == _canonical(second)


def _canonical(schema: Schema) -> Any:
    try:
        return json.loads(schema.schema_data)
    except ValueError:
        return schema.schema_data
