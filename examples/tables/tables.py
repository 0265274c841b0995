"""Streams from Pulsar into Delta and Iceberg tables, each row once, with packages of pip alone.

A function of `foreachBatch` gets each micro-batch with its number. It stores the number in the table together with the
rows, in one commit. A batch that Spark repeats after a crash finds its number there and adds nothing.

The rows of a batch pass the driver as Arrow; `maxBytesPerTrigger` bounds them.
"""

from __future__ import annotations

from collections.abc import Callable

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyspark.sql import DataFrame

BatchSink = Callable[[DataFrame, int], None]
"""The function that `writeStream.foreachBatch` takes: the rows of a micro-batch and its number."""
BATCH = "pulsar.batch."
"""Begin of the property of an Iceberg snapshot that has a query's last batch."""


def delta_sink(path: str, query: str) -> BatchSink:
    """Returns a sink that appends to the Delta table in a folder, which the first batch creates.

    `query` names the stream in the table's log; a restart gives the same name and the same checkpoint.
    """

    def append(rows: DataFrame, batch: int) -> None:
        if DeltaTable.is_deltatable(path):
            done = DeltaTable(path).transaction_version(query)
            if done is not None and batch <= done:
                return
        commit = CommitProperties(app_transactions=[Transaction(query, batch)])
        write_deltalake(path, rows.toArrow(), mode="append", commit_properties=commit)

    return append


def iceberg_sink(catalog: Catalog, name: str, query: str) -> BatchSink:
    """Returns a sink that appends to the Iceberg table `name`, which the first batch creates; `query` as for Delta."""

    def append(rows: DataFrame, batch: int) -> None:
        arrow = rows.toArrow()
        try:
            table = catalog.load_table(name)
        except NoSuchTableError:
            table = catalog.create_table(name, schema=arrow.schema)
        if batch > last_batch(table, query):
            table.append(arrow, snapshot_properties={f"{BATCH}{query}": str(batch)})

    return append


def last_batch(table: Table, query: str) -> int:
    """Returns the number of the last batch of a query in an Iceberg table; -1 before the first."""
    found = [
        int(snapshot.summary.additional_properties.get(f"{BATCH}{query}", -1))
        for snapshot in table.snapshots()
        if snapshot.summary is not None
    ]
    return max(found, default=-1)
