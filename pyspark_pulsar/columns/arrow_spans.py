"""Arrow arrays from places in a buffer, without an object per value.

Values stand in order with other bytes between them. So the whole buffer is one Arrow array of alternating gaps and
values, and Arrow's filter keeps every second element: one copy at memory speed.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pyspark_pulsar.cutting.protobuf_columns import Bytes, Flags, Ints, Spans


def take_spans(data: Bytes, spans: Spans) -> pa.BinaryArray:
    """One binary value per span, null where it is not present. Starts must not fall."""
    if spans.present.all():
        return take_ranges(data, spans.starts, spans.starts + spans.lengths)
    rows = np.flatnonzero(spans.present)
    starts = spans.starts[rows]
    return spread(take_ranges(data, starts, starts + spans.lengths[rows]), spans.present)


def take_ranges(data: Bytes, starts: Ints, ends: Ints) -> pa.BinaryArray:
    count = len(starts)
    if not count:
        return pa.array([], pa.binary())
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
    """Put `values` where `present` is true, and nulls between them."""
    places = np.cumsum(present) - 1
    return values.take(pa.array(places, pa.int64(), mask=~present))


def from_rows(data: Bytes, lengths: Ints) -> pa.BinaryArray:
    """Binary values that stand one behind the other without gaps."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(data)], null_count=0
    )


def as_text(values: pa.BinaryArray) -> pa.StringArray:
    """The same bytes as strings; what is no UTF-8 is mended as Python's "replace" does it."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [None if value is None else value.decode(errors="replace") for value in values.to_pylist()],
            pa.string(),
        )
