"""The interface of value columns, and the simplest kind: the value as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_pulsar.columns.arrow_spans import flags, spread, take_ranges
from pyspark_pulsar.columns.metadata_columns import WantedRows
from pyspark_pulsar.cutting.entry_table import EntryField
from pyspark_pulsar.cutting.message_table import MessageField
from pyspark_pulsar.cutting.protobuf_columns import Flags


class SchemaSource(Protocol):
    """Finds the schema that a message was written with."""

    def definition(self, topic: str, version: int) -> str:
        """Returns the Avro definition as JSON text. BrokerRefused where the topic has no such version."""
        ...


class ValueColumns(Protocol):
    """The columns that messages' values become. Created on the driver and pickled to the tasks; stateless."""

    def spark_fields(self) -> StructType:
        """Returns all columns of a value, in order."""
        ...

    def read(self, rows: WantedRows, wanted: Sequence[str], schemas: SchemaSource) -> dict[str, pa.Array]:
        """Returns the columns `wanted`, one element per message; null for a message without a value.

        MalformedEntry where a value does not fit the schema.
        """
        ...


def is_null(rows: WantedRows) -> Flags:
    """Returns True for messages that were sent without a value."""
    null: Flags = rows.messages.numbers(rows.entries, MessageField.NULL_VALUE, EntryField.NULL_VALUE) != 0
    return null


def value_bytes(rows: WantedRows) -> pa.BinaryArray:
    """Returns each message's payload; null where it was sent without a value."""
    values = take_ranges(rows.messages.data, rows.messages.starts, rows.messages.ends)
    null = is_null(rows)
    return spread(values.filter(flags(~null)), ~null) if null.any() else values


class RawValue:
    """A column `value binary` with the payload as it is."""

    def spark_fields(self) -> StructType:
        """Returns a column `value binary`."""
        return StructType([StructField("value", BinaryType())])

    def read(self, rows: WantedRows, wanted: Sequence[str], schemas: SchemaSource) -> dict[str, pa.Array]:
        """Never raises: any bytes are a value."""
        return {"value": value_bytes(rows)}
