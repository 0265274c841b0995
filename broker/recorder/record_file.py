"""RecordFile: one Parquet file of an access record while it is written.

It has another name until it is complete, so readers of the folder never meet an incomplete file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from broker.recorder.row_encoder import Columns
from broker.recorder.sampling import Ints
from broker.recorder.schema import (
    COLUMNS,
    DELTA_COLUMNS,
    ROW_GROUP_ROWS,
    FileFacts,
    part_name,
)

SCHEMA: Final = pa.schema(
    [pa.field(name, pa.from_numpy_dtype(dtype), nullable=False) for name, dtype in COLUMNS.items()]
)
"""The columns of every file, none of which may be null."""


def _array(name: str, values: Ints) -> pa.Array:
    """Returns a pyarrow array made from the bytes: given a numpy array, pyarrow imports pandas, which takes a second."""
    kind = SCHEMA.field(name).type
    if pa.types.is_boolean(kind):
        data = np.packbits(values.astype(np.bool_), bitorder="little")
    else:
        data = values.astype(COLUMNS[name])
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(data)])


class RecordFile:
    """Every call may raise OSError, or ArrowException if the disk refuses a write inside pyarrow."""

    def __init__(self, folder: Path, name: str) -> None:
        """Makes the folder and begins the file `name`."""
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / name
        """The path of the complete file."""
        self._part = folder / part_name(name)
        self._sink = pa.OSFile(str(self._part), "wb")
        self._waiting: list[Columns] = []
        self._waiting_rows = 0
        try:
            self._writer = self._begin()
        except BaseException:  # Also for a cancellation: an incomplete file must not stay.
            self._remove()
            raise

    def _begin(self) -> pq.ParquetWriter:
        return pq.ParquetWriter(
            self._sink,
            SCHEMA,
            compression="zstd",
            # Times and entry ids are nearly all different: a dictionary would be larger than the column.
            use_dictionary=[name for name in COLUMNS if name not in (*DELTA_COLUMNS, "more")],
            column_encoding=dict.fromkeys(DELTA_COLUMNS, "DELTA_BINARY_PACKED"),
            write_page_checksum=True,
        )

    @property
    def size_bytes(self) -> int:
        """The bytes written so far; up to `ROW_GROUP_ROWS` rows wait in memory besides."""
        return int(self._sink.tell())

    def append(self, columns: Columns) -> None:
        """Adds rows, and writes a row group when enough of them wait."""
        count = len(columns["op"])
        if count:
            self._waiting.append(columns)
            self._waiting_rows += count
        if self._waiting_rows >= ROW_GROUP_ROWS:
            self._write()

    def _write(self) -> None:
        waiting, self._waiting, self._waiting_rows = self._waiting, [], 0
        joined = [_array(name, np.concatenate([columns[name] for columns in waiting])) for name in COLUMNS]
        self._writer.write_batch(pa.RecordBatch.from_arrays(joined, schema=SCHEMA))

    def complete(self, facts: FileFacts) -> int:
        """Writes the end of the file, gives it its name, and returns its size in bytes."""
        if self._waiting:
            self._write()
        self._writer.add_key_value_metadata(facts.to_metadata())
        self._writer.close()
        self._sink.close()
        file = os.open(self._part, os.O_RDONLY)
        try:
            # Before the rename: after a crash of the machine the whole name must stand for a whole file.
            os.fsync(file)
            size_bytes = os.fstat(file).st_size
        finally:
            os.close(file)
        # Readers look for whole names only, so they see a file either complete or not at all.
        self._part.rename(self.path)
        return size_bytes

    def discard(self) -> None:
        """Removes a file that cannot be completed."""
        self._waiting = []
        self._writer.is_open = False  # Otherwise the garbage collector would write the file's end.
        self._remove()

    def _remove(self) -> None:
        try:
            self._sink.close()
        finally:
            self._part.unlink(missing_ok=True)
