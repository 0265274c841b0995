"""Writes a snapshot: streams nodes into one Parquet file per table, in bounded memory, and reports its progress."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from foundation.model.errors import MetadataError
from magnetar.snapshot.node_rows import Node, rows_of
from magnetar.snapshot.tables import FACTS, FORMAT, TABLES

_ROWS_PER_GROUP = 50_000
_NODES_PER_REPORT = 50_000


class _Table:
    """One Parquet file while it is written."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.rows = 0
        self._schema = schema
        self._waiting: list[tuple[object, ...]] = []
        self._file = pq.ParquetWriter(path, schema, compression="zstd")

    def add(self, row: tuple[object, ...]) -> None:
        """Keeps a row, which is written with the next row group or at the close."""
        self._waiting.append(row)
        self.rows += 1
        if len(self._waiting) == _ROWS_PER_GROUP:
            self._flush()

    def close(self) -> None:
        """Writes the rows that wait, and the file's footer."""
        self._flush()
        self._file.close()

    def _flush(self) -> None:
        columns = zip(*self._waiting, strict=True) if self._waiting else [()] * len(self._schema)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, self._schema.types, strict=True)]
        self._file.write_batch(pa.record_batch(arrays, schema=self._schema))
        self._waiting.clear()


def write_snapshot(
    nodes: Iterable[Node], folder: Path, source: str, progress: Callable[[str], None]
) -> dict[str, int]:
    """Writes the tables into `folder`, which must not exist, and returns the number of rows by table.

    `source` is noted in the facts. Raises MetadataError when the store cannot be read; the folder is then removed.
    """
    if folder.exists():
        raise MetadataError(f"{folder} exists; name a folder that does not")
    taken_ms = time.time_ns() // 1_000_000
    folder.mkdir(parents=True)
    try:
        counts = _write_tables(nodes, folder, progress)
    except BaseException:  # Also Ctrl-C: a folder with some of the tables is of no use.
        shutil.rmtree(folder)
        raise
    # Last: its presence tells that the tables are complete.
    facts = {"format": FORMAT, "source": source, "taken_ms": taken_ms, "rows": counts}
    (folder / FACTS).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return counts


def _write_tables(nodes: Iterable[Node], folder: Path, progress: Callable[[str], None]) -> dict[str, int]:
    began = time.monotonic()
    with ExitStack() as opened:
        tables = {}
        for name, schema in TABLES.items():
            (folder / name).mkdir()
            tables[name] = _Table(folder / name / "part-0.parquet", schema)
            opened.callback(tables[name].close)
        for number, node in enumerate(nodes, 1):
            for name, row in rows_of(node):
                tables[name].add(row)
            if number % _NODES_PER_REPORT == 0:
                rate = number / (time.monotonic() - began)
                progress(f"{number:,} nodes, {tables['topics'].rows:,} topics, {rate:,.0f} nodes/s")
    return {name: table.rows for name, table in tables.items()}
