"""A journal file: header, groups of records, and what a reader may believe of its tail.

Bytes as BookKeeper's version 6: a 512-byte header, then records; every group that was synced together ends
on an alignment boundary, filled with a padding record (-0x100, n, n bytes); a zero length ends the file.
Ours adds what BookKeeper's reader skips: a mark in the header, and in the first 16 bytes of each padding
record the length and the CRC32C of the group, so that a torn write is told from an acknowledged one. The
CRC covers the journal's id and the group's offset too: bytes of a group elsewhere prove nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from bookie_stub.errors import CorruptJournal
from bookie_stub.record import LENGTH, LENGTH_BYTES

HEADER_BYTES = 512
VERSION = 6
VERSION_MIN = 5
"""The first with the 512-byte header and padding."""
PADDING_MASK = -0x100
SUFFIX = ".txn"

_HEADER = struct.Struct(">4si4s")
_MAGIC = b"BKLG"
_GROUPED = b"MGRP"
_GROUPED_AT = 8
_PADDING = struct.Struct(">ii")
_TRAILER = struct.Struct(">4sII4x")
"""Mark, bytes of the group before its padding record, CRC32C of journal id, group's offset and these bytes."""
_PLACE = struct.Struct(">qq")
CLOSING_BYTES_MIN = _PADDING.size + _TRAILER.size
_KEEP_INTERPRETER = 0
"""While a checksum is made: it takes microseconds, and who gives the interpreter away may wait much longer for it."""
_CLOSING_START = LENGTH.pack(PADDING_MASK)


class Mark(NamedTuple):
    """Everything before it is durable, in the journal `journal_id` up to `offset` and all older ones."""

    journal_id: int
    offset: int


Marks = tuple[Mark, ...]
"""One for each journal of a bookie."""


def header() -> bytes:
    return _HEADER.pack(_MAGIC, VERSION, _GROUPED).ljust(HEADER_BYTES, b"\0")


def closing(journal_id: int, offset: int, parts: Sequence[bytes | memoryview], alignment: int) -> bytes:
    """The padding record right behind the group at `offset`, which `parts` are; fills up to the next boundary."""
    size = sum(map(len, parts))
    room = -(offset + size) % alignment
    while room < CLOSING_BYTES_MIN:
        room += alignment
    start = _PADDING.pack(PADDING_MASK, room - _PADDING.size) + _TRAILER.pack(
        _GROUPED, size, _crc(journal_id, offset, parts)
    )
    return start.ljust(room, b"\0")


def _crc(journal_id: int, offset: int, parts: Sequence[bytes | memoryview]) -> int:
    crc: int = crc32c(_PLACE.pack(journal_id, offset))
    for part in parts:
        crc = crc32c(part, crc, gil_release_mode=_KEEP_INTERPRETER)
    return crc


def file_name(journal_id: int) -> str:
    return f"{journal_id:x}{SUFFIX}"


def journal_ids(directory: Path) -> list[int]:
    """Ids of the journal files in `directory`, oldest first."""
    return sorted(int(path.stem, 16) for path in directory.glob(f"*{SUFFIX}"))


class JournalReader:
    """The records of one file from an offset on; `end` is where the believable part ends."""

    def __init__(self, path: Path, offset: int = 0, *, skip_invalid: bool = False) -> None:
        """`skip_invalid` goes on behind damaged groups (skipReplayJournalInvalidRecord)."""
        self.path = path
        self._journal_id = int(path.stem, 16)
        self.end = max(offset, HEADER_BYTES)
        self.damaged = False
        """Acknowledged records were left out, as `skip_invalid` allows."""
        self.version = 0
        self.grouped = False
        """Written by us: every group has a checksum."""
        self.record_at = self.end
        """Where the record that was given out last begins."""
        self.flaws: list[str] = []
        """What is damaged although the file can be replayed, known at its end."""
        self._skip_invalid = skip_invalid

    def __iter__(self) -> Iterator[bytes]:
        """Records with their length. Raises CorruptJournal when acknowledged bytes lie behind damaged ones."""
        if self.path.stat().st_size < HEADER_BYTES:
            return
        with self.path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
            magic, version, grouped = _HEADER.unpack_from(data)
            if magic != _MAGIC:
                if not any(data[:HEADER_BYTES]):
                    return  # created, and the machine went down before the first group
                raise CorruptJournal(f"{self.path}: not a journal file")
            if not VERSION_MIN <= version <= VERSION:
                raise CorruptJournal(f"{self.path}: journal format version {version} is not supported")
            self.version, self.grouped = version, grouped == _GROUPED
            if not self.grouped and data[_GROUPED_AT : _GROUPED_AT + 4] != bytes(4):
                self.flaws.append(f"{self.path} at {_GROUPED_AT}: the mark in its header is damaged")
            yield from self._groups(data) if self.grouped else self._plain(data)

    def _plain(self, data: mmap) -> Iterator[bytes]:
        """A file written by BookKeeper: whatever is complete in length is taken."""
        while True:
            length = _length_at(data, self.end)
            if length == PADDING_MASK:
                following = _length_at(data, self.end + LENGTH_BYTES)
                if following < 0 or self.end + _PADDING.size + following > len(data):
                    return
                self.end += _PADDING.size + following
                continue
            if length < 0:
                if self._skip_invalid:
                    self.damaged = True
                    return
                raise CorruptJournal(f"{self.path}: record of length {length} at {self.end}")
            stop = self.end + LENGTH_BYTES + length
            if length == 0 or stop > len(data):
                return
            self.record_at = self.end
            yield data[self.end : stop]
            self.end = stop

    def _groups(self, data: mmap) -> Iterator[bytes]:
        """A file of ours: only groups whose trailer fits are taken, others were never acknowledged."""
        while True:
            group = _group_at(data, self._journal_id, self.end)
            if group is not None:
                self.record_at = self.end
                for record in group.records:
                    yield record
                    self.record_at += len(record)
                self.end = group.end
                continue
            following = _next_group(data, self._journal_id, self.end)
            if following is None:
                if _is_complete(data, self.end):
                    text = "a whole group does not fit its checksum: damaged, or torn when the power failed"
                    self.flaws.append(f"{self.path} at {self.end}: {text}")
                return
            if not self._skip_invalid:
                raise CorruptJournal(
                    f"{self.path}: damaged at {self.end}, but intact records follow at {following};"
                    " skipReplayJournalInvalidRecord=true gives the damaged ones up"
                )
            self.damaged = True
            self.end = following


class _Group(NamedTuple):
    records: list[bytes]
    end: int


def _length_at(data: mmap, offset: int) -> int:
    """0, the end of a journal, where the file is too short."""
    if offset + LENGTH_BYTES > len(data):
        return 0
    length: int = LENGTH.unpack_from(data, offset)[0]
    return length


def _group_at(data: mmap, journal_id: int, start: int) -> _Group | None:
    records: list[bytes] = []
    position = start
    while True:
        length = _length_at(data, position)
        if length == PADDING_MASK:
            end = _group_end(data, journal_id, start, position)
            return None if end is None else _Group(records, end)
        stop = position + LENGTH_BYTES + length
        if length <= 0 or stop > len(data):
            return None
        records.append(data[position:stop])
        position = stop


def _group_end(data: mmap, journal_id: int, start: int, padding: int) -> int | None:
    """Where the group from `start` to the padding record at `padding` ends, or None if its trailer does not fit."""
    if padding + CLOSING_BYTES_MIN > len(data):
        return None
    room = _length_at(data, padding + LENGTH_BYTES)
    end: int = padding + _PADDING.size + room
    mark, group_bytes, crc = _TRAILER.unpack_from(data, padding + _PADDING.size)
    if mark != _GROUPED or group_bytes != padding - start or room < _TRAILER.size or end > len(data):
        return None
    return end if _crc(journal_id, start, (data[start:padding],)) == crc else None


def _is_complete(data: mmap, start: int) -> bool:
    """Whether the bytes from `start` on have a group's whole length. What a kill has torn ends before its trailer."""
    padding = start
    while (padding := data.find(_CLOSING_START, padding + 1)) >= 0:
        trailer = padding + _PADDING.size
        if trailer + _TRAILER.size > len(data):
            return False
        mark, group_bytes, _ = _TRAILER.unpack_from(data, trailer)
        if mark == _GROUPED or group_bytes == padding - start:
            return True
    return False


def _next_group(data: mmap, journal_id: int, start: int) -> int | None:
    """Where the first intact group behind `start` begins."""
    padding = start
    while (padding := data.find(_CLOSING_START, padding + 1)) >= 0:
        trailer = padding + _PADDING.size
        if trailer + _TRAILER.size <= len(data) and data[trailer : trailer + 4] == _GROUPED:
            _, group_bytes, _ = _TRAILER.unpack_from(data, trailer)
            group: int = padding - group_bytes
            if group > start and _group_end(data, journal_id, group, padding) is not None:
                return group
    return None
