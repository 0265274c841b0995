"""The value of each message as one or more columns, by the topic's schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_pulsar.columns.arrow_spans import flags, spread, take_ranges
from pyspark_pulsar.columns.metadata_columns import Rows
from pyspark_pulsar.cutting.entry_table import EntryField
from pyspark_pulsar.cutting.message_table import MessageField
from pyspark_pulsar.cutting.protobuf_columns import Flags


class SchemaSource(Protocol):
    """Where a task finds the schema that a message was written with."""

    def definition(self, topic: str, version: int) -> str: ...


class ValueColumns(Protocol):
    """Must pickle: it is made on the driver and used in tasks."""

    def spark_fields(self) -> StructType:
        """All columns that a value gives, in order."""
        ...

    def read(self, rows: Rows, wanted: Sequence[str], schemas: SchemaSource) -> dict[str, pa.Array]:
        """The columns `wanted`, one element per message. MalformedEntry where a value is not of the schema."""
        ...


def is_null(rows: Rows) -> Flags:
    """Which messages were sent without a value."""
    null: Flags = rows.messages.numbers(rows.entries, MessageField.NULL_VALUE, EntryField.NULL_VALUE) != 0
    return null


def value_bytes(rows: Rows) -> pa.BinaryArray:
    """Each message's payload, null where it was sent without a value."""
    values = take_ranges(rows.messages.data, rows.messages.starts, rows.messages.ends)
    null = is_null(rows)
    return spread(values.filter(flags(~null)), ~null) if null.any() else values


class RawValue:
    """`value binary`: the payload as it is."""

    def spark_fields(self) -> StructType:
        return StructType([StructField("value", BinaryType())])

    def read(self, rows: Rows, wanted: Sequence[str], schemas: SchemaSource) -> dict[str, pa.Array]:
        return {"value": value_bytes(rows)}
