"""Reads and writes trace files as cache research exchanges them: oracleGeneral records, and tables of text.

An oracleGeneral record has 24 bytes, little-endian and packed: time (32 bits), object (64), size (32) and the
number of the next request for the object, counted from 1, or -1 (64). The last field is written and not read:
`next_accesses` computes it from the trace. libCacheSim has readers too, which give its caches one request at a time; samples
and curves need whole arrays.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.simulators.trace import Trace, next_accesses, trace_of

_RECORD = np.dtype([("time", "<u4"), ("object", "<u8"), ("size", "<u4"), ("next", "<i8")])
_REQUESTS_PER_TICK = 1000
"""The time written grows by 1 per this many requests. A trace has no times, and other readers expect some."""

_OBJECT_COLUMNS = ("object", "obj_id", "obj-id", "object_id", "key", "lbn")
_SIZE_COLUMNS = ("size", "obj_size", "obj-size", "object_size")
"""Names that a header may use, in the order in which they are looked for."""


class TraceFileError(ValueError):
    """A file is not a trace. The message names the file, the place and the remedy."""


def read_trace(path: Path) -> Trace:
    """Reads a trace by the ending of its name.

    `.csv` is a table with a header, `.txt` has a key per line, anything else is oracleGeneral. TraceFileError.
    """
    if path.suffix == ".csv":
        return read_csv(path)
    if path.suffix == ".txt":
        return _read_table(path, [("object", "u8")], (0,), lines_before=0)
    return read_oracle_general(path)


def read_oracle_general(path: Path) -> Trace:
    """Reads records of 24 bytes. TraceFileError for a part of a record."""
    length = path.stat().st_size
    if length % _RECORD.itemsize:
        raise TraceFileError(
            f"{path}: {length} bytes are no whole number of records of {_RECORD.itemsize} bytes; the file was cut off "
            f"after {length // _RECORD.itemsize} records, or it is not oracleGeneral"
        )
    return _trace(path, np.fromfile(path, _RECORD))


def read_csv(path: Path) -> Trace:
    """Reads a table with a header that names the column of the object.

    TraceFileError where no column is one of _OBJECT_COLUMNS.
    """
    with path.open(encoding="utf-8", errors="replace") as file:
        header = [name.strip().lower() for name in file.readline().lstrip("# ").split(",")]
    objects, sizes = (_column(header, names) for names in (_OBJECT_COLUMNS, _SIZE_COLUMNS))
    if objects is None:
        raise TraceFileError(
            f"{path}: no column for the object in the header {', '.join(header)!r}: call one {_OBJECT_COLUMNS[0]!r}"
        )
    if sizes is None:
        return _read_table(path, [("object", "u8")], (objects,), lines_before=1)
    return _read_table(path, [("object", "u8"), ("size", "i8")], (objects, sizes), lines_before=1)


def _column(header: list[str], names: tuple[str, ...]) -> int | None:
    return next((header.index(name) for name in names if name in header), None)


def _read_table(
    path: Path, fields: list[tuple[str, str]], columns: tuple[int, ...], *, lines_before: int
) -> Trace:
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "loadtxt: input contained no data")
            rows = np.loadtxt(path, fields, delimiter=",", skiprows=lines_before, usecols=columns, ndmin=1)
    except ValueError as error:
        raise TraceFileError(
            f"{path}: {error}; objects and sizes are whole numbers, one request per line"
        ) from error
    return _trace(path, rows)


def _trace(path: Path, rows: NDArray[np.void]) -> Trace:
    names = rows.dtype.names or ()
    if not len(rows):
        raise TraceFileError(f"{path}: no request in it, so there is nothing to simulate")
    try:
        return trace_of(rows["object"], rows["size"] if "size" in names else None)
    except ValueError as error:
        raise TraceFileError(f"{path}: {error}") from error


def oracle_general(trace: Trace) -> bytes:
    """Returns the trace as oracleGeneral records."""
    records = np.empty(len(trace), _RECORD)
    following = next_accesses(trace)
    records["time"] = np.arange(len(trace)) // _REQUESTS_PER_TICK
    records["object"] = trace.keys[trace.ids]
    records["size"] = trace.sizes[trace.ids]
    # The format counts requests from 1, `following` from 0.
    records["next"] = np.where(following < len(trace), following + 1, -1)
    return records.tobytes()
