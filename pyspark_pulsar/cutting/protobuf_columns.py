"""Reads and writes thousands of small protobuf messages of one type in a handful of numpy steps.

All messages advance together, one field per step. Messages of one producer carry the same fields in the same order, so
the number of steps is the number of fields instead of the number of messages. A step in which messages are at different
fields is done once per field number.

Bytes to write are a pair: an array with a row of bytes per message, and flags for the bytes of the row that count. Rows
of several fields are joined side by side and flattened at the end (`join_rows`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from pyspark_pulsar.errors import MalformedEntry

Bytes = npt.NDArray[np.uint8]
"""A buffer, or bytes to write."""
Ints = npt.NDArray[np.int64]
"""One number per row."""
Flags = npt.NDArray[np.bool_]
"""One truth value per row."""

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_VARINT_BYTES_MAX: Final = 10


def read_varints(data: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """Returns the varints at the indexes `at`, and the indexes after them. MalformedEntry for more than ten bytes.

    `data` must have 10 spare bytes at its end, because a damaged number may continue after its message.
    """
    first = data[at]
    values = (first & 0x7F).astype(np.uint64)
    after = at + 1
    rows = np.flatnonzero(first & 0x80)
    shift = 7
    while rows.size:
        if shift >= 7 * _VARINT_BYTES_MAX:
            raise MalformedEntry("a number of more than ten bytes in the metadata of a message")
        more = data[after[rows]]
        values[rows] |= (more & 0x7F).astype(np.uint64) << np.uint64(shift)
        after[rows] += 1
        rows = rows[(more & 0x80) != 0]
        shift += 7
    # Protobuf writes a negative number as its two's complement in 64 bits.
    return values.view(np.int64), after


class Spans:
    """The place of a bytes field in each message, as columns with one element per message."""

    def __init__(self, starts: Ints, lengths: Ints, present: Flags) -> None:
        self.starts = starts
        """Index of the field's first byte; 0 where it is absent."""
        self.lengths = lengths
        """Bytes of the field; 0 where it is absent."""
        self.present = present
        """True for messages that have the field."""

    def take(self, rows: Ints) -> Spans:
        """Returns the spans at `rows`, in that order; a row may occur several times."""
        return Spans(self.starts[rows], self.lengths[rows], self.present[rows])


class Fields:
    """Columns by field number, as `read_fields` found them: one element per message."""

    def __init__(self, count: int, single: Iterable[int], repeated: Iterable[int]) -> None:
        self.count = count
        """Number of messages."""
        self._values: dict[int, Ints] = {}
        self._lengths: dict[int, Ints] = {}
        # One empty array for all fields stands for "in no message". `put` makes a real one for a field that occurs:
        # most fields never do, and a column may have a million rows.
        self._present: dict[int, Flags] = dict.fromkeys(single, np.zeros(0, np.bool_))
        self._repeated: dict[int, list[tuple[Ints, Ints, Ints]]] = {number: [] for number in repeated}

    def numbers(self, field: int, default: int = 0) -> Ints:
        """Returns a varint field, `default` where it is absent."""
        if field not in self._values:
            return np.full(self.count, default, np.int64)
        return np.where(self._present[field], self._values[field], default)

    def present(self, field: int) -> Flags:
        """Returns True for messages that have the field. KeyError for a field that was not wanted."""
        found = self._present[field]
        return found if found.size else np.zeros(self.count, np.bool_)

    def spans(self, field: int) -> Spans:
        """Returns the places of a bytes field; of several occurrences in a message, the last."""
        if field not in self._lengths:
            nothing = np.zeros(self.count, np.int64)
            return Spans(nothing, nothing, self.present(field))
        return Spans(self._values[field], self._lengths[field], self.present(field))

    def repeated(self, field: int) -> tuple[Ints, Ints, Ints]:
        """Returns message, start and length of each occurrence, sorted by message and then by start."""
        found = self._repeated[field]
        if not found:
            nothing = np.zeros(0, np.int64)
            return nothing, nothing, nothing
        rows, starts, lengths = (np.concatenate(parts) for parts in zip(*found, strict=True))
        # Occurrences were found step by step over all messages; a stable sort keeps those of one message in their
        # order.
        order = np.argsort(rows, kind="stable")
        return rows[order], starts[order], lengths[order]

    def has_repeated(self, field: int) -> bool:
        """Returns True if any message has the repeated field."""
        return bool(self._repeated[field])

    def put(self, field: int, rows: Ints, values: Ints, lengths: Ints | None) -> None:
        """Stores a field of the messages `rows`; ignores fields that are not wanted. Called by `read_fields`.

        `values` are numbers where `lengths` is None, otherwise starts of bytes.
        """
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
    """Reads the wanted fields of the messages from `starts` to `ends`; other fields are skipped.

    `single` and `repeated` are field numbers. MalformedEntry where a field reaches past its message.
    """
    fields = Fields(len(starts), single, repeated)
    at = starts.astype(np.int64)
    rows = np.flatnonzero(at < ends)
    while rows.size:
        tags, after = read_varints(data, at[rows])
        # The usual case first: all messages are at the same field, and no row must be selected.
        if (tags == tags[0]).all():
            at[rows] = _read_one(data, fields, int(tags[0]), rows, after)
        else:
            for tag in np.unique(tags):
                same = tags == tag
                at[rows[same]] = _read_one(data, fields, int(tag), rows[same], after[same])
        if (at[rows] > ends[rows]).any():
            raise MalformedEntry("a field of a message's metadata reaches past its end")
        rows = rows[at[rows] < ends[rows]]
    return fields


def _read_one(data: Bytes, fields: Fields, tag: int, rows: Ints, at: Ints) -> Ints:
    """Reads one field of the messages `rows`; returns the indexes of their next fields."""
    field, wire_type = tag >> 3, tag & 7
    if wire_type == _VARINT:
        values, after = read_varints(data, at)
        fields.put(field, rows, values, None)
        return after
    if wire_type == _LENGTH:
        lengths, after = read_varints(data, at)
        # Before the addition: a damaged length near 2**63 would wrap around and pass the check of the end.
        if ((lengths < 0) | (lengths > data.size)).any():
            raise MalformedEntry("a field of a message's metadata is longer than the message")
        fields.put(field, rows, after, lengths)
        return after + lengths
    if wire_type == _FIXED64:
        return at + 8
    if wire_type == _FIXED32:
        return at + 4
    raise MalformedEntry(f"a field of wire type {wire_type} in the metadata of a message")


def write_varints(numbers: Ints) -> tuple[Bytes, Flags]:
    """Encodes each number as a row of bytes; the flags mark those that belong to the varint."""
    unsigned = numbers.view(np.uint64)
    width = max(1, (int(unsigned.max(initial=0)).bit_length() + 6) // 7)
    shifted = unsigned[:, None] >> (np.arange(width, dtype=np.uint64) * np.uint64(7))
    used = shifted != 0
    # Also 0 takes one byte.
    used[:, 0] = True
    places = (shifted & np.uint64(0x7F)).astype(np.uint8)
    places[:, :-1] |= used[:, 1:].astype(np.uint8) << 7
    return places, used


def join_rows(parts: Iterable[tuple[Bytes, Flags]]) -> tuple[Bytes, Ints]:
    """Joins rows of several parts side by side and writes them one after the other.

    Returns the bytes and the length of each row.
    """
    places, used = zip(*parts, strict=True)
    mask = np.concatenate(used, axis=1)
    return np.concatenate(places, axis=1)[mask], mask.sum(axis=1)


def constant_bytes(value: bytes, count: int) -> tuple[Bytes, Flags]:
    """Returns the same bytes in each of `count` rows."""
    places = np.broadcast_to(np.frombuffer(value, np.uint8), (count, len(value)))
    return places, np.ones((count, len(value)), np.bool_)
