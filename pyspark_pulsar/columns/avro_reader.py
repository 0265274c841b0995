"""Reads Avro values column by column: all messages advance together through the fields of their record.

One field is a handful of numpy steps for thousands of messages; arrays and maps take such a step per item of the
longest one. Only decimals become Python objects. Each reader takes the index of its value in every message, and returns
an Arrow column and the indexes after the values.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_pulsar.columns.arrow_spans import as_text, flags, numbers, spread, take_ranges, texts, validity
from pyspark_pulsar.columns.avro_schema import AvroNode, union_members
from pyspark_pulsar.cutting.protobuf_columns import Bytes, Flags, Ints, read_varints
from pyspark_pulsar.errors import MalformedEntry


class _Read(NamedTuple):
    column: pa.Array
    after: Ints
    """Index after each value."""


def read_records(data: Bytes, starts: Ints, ends: Ints, record: AvroNode) -> dict[str, pa.Array]:
    """Reads one record per start; returns a column per field. `data` has 10 spare bytes at its end.

    MalformedEntry where the bytes do not fit the definition, or a record does not end at its `end`.
    """
    columns = {}
    at = starts
    try:
        for name, part in record.parts.items():
            columns[name], at = _read(data, at, part)
    except (IndexError, pa.ArrowInvalid, OverflowError) as error:
        raise MalformedEntry(f"a value is not of the topic's Avro schema: {error}") from None
    # Avro has no marks between fields: bytes of another schema often parse as well, and only the end gives them away.
    wrong = np.flatnonzero(at != ends)
    if wrong.size:
        row = wrong[0]
        raise MalformedEntry(
            f"a value is not of the topic's Avro schema: {ends[row] - starts[row]} bytes, of which its fields take "
            f"{at[row] - starts[row]}"
        )
    return columns


def _read(data: Bytes, at: Ints, node: AvroNode) -> _Read:
    reader = _READERS.get(node.kind)
    if reader is None:
        raise MalformedEntry(f"the topic's Avro schema has the unknown type {node.kind!r}")
    found: _Read = reader(data, at, node)
    return found


def _unzigzag(raw: Ints) -> Ints:
    unsigned = raw.view(np.uint64)
    return (unsigned >> np.uint64(1)).view(np.int64) ^ -(raw & 1)


def _longs(data: Bytes, at: Ints) -> tuple[Ints, Ints]:
    raw, after = read_varints(data, at)
    return _unzigzag(raw), after


_TIMES = {
    "timestamp-millis": (pa.timestamp("us", tz="UTC"), 1000),
    "timestamp-micros": (pa.timestamp("us", tz="UTC"), 1),
    "local-timestamp-millis": (pa.timestamp("us"), 1000),
    "local-timestamp-micros": (pa.timestamp("us"), 1),
}


def _integer(data: Bytes, at: Ints, node: AvroNode) -> _Read:
    values, after = _longs(data, at)
    if node.kind == "int":
        return _Read(numbers(values, pa.date32() if node.logical == "date" else pa.int32()), after)
    if node.logical in _TIMES:
        arrow_type, factor = _TIMES[node.logical]
        return _Read(numbers(values * factor).view(arrow_type), after)
    return _Read(numbers(values), after)


def _real(data: Bytes, at: Ints, node: AvroNode) -> _Read:
    width, kind = (4, "<f4") if node.kind == "float" else (8, "<f8")
    # Byte by byte, because a view of the buffer as floats would need aligned places.
    places = data[at[:, None] + np.arange(width)]
    values: npt.NDArray[Any] = np.ascontiguousarray(places).view(kind).ravel()
    return _Read(numbers(values, pa.float32() if width == 4 else pa.float64()), at + width)


def _boolean(data: Bytes, at: Ints, node: AvroNode) -> _Read:
    return _Read(flags(data[at] != 0), at + 1)


def _nothing(data: Bytes, at: Ints, node: AvroNode) -> _Read:
    return _Read(texts([None]).take(numbers(np.zeros(len(at), np.int64))), at)


def _bytes(data: Bytes, at: Ints, node: AvroNode) -> _Read:
    lengths, starts = _longs(data, at)
    if ((lengths < 0) | (starts + lengths > len(data))).any():
        raise MalformedEntry(
            "a value is not of the topic's Avro schema: a text or bytes of an impossible length"
        )
    values = take_ranges(data, starts, starts + lengths)
    if node.kind == "string":
        return _Read(as_text(values), starts + lengths)
    return _Read(_decimals(values, node), starts + lengths)


def _fixed(data: Bytes, at: Ints, node: AvroNode) -> _Read:
    return _Read(_decimals(take_ranges(data, at, at + node.size), node), at + node.size)


def _decimals(values: pa.BinaryArray, node: AvroNode) -> pa.Array:
    """Reads decimals one by one: they are rare, and Arrow has no cast from big-endian bytes."""
    if node.logical != "decimal" or not node.precision:
        return values
    unscaled = [int.from_bytes(value, "big", signed=True) for value in values.to_pylist()]
    wire = b"".join(value.to_bytes(16, "little", signed=True) for value in unscaled)
    kind = pa.decimal128(node.precision, node.scale)
    return pa.Array.from_buffers(kind, len(unscaled), [None, pa.py_buffer(wire)])


def _enum(data: Bytes, at: Ints, node: AvroNode) -> _Read:
    values, after = _longs(data, at)
    if ((values < 0) | (values >= len(node.symbols))).any():
        raise MalformedEntry("a value is not of the topic's Avro schema: an enum has no such symbol")
    return _Read(texts(node.symbols).take(numbers(values)), after)


def _record(data: Bytes, at: Ints, node: AvroNode) -> _Read:
    columns = []
    for part in node.parts.values():
        column, at = _read(data, at, part)
        columns.append(column)
    return _Read(pa.StructArray.from_arrays(columns, names=list(node.parts)), at)


def _union(data: Bytes, at: Ints, node: AvroNode) -> _Read:
    branches = list(node.parts.values())
    chosen, after = _longs(data, at)
    if ((chosen < 0) | (chosen >= len(branches))).any():
        raise MalformedEntry("a value is not of the topic's Avro schema: a union has no such branch")
    columns = []
    after = after.copy()
    # Read each branch for the rows that chose it: a null has no bytes, and other branches differ in length.
    for number, branch in enumerate(branches):
        if branch.kind != "null":
            there: Flags = chosen == number
            column, ends = _read(data, after[there], branch)
            after[there] = ends
            columns.append(column if there.all() else spread(column, there))
    if node.nullable_part():
        return _Read(columns[0], after)
    # As Spark's own Avro source does: a struct with a member per type, of which at most one is not null.
    null = np.array([branch.kind == "null" for branch in branches])[chosen]
    names = list(union_members(node).parts)
    members = pa.StructArray.from_arrays(columns, names=names)
    buffers = [validity(null)]
    return _Read(pa.Array.from_buffers(members.type, len(members), buffers, children=columns), after)


class _Items(NamedTuple):
    """Items of arrays or maps, sorted by row, with the offsets at which each row's items begin."""

    columns: list[pa.Array]
    offsets: Ints
    after: Ints


def _items(data: Bytes, at: Ints, parts: list[AvroNode]) -> _Items:
    """Reads one item of every unfinished row per step, until each row's last block.

    Avro writes items in blocks: a count and so many items, the last block with count 0. A negative count is followed by
    the block's size in bytes, which is skipped.
    """
    count = len(at)
    at = at.copy()
    left = np.zeros(count, np.int64)
    open_rows = np.arange(count)
    taken_rows: list[Ints] = []
    taken: list[list[pa.Array]] = [[] for _ in parts]
    while open_rows.size:
        begins = open_rows[left[open_rows] == 0]
        if begins.size:
            blocks, after = _longs(data, at[begins])
            sized = np.flatnonzero(blocks < 0)
            if sized.size:
                after[sized] = _longs(data, after[sized])[1]
            at[begins] = after
            left[begins] = np.abs(blocks)
            open_rows = open_rows[left[open_rows] > 0]
        if open_rows.size:
            # All parts of an item in turn: for a map the key, then the value.
            here = at[open_rows]
            for number, part in enumerate(parts):
                column, here = _read(data, here, part)
                taken[number].append(column)
            at[open_rows] = here
            left[open_rows] -= 1
            taken_rows.append(open_rows)
    rows = np.concatenate(taken_rows) if taken_rows else np.zeros(0, np.int64)
    # Items were read step by step: the first of every row, then the second. Sort them by row; stable keeps their order.
    order = numbers(np.argsort(rows, kind="stable"))
    columns = [
        pa.concat_arrays(pieces).take(order) if pieces else _read(data, at[:0], part).column
        for pieces, part in zip(taken, parts, strict=True)
    ]
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=count), out=offsets[1:])
    return _Items(columns, offsets, at)


def _array(data: Bytes, at: Ints, node: AvroNode) -> _Read:
    found = _items(data, at, [node.parts["items"]])
    return _Read(pa.ListArray.from_arrays(numbers(found.offsets, pa.int32()), found.columns[0]), found.after)


def _map(data: Bytes, at: Ints, node: AvroNode) -> _Read:
    found = _items(data, at, [AvroNode("string"), node.parts["values"]])
    return _Read(pa.MapArray.from_arrays(numbers(found.offsets, pa.int32()), *found.columns), found.after)


_READERS = {
    "int": _integer,
    "long": _integer,
    "float": _real,
    "double": _real,
    "boolean": _boolean,
    "null": _nothing,
    "bytes": _bytes,
    "string": _bytes,
    "fixed": _fixed,
    "enum": _enum,
    "record": _record,
    "union": _union,
    "array": _array,
    "map": _map,
}
