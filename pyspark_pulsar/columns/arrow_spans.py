"""Builds Arrow arrays from numpy arrays and from spans of a buffer, without an object per value.

Arrays are made from buffers throughout: `pyarrow.array` would import pandas, which takes seconds in each of Spark's
workers.

Values lie in the receive buffer in order, with metadata between them, and an Arrow binary array allows no gaps. So the
whole buffer is presented as one Arrow array of alternating gaps and values, and Arrow's filter keeps every second
element: one copy at memory speed (`take_ranges`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_pulsar.cutting.protobuf_columns import Bytes, Flags, Ints, Spans

_NUMPY_TYPES = {
    pa.int8(): np.int8,
    pa.int16(): np.int16,
    pa.int32(): np.int32,
    pa.int64(): np.int64,
    pa.float32(): np.float32,
    pa.float64(): np.float64,
    pa.date32(): np.int32,
    pa.timestamp("us", tz="UTC"): np.int64,
}


def numbers(
    values: npt.NDArray[Any], arrow_type: pa.DataType | None = None, missing: Flags | None = None
) -> pa.Array:
    """Builds a column of numbers, int64 unless a type is given; null where `missing`."""
    kind = pa.int64() if arrow_type is None else arrow_type
    plain = np.ascontiguousarray(values, _NUMPY_TYPES[kind])
    return pa.Array.from_buffers(kind, len(plain), [validity(missing), pa.py_buffer(plain)])


def flags(values: Flags, missing: Flags | None = None) -> pa.BooleanArray:
    """Builds a boolean column; null where `missing`."""
    bits = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.BooleanArray.from_buffers(pa.bool_(), len(values), [validity(missing), bits])


def texts(values: Sequence[str | None]) -> pa.StringArray:
    """Builds a column from Python strings; for the few names of a task, as it takes an object per value."""
    return as_text(binaries([None if value is None else value.encode() for value in values]))


def binaries(values: Sequence[bytes | None]) -> pa.BinaryArray:
    """Builds a column from Python bytes; for the rare values that must become objects."""
    lengths = np.fromiter((len(value or b"") for value in values), np.int64, len(values))
    missing = np.fromiter((value is None for value in values), np.bool_, len(values))
    data = np.frombuffer(b"".join(value or b"" for value in values), np.uint8)
    plain = from_rows(data, lengths)
    return pa.BinaryArray.from_buffers(pa.binary(), len(values), [validity(missing), *plain.buffers()[1:]])


def bytes_scalar(value: bytes) -> pa.BinaryScalar:
    """Builds an Arrow scalar; `pa.scalar` would import pandas."""
    return binaries([value])[0]


def validity(missing: Flags | None) -> pa.Buffer | None:
    """Returns Arrow's validity bits, set for values that are not missing; None where none is missing."""
    if missing is None or not missing.any():
        return None
    return pa.py_buffer(np.packbits(~missing, bitorder="little"))


def take_spans(data: Bytes, spans: Spans) -> pa.BinaryArray:
    """Copies one binary value per span, null where it is not present. Starts must not decrease."""
    if spans.present.all():
        return take_ranges(data, spans.starts, spans.starts + spans.lengths)
    rows = np.flatnonzero(spans.present)
    starts = spans.starts[rows]
    return spread(take_ranges(data, starts, starts + spans.lengths[rows]), spans.present)


def take_ranges(data: Bytes, starts: Ints, ends: Ints) -> pa.BinaryArray:
    """Copies the bytes from each start to its end as binary values. Starts must not decrease."""
    count = len(starts)
    if not count:
        return from_rows(data[:0], starts)
    # Elements with even numbers are gaps (the first one is empty), those with odd numbers are the values.
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0] = starts[0]
    offsets[1::2] = starts
    offsets[2::2] = ends
    whole = pa.BinaryArray.from_buffers(
        pa.binary(), 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(data)], null_count=0
    )
    return whole.filter(_every_second(2 * count))


def _every_second(count: int) -> pa.BooleanArray:
    return pa.BooleanArray.from_buffers(
        pa.bool_(), count, [None, pa.py_buffer(b"\xaa" * ((count + 7) // 8))], null_count=0
    )


def spread(values: pa.Array, present: Flags) -> pa.Array:
    """Returns a column with `values`, in order, where `present` is True and nulls elsewhere."""
    places = np.cumsum(present) - 1
    return values.take(numbers(places, missing=~present))


def from_rows(data: Bytes, lengths: Ints) -> pa.BinaryArray:
    """Builds binary values from bytes that lie one after the other without gaps; nothing is copied."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(data)], null_count=0
    )


def as_text(values: pa.BinaryArray) -> pa.StringArray:
    """Returns the same bytes as strings; invalid UTF-8 is replaced by U+FFFD as Python's "replace" does it."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        mended = (None if value is None else value.decode(errors="replace") for value in values.to_pylist())
        return texts(list(mended))
