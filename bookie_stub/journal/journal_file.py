"""A journal file: header, groups of records, and what a reader may believe of its tail.

Bytes as BookKeeper's version 6: a 512-byte header, then records; every group that was synced together ends
on an alignment boundary, filled with a padding record (-0x100, n, n bytes); a zero length ends the file.
Ours adds what BookKeeper's reader skips: a mark in the header, and in the first 16 bytes of each padding
record the length and the CRC32C of the group, so that a torn write is told from an acknowledged one. The
CRC covers the journal's id and the group's offset too: bytes of a group elsewhere prove nothing. The header also
names the journal before it and where that one ends, so that a journal that is gone or cut is missed.
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Iterator, Sequence
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from bookie_stub.base.errors import CorruptJournal
from bookie_stub.base.record import LENGTH, LENGTH_BYTES

HEADER_BYTES = 512
VERSION = 6
VERSION_MIN = 5
"""The first with the 512-byte header and padding."""
PADDING_MASK = -0x100
SUFFIX = ".txn"

_HEADER = struct.Struct(">4si4sqq")
"""Magic, version, and ours: mark, id of the journal before and its end. Behind it the CRC32C of id and header."""
_HEADER_CRC = struct.Struct(">I")
_OURS = slice(8, _HEADER.size + _HEADER_CRC.size)
"""Zeros in BookKeeper's headers."""
_FOREIGN = bytes(_OURS.stop - _OURS.start)
_MAGIC = b"BKLG"
_GROUPED = b"MGRP"
_PADDING = struct.Struct(">ii")
_TRAILER = struct.Struct(">4sII4x")
"""Mark, bytes of the group before its padding record, CRC32C of journal id, group's offset and these bytes."""
_PLACE = struct.Struct(">qq")
_NAME = re.compile(rf"([0-9a-f]{{1,16}}){re.escape(SUFFIX)}")
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


NO_MARK = Mark(0, 0)
"""Before the first journal."""


def header(journal_id: int, before: Mark) -> bytes:
    """`before`: where the journal before it ends, NO_MARK for the first one."""
    start = _HEADER.pack(_MAGIC, VERSION, _GROUPED, *before)
    return (start + _HEADER_CRC.pack(_header_crc(journal_id, start))).ljust(HEADER_BYTES, b"\0")


def _header_crc(journal_id: int, start: bytes) -> int:
    crc: int = crc32c(start, crc32c(_PLACE.pack(journal_id, 0)))
    return crc


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
    """Ids of the journal files in `directory`, oldest first. Other names are no journals."""
    names = [_NAME.fullmatch(path.name) for path in directory.glob(f"*{SUFFIX}")]
    return sorted(int(name[1], 16) for name in names if name)


def strays(directory: Path) -> list[Path]:
    """Files that are called journals and have no id."""
    return sorted(path for path in directory.glob(f"*{SUFFIX}") if not _NAME.fullmatch(path.name))


class Header(NamedTuple):
    version: int
    grouped: bool
    """Written by us: every group has a checksum."""
    before: Mark | None
    """Where the journal before it ends; None when the header does not say."""


def read_header(path: Path) -> Header | None:
    """None where there is none: created, and the machine went down before the first group. CorruptJournal."""
    with path.open("rb") as file:
        return _header_of(file.read(HEADER_BYTES), path)


def _header_of(data: bytes, path: Path) -> Header | None:
    if len(data) < HEADER_BYTES or not any(data):
        return None
    magic, version, grouped, *before = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise CorruptJournal(f"{path} at 0: not a journal file")
    foreign = data[_OURS] == _FOREIGN
    if not foreign and not _is_whole(data, path):
        raise CorruptJournal(f"{path} at {_OURS.start}: its header does not fit its checksum")
    return Header(version, grouped == _GROUPED, None if foreign else Mark(*before))


def _is_whole(data: bytes, path: Path) -> bool:
    crc = _HEADER_CRC.pack(_header_crc(int(path.stem, 16), data[: _HEADER.size]))
    return data[_HEADER.size :].startswith(crc)


REMEDY = (
    "bring the file back as it was, or give up what is lost with skipReplayJournalInvalidRecord=true:"
    " all ledgers are fenced then, and what they do not have is unknown"
)


class JournalReader:
    """The records of one file from an offset on; `end` is where the believable part ends."""

    def __init__(
        self, path: Path, offset: int = 0, *, stop: int | None = None, skip_invalid: bool = False
    ) -> None:
        """`stop`: where the file ends as far as it was acknowledged, if that is known; what lies behind is not read.
        `skip_invalid` goes on behind damaged groups (skipReplayJournalInvalidRecord)."""
        if not _NAME.fullmatch(path.name):
            raise CorruptJournal(f"{path}: a journal's name is its id in hexadecimal digits and {SUFFIX}")
        self.path = path
        self.journal_id = int(path.stem, 16)
        self.end = max(offset, HEADER_BYTES)
        """Behind the last group; the file may end within its padding."""
        self.flaws: list[str] = []
        """What `skip_invalid` has passed over."""
        self.damaged = False
        """Acknowledged records were left out, as `skip_invalid` allows."""
        self.version = 0
        self.grouped = False
        """Written by us: every group has a checksum."""
        self.record_at = self.end
        """Where the record that was given out last begins."""
        self._stop = sys.maxsize if stop is None else stop
        self._skip_invalid = skip_invalid

    def __iter__(self) -> Iterator[bytes]:
        """Records with their length. Raises CorruptJournal when acknowledged bytes lie behind damaged ones."""
        if self.path.stat().st_size < HEADER_BYTES:
            return
        with self.path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
            if self.end > HEADER_BYTES and not _length_at(data, self.end):
                return  # nothing lies behind the mark, so a header that was given up is asked no more
            self._read_header(data)
            yield from self._groups(data) if self.grouped else self._plain(data)

    def _read_header(self, data: mmap) -> None:
        """Groups prove themselves, so under `skip_invalid` they are read without a header."""
        self.grouped = True
        flaw = f"{self.path} at 0: its header is gone"
        try:
            header = _header_of(data[:HEADER_BYTES], self.path)
        except CorruptJournal as error:
            header, flaw = None, str(error)
        if header is not None:
            self.version, self.grouped, _ = header
            if not VERSION_MIN <= self.version <= VERSION:
                raise CorruptJournal(
                    f"{self.path} at 4: journal format version {self.version} is not supported"
                )
            return
        following = _next_group(data, self.journal_id, HEADER_BYTES - 1)
        if following is not None or any(data[:HEADER_BYTES]):
            self._damage(flaw, following)

    def _damage(self, text: str, following: int | None) -> None:
        if not self._skip_invalid:
            raise CorruptJournal(f"{text}; {REMEDY}")
        self.flaws.append(text)
        self.damaged = True
        if following is not None:
            self.end = max(self.end, following)

    def _plain(self, data: mmap) -> Iterator[bytes]:
        """A file written by BookKeeper: whatever is complete in length is taken."""
        while self.end < self._stop:
            length = _length_at(data, self.end)
            if length == PADDING_MASK:
                following = _length_at(data, self.end + LENGTH_BYTES)
                if following < 0 or self.end + _PADDING.size + following > len(data):
                    return
                self.end += _PADDING.size + following
                continue
            if length < 0:
                self._damage(f"{self.path} at {self.end}: a record of length {length}", None)
                return
            stop = self.end + LENGTH_BYTES + length
            if length == 0 or stop > len(data):
                return
            self.record_at = self.end
            yield data[self.end : stop]
            self.end = stop

    def _groups(self, data: mmap) -> Iterator[bytes]:
        """A file of ours: only groups whose trailer fits are taken, others were never acknowledged. Of one that the
        file's end cuts, the complete records: they may have been."""
        while self.end < self._stop:
            group = _group_at(data, self.journal_id, self.end)
            if group is not None:
                yield from self._records(group.records)
                self.end = group.end
                continue
            following = _next_group(data, self.journal_id, self.end)
            if following is None or following >= self._stop:
                yield from self._records(_cut_group(data, self.end))
                return
            self._damage(
                f"{self.path} at {self.end}: damaged, and intact records follow at {following}", following
            )

    def _records(self, records: list[bytes]) -> Iterator[bytes]:
        self.record_at = self.end
        for record in records:
            yield record
            self.record_at += len(record)


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
    """Where the group from `start` to the padding record at `padding` ends, or None if its trailer does not fit.

    The file may end within the padding: it holds nothing behind the trailer.
    """
    if padding + CLOSING_BYTES_MIN > len(data):
        return None
    room = _length_at(data, padding + LENGTH_BYTES)
    end: int = padding + _PADDING.size + room
    mark, group_bytes, crc = _TRAILER.unpack_from(data, padding + _PADDING.size)
    if mark != _GROUPED or group_bytes != padding - start or room < _TRAILER.size:
        return None
    if data[padding + CLOSING_BYTES_MIN : end].strip(b"\0"):
        return None  # the CRC does not cover `room`: too large a one would pass over the next group
    return end if _crc(journal_id, start, (data[start:padding],)) == crc else None


def _cut_group(data: mmap, start: int) -> list[bytes]:
    """The complete records from `start` on, if the file's end is what they lack to be a group, and no damage."""
    records: list[bytes] = []
    position = start
    while position + LENGTH_BYTES <= len(data):
        length = _length_at(data, position)
        if length == PADDING_MASK:
            return records if position + CLOSING_BYTES_MIN > len(data) else []
        stop = position + LENGTH_BYTES + length
        if length <= 0:
            return []
        if stop > len(data):
            break
        records.append(data[position:stop])
        position = stop
    return [] if _has_trailer(data, start) else records


def _has_trailer(data: mmap, start: int) -> bool:
    """Whether a group that begins at `start` is there in its whole length, whatever its bytes are."""
    padding = start
    while (padding := data.find(_CLOSING_START, padding + 1)) >= 0:
        trailer = padding + _PADDING.size
        if trailer + _TRAILER.size <= len(data):
            mark, group_bytes, _ = _TRAILER.unpack_from(data, trailer)
            if mark == _GROUPED and group_bytes == padding - start:
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
