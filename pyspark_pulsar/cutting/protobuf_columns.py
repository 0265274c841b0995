"""Protobuf messages read column by column: thousands of small messages of one type in a handful of numpy steps.

All messages advance together, one field per step. Messages of one kind carry the same fields in the same order, so
the number of steps is the number of fields, not the number of messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from pyspark_pulsar.errors import MalformedEntry

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_VARINT_BYTES_MAX: Final = 10


def read_varints(data: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """The numbers that start at each place, and the places behind them. `data` has 10 spare bytes at its end."""
    first = data[at]
    values = (first & 0x7F).astype(np.uint64)
    behind = at + 1
    rows = np.flatnonzero(first & 0x80)
    shift = 7
    while rows.size:
        if shift >= 7 * _VARINT_BYTES_MAX:
            raise MalformedEntry("a number of more than ten bytes in the metadata of a message")
        more = data[behind[rows]]
        values[rows] |= (more & 0x7F).astype(np.uint64) << np.uint64(shift)
        behind[rows] += 1
        rows = rows[(more & 0x80) != 0]
        shift += 7
    return values.view(np.int64), behind


class Spans:
    """Where a bytes field stands in each message."""

    __slots__ = ("lengths", "present", "starts")

    def __init__(self, starts: Ints, lengths: Ints, present: Flags) -> None:
        self.starts = starts
        self.lengths = lengths
        self.present = present

    def take(self, rows: Ints) -> Spans:
        return Spans(self.starts[rows], self.lengths[rows], self.present[rows])


class Fields:
    """What `read_fields` found: by field number, one value per message."""

    __slots__ = ("_lengths", "_present", "_repeated", "_values", "count")

    def __init__(self, count: int, single: Iterable[int], repeated: Iterable[int]) -> None:
        self.count = count
        self._values: dict[int, Ints] = {}
        self._lengths: dict[int, Ints] = {}
        self._present: dict[int, Flags] = dict.fromkeys(single, np.zeros(0, np.bool_))
        self._repeated: dict[int, list[tuple[Ints, Ints, Ints]]] = {number: [] for number in repeated}

    def numbers(self, field: int, default: int = 0) -> Ints:
        if field not in self._values:
            return np.full(self.count, default, np.int64)
        return np.where(self._present[field], self._values[field], default)

    def present(self, field: int) -> Flags:
        found = self._present[field]
        return found if found.size else np.zeros(self.count, np.bool_)

    def spans(self, field: int) -> Spans:
        if field not in self._lengths:
            nothing = np.zeros(self.count, np.int64)
            return Spans(nothing, nothing, self.present(field))
        return Spans(self._values[field], self._lengths[field], self.present(field))

    def repeated(self, field: int) -> tuple[Ints, Ints, Ints]:
        """Message, start and length of each occurrence, ordered by message and then as they stand."""
        found = self._repeated[field]
        if not found:
            nothing = np.zeros(0, np.int64)
            return nothing, nothing, nothing
        rows, starts, lengths = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = np.argsort(rows, kind="stable")
        return rows[order], starts[order], lengths[order]

    def has_repeated(self, field: int) -> bool:
        return bool(self._repeated[field])

    def put(self, field: int, rows: Ints, values: Ints, lengths: Ints | None) -> None:
        if field in self._repeated and lengths is not None:
            self._repeated[field].append((rows, values, lengths))
        elif field in self._present:
            if not self._present[field].size:
                self._present[field] = np.zeros(self.count, np.bool_)
                self._values[field] = np.zeros(self.count, np.int64)
            self._present[field][rows] = True
            self._values[field][rows] = values
            if lengths is not None:
                self._lengths.setdefault(field, np.zeros(self.count, np.int64))[rows] = lengths


def read_fields(
    data: Bytes, starts: Ints, ends: Ints, single: Iterable[int], repeated: Iterable[int] = ()
) -> Fields:
    """The wanted fields of the messages at `starts` to `ends`; others are passed over. MalformedEntry."""
    fields = Fields(len(starts), single, repeated)
    at = starts.astype(np.int64)
    rows = np.flatnonzero(at < ends)
    while rows.size:
        tags, behind = read_varints(data, at[rows])
        if (tags == tags[0]).all():
            at[rows] = _read_one(data, fields, int(tags[0]), rows, behind)
        else:
            for tag in np.unique(tags):
                same = tags == tag
                at[rows[same]] = _read_one(data, fields, int(tag), rows[same], behind[same])
        if (at[rows] > ends[rows]).any():
            raise MalformedEntry("a field of a message's metadata reaches behind its end")
        rows = rows[at[rows] < ends[rows]]
    return fields


def _read_one(data: Bytes, fields: Fields, tag: int, rows: Ints, at: Ints) -> Ints:
    """Read one field of some messages; answers where the next one starts."""
    field, wire_type = tag >> 3, tag & 7
    if wire_type == _VARINT:
        values, behind = read_varints(data, at)
        fields.put(field, rows, values, None)
        return behind
    if wire_type == _LENGTH:
        lengths, behind = read_varints(data, at)
        if ((lengths < 0) | (lengths > data.size)).any():
            raise MalformedEntry("a field of a message's metadata is longer than the message")
        fields.put(field, rows, behind, lengths)
        return behind + lengths
    if wire_type == _FIXED64:
        return at + 8
    if wire_type == _FIXED32:
        return at + 4
    raise MalformedEntry(f"a field of wire type {wire_type} in the metadata of a message")


def write_varints(numbers: Ints) -> tuple[Bytes, Flags]:
    """Each number's varint as a row of bytes, and which of the row's places are part of it."""
    unsigned = numbers.view(np.uint64)
    width = max(1, (int(unsigned.max(initial=0)).bit_length() + 6) // 7)
    shifted = unsigned[:, None] >> (np.arange(width, dtype=np.uint64) * np.uint64(7))
    used = shifted != 0
    used[:, 0] = True
    places = (shifted & np.uint64(0x7F)).astype(np.uint8)
    places[:, :-1] |= used[:, 1:].astype(np.uint8) << 7
    return places, used


def join_rows(parts: Iterable[tuple[Bytes, Flags]]) -> tuple[Bytes, Ints]:
    """Rows of bytes put side by side and written one after the other; answers the bytes and each row's length."""
    places, used = zip(*parts, strict=True)
    mask = np.concatenate(used, axis=1)
    return np.concatenate(places, axis=1)[mask], mask.sum(axis=1)


def constant_bytes(value: bytes, count: int) -> tuple[Bytes, Flags]:
    """The same bytes in each of so many rows."""
    places = np.broadcast_to(np.frombuffer(value, np.uint8), (count, len(value)))
    return places, np.ones((count, len(value)), np.bool_)
