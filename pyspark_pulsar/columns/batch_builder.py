"""Turns a table of entries into one Arrow batch with the columns of the query."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pyspark_pulsar.columns.arrow_spans import numbers
from pyspark_pulsar.columns.metadata_columns import METADATA_COLUMNS, Origin, WantedRows
from pyspark_pulsar.columns.value_columns import SchemaSource, ValueColumns
from pyspark_pulsar.cutting.entry_table import EntryTable
from pyspark_pulsar.cutting.message_table import MessageField, MessageTable, cut_messages
from pyspark_pulsar.cutting.protobuf_columns import Flags, Ints


class Cuts(NamedTuple):
    """The messages to keep of each entry, as batch indexes with one element per entry."""

    after: Ints
    """The last message that has been read before; -1 keeps the entry's first message."""
    last: Ints
    """The last message to keep, included."""


class BatchBuilder:
    """Builds Arrow batches of one fixed schema. One per task."""

    def __init__(self, schema: pa.Schema, values: ValueColumns, schemas: SchemaSource) -> None:
        self._schema = schema
        self._values = values
        self._schemas = schemas
        self._value_columns = [name for name in schema.names if name not in METADATA_COLUMNS]

    def build(
        self, entries: EntryTable, rows: Ints, cuts: Cuts, origin: Origin, buffer: bytearray
    ) -> tuple[pa.RecordBatch | None, Ints]:
        """Returns the wanted messages of the entries `rows`, and the row of each message's entry.

        Messages come in the order of the entries and of their batches. The batch is None where there are none. `buffer`
        is the bytearray of `entries.data`. MalformedEntry.
        """
        made: list[tuple[pa.RecordBatch, MessageTable]] = []
        for table in cut_messages(entries, rows, buffer):
            chosen = table.select(_wanted(table, cuts))
            if len(chosen):
                made.append((self._columns_of(WantedRows(entries, chosen, origin)), chosen))
        if not made:
            return None, np.zeros(0, np.int64)
        if len(made) == 1:
            return made[0][0], made[0][1].entry_rows
        entry_rows = np.concatenate([table.entry_rows for _, table in made])
        indexes = np.concatenate([table.batch_indexes for _, table in made])
        # Up to four tables (batches or not, compressed or not) are interleaved here; lexsort's last key is its first.
        order = np.lexsort((indexes, entry_rows))
        together = pa.concat_batches([batch for batch, _ in made])
        return together.take(numbers(order)), entry_rows[order]

    def _columns_of(self, rows: WantedRows) -> pa.RecordBatch:
        values = self._values.read(rows, self._value_columns, self._schemas) if self._value_columns else {}
        arrays = []
        for field in self._schema:
            column = METADATA_COLUMNS.get(field.name)
            array = values[field.name] if column is None else column.make(rows)
            arrays.append(array if array.type == field.type else array.cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _wanted(table: MessageTable, cuts: Cuts) -> Flags:
    after, last = cuts.after[table.entry_rows], cuts.last[table.entry_rows]
    wanted: Flags = (table.batch_indexes > after) | (table.batch_indexes < 0)
    wanted &= table.batch_indexes <= last
    # A batch that the topic's compaction has thinned out keeps its messages' slots, so that batch indexes stay the same.
    if table.fields is not None:
        wanted &= table.fields.numbers(MessageField.COMPACTED_OUT)[table.field_rows] == 0
    return wanted
