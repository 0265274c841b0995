"""The bytes of a journal file: name, header, and each group's padding.

```
<hex id>.txn
  header     512 bytes: "BKLG", int32 version 6, then ours: mark, the journal before this one and its end, CRC32C
  group      record record ...            written and synced together
  padding    int32 -0x100, int32 n, n bytes, up to the next multiple of journalAlignmentSize
  ...        the next group; a size field of 0 or the end of the file ends the journal
```

These are the bytes of BookKeeper's journal version 6 (`Journal.java`, `JournalChannel.java`). BookKeeper has no checksum
and takes every record that is complete in length, so it replays a torn write as if it had been acknowledged. We add
three things at places that BookKeeper's reader skips:

* a mark in the header: all groups of this file have checksums
* in the first 16 bytes of each padding a trailer: length and CRC32C of the group. The CRC also covers the journal's id
  and the group's offset, so the bytes of a group at another place prove nothing (a payload may contain journal bytes)
* in the header the journal before this one and its end, so that a missing or shortened journal is noticed

`journal_channel` writes these bytes, `journal_reader` reads them. docs/reference/storage_format.md has every field.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from mmap import mmap
from pathlib import Path
from typing import NamedTuple

from bookie_stub.base.errors import CorruptJournal
from bookie_stub.base.record import LENGTH
from protocol.checksum import crc32c

HEADER_BYTES = 512
"""The first group begins here."""
VERSION = 6
"""The version that we write: special records for explicit LACs exist since this one."""
VERSION_MIN = 5
"""The oldest version that we read, the first with a 512-byte header and padding."""
PADDING_MASK = -0x100
"""The size field of a padding record."""
SUFFIX = ".txn"
"""The end of a journal file's name."""

_HEADER = struct.Struct(">4si4sqq")
"""Magic, version; ours: mark, id of the journal before, its end. The CRC32C of id and header follows."""
_HEADER_CRC = struct.Struct(">I")
_OURS = slice(8, _HEADER.size + _HEADER_CRC.size)
"""The part of the header that BookKeeper leaves zero."""
_FOREIGN = bytes(_OURS.stop - _OURS.start)
_MAGIC = b"BKLG"
_GROUPED = b"MGRP"
"""The mark of our headers and of our trailers."""
PADDING_HEAD_BYTES = 8
"""Bytes of a padding record before its n bytes: the mask and n."""
_CLOSING = struct.Struct(">ii4sII4x")
"""A padding record with our trailer, up to the zeros."""
_TRAILER = struct.Struct(">4sII4x")
"""JournalMark, bytes of the group before its padding, CRC32C over journal id, offset of the group, and the group."""
TRAILER_BYTES = _TRAILER.size
"""Bytes of our trailer, the least n of our padding records."""
_PLACE = struct.Struct(">qq")
_NAME = re.compile(rf"([0-9a-f]{{1,16}}){re.escape(SUFFIX)}")
CLOSING_BYTES_MIN = _CLOSING.size
"""Bytes of the shortest padding record: two size fields and the trailer."""
_HOLD_INTERPRETER = 0
"""crc32c's mode that keeps the interpreter's lock. Giving it away made the checksum of a group take 3 ms instead of 0.1,
because the thread then waits until the event loop gives the lock back."""
PADDING_START = LENGTH.pack(PADDING_MASK)
"""The first bytes of a padding record, to search for."""


class JournalMark(NamedTuple):
    """A place in the journals of a directory (BookKeeper: `LogMark`).

    All records of older journals, and those of journal `journal_id` below `offset`, lie before it. Marks are ordered.
    """

    journal_id: int
    """The number in the file's name; 0 before the first journal."""
    offset: int
    """Bytes from the start of the file."""


Marks = tuple[JournalMark, ...]
"""One mark for each journal of a bookie, in the order of `journalDirectories`."""


NO_MARK = JournalMark(0, 0)
"""The place before the first journal."""


class Header(NamedTuple):
    """The header of a journal file."""

    version: int
    """The format version, 6 in our files; any number in a foreign one."""
    grouped: bool
    """True in a file of ours: every group has a trailer with a checksum."""
    before: JournalMark | None
    """The end of the journal before this one; None in a file of BookKeeper."""


class Trailer(NamedTuple):
    """The first 16 bytes in the padding after a group of ours."""

    group_bytes: int
    """Bytes of the group, which ends where its padding begins."""
    crc: int
    """CRC32C of the journal id, the group's offset and the group."""


def header(journal_id: int, before: JournalMark) -> bytes:
    """Returns the 512 bytes at the start of a new file.

    `before` is the end of the journal before this one, NO_MARK for the first journal.
    """
    start = _HEADER.pack(_MAGIC, VERSION, _GROUPED, *before)
    return (start + _HEADER_CRC.pack(_header_crc(journal_id, start))).ljust(HEADER_BYTES, b"\0")


def closing(journal_id: int, offset: int, parts: Sequence[bytes | memoryview], alignment: int) -> bytes:
    """Returns the padding record after the group at `offset`.

    `parts` are the pieces of the group.
    The group and its padding end on a multiple of `alignment`. If fewer bytes than the shortest padding are left before
    it, the padding takes one block more.
    """
    size = sum(map(len, parts))
    padding = -(offset + size) % alignment
    while padding < CLOSING_BYTES_MIN:
        padding += alignment
    # The zeros after the trailer matter: a reader of ours refuses a group whose padding has other bytes.
    crc = group_crc(journal_id, offset, parts)
    return _CLOSING.pack(PADDING_MASK, padding - PADDING_HEAD_BYTES, _GROUPED, size, crc).ljust(
        padding, b"\0"
    )


def group_crc(journal_id: int, offset: int, parts: Sequence[bytes | memoryview]) -> int:
    """Returns the CRC32C of a group, its journal's id and its offset."""
    # Id and offset first: a group that was copied to another place, or is part of a payload, then does not fit.
    crc: int = crc32c(_PLACE.pack(journal_id, offset))
    for part in parts:
        crc = crc32c(part, crc, gil_release_mode=_HOLD_INTERPRETER)
    return crc


def trailer_at(data: mmap, padding: int) -> Trailer | None:
    """Returns the trailer in the padding record at `padding`.

    None when the file ends before it, or when the padding is BookKeeper's.
    """
    if padding + CLOSING_BYTES_MIN > len(data):
        return None
    mark, group_bytes, crc = _TRAILER.unpack_from(data, padding + PADDING_HEAD_BYTES)
    return Trailer(group_bytes, crc) if mark == _GROUPED else None


def file_name(journal_id: int) -> str:
    """Returns the name of a journal file: hexadecimal id and `.txn`."""
    return f"{journal_id:x}{SUFFIX}"


def id_of(path: Path) -> int | None:
    """Returns the id in a journal file's name, or None."""
    name = _NAME.fullmatch(path.name)
    return None if name is None else int(name[1], 16)


def journal_ids(directory: Path) -> list[int]:
    """Returns the ids of the journal files in `directory`, oldest first."""
    ids = map(id_of, directory.glob(f"*{SUFFIX}"))
    return sorted(journal_id for journal_id in ids if journal_id is not None)


def bytes_after(directory: Path, mark: JournalMark) -> int:
    """Returns the bytes of the journal files from a mark on, reserved blocks included. OSError."""
    names = [file_name(journal_id) for journal_id in journal_ids(directory) if journal_id >= mark.journal_id]
    size = sum((directory / name).stat().st_size for name in names)
    return size - (mark.offset if file_name(mark.journal_id) in names else 0)


def strays(directory: Path) -> list[Path]:
    """Returns the `.txn` files whose name is no id. A copy of a journal is one."""
    return sorted(path for path in directory.glob(f"*{SUFFIX}") if id_of(path) is None)


def read_header(path: Path) -> Header | None:
    """Returns the header of a file, or None without one.

    A file without one has only zeros, or fewer bytes than a header.
    Such a file was created, and the machine went down before its first group. Raises CorruptJournal and OSError.
    """
    with path.open("rb") as file:
        return parse_header(file.read(HEADER_BYTES), path)


def parse_header(data: bytes, path: Path) -> Header | None:
    """Returns the header in a file's first bytes, as `read_header` does.

    `path` names the file in messages, and has the journal's id.
    """
    # Allocated blocks read as zeros, so a file whose header was never written looks like this.
    if len(data) < HEADER_BYTES or not any(data):
        return None
    magic, version, grouped, *before = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise CorruptJournal(
            f"{path} at 0: not a journal file, it begins with {magic!r} instead of {_MAGIC!r}"
        )
    # Only all zeros count as BookKeeper's. A damaged mark of ours must not turn the file into one without checksums.
    foreign = data[_OURS] == _FOREIGN
    if not foreign and not _fits_checksum(data, path):
        raise CorruptJournal(f"{path} at {_OURS.start}: its header does not fit its checksum")
    return Header(version, grouped == _GROUPED, None if foreign else JournalMark(*before))


def _fits_checksum(data: bytes, path: Path) -> bool:
    crc = _HEADER_CRC.pack(_header_crc(int(path.stem, 16), data[: _HEADER.size]))
    return data[_HEADER.size :].startswith(crc)


def _header_crc(journal_id: int, start: bytes) -> int:
    crc: int = crc32c(start, crc32c(_PLACE.pack(journal_id, 0)))
    return crc
