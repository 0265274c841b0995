"""The bytes of an entry log, and a scan of one.

BookKeeper: `DefaultEntryLogger`, `EntryLogMetadata`.

```
<hex id>.log
  header         1024 bytes: "BKLO", int32 version 1, int64 offset of the ledgers map, int32 ledgers in it;
                 ours: "MGMC", CRC32C of these 20 bytes and of the map; zeros
  record ...     int32 size, entry, as in the journal
  ledgers map    blocks of at most 10,000: int32 size, int64 -1, int64 -2, int32 n, n x (int64 ledger, int64 bytes)
```

The map is there in finished logs only; BookKeeper leaves its last log without one (offset 0), and such a log is scanned.
A location is log id << 32 | offset of the entry after its size field.

The law of a scan: it finds records, it proves nothing about missing ones. A damaged size field hides what follows, and a
log that was cut where a record ends looks complete. `inventory` and the ledgers map say what must be there.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import NamedTuple

from bookie_stub.base.errors import CorruptEntry
from bookie_stub.base.record import KEY, LENGTH, LENGTH_BYTES
from protocol.checksum import crc32c

HEADER_BYTES = 1024
"""The first record begins here."""
VERSION = 1
"""The version that we write; 0 is read too."""
SUFFIX = ".log"
"""The end of an entry log's name."""
# Eight digits: a location has the upper 32 bits for the id.
_NAME = re.compile(rf"([0-9a-f]{{1,8}}){re.escape(SUFFIX)}")

_HEADER = struct.Struct(">4siqi")
_MAGIC = b"BKLO"
_CHECKED = struct.Struct(">4sI")
"""Ours, in bytes that BookKeeper leaves zero and ignores: magic, CRC32C of the header before it and of the map."""
_CHECKED_MAGIC = b"MGMC"
_MAP_BLOCK = struct.Struct(">iqqi")
"""Size of what follows, -1 and -2 in the places of ledger and entry, number of pairs."""
_MAP_LEDGER = -1
_MAP_ENTRY = -2
_MAP_PAIRS_MAX = 10_000

LedgerBytes = dict[int, int]
"""Bytes of the records of each ledger in one log, size fields included; by ledger id."""


def location_of(log_id: int, offset: int) -> int:
    """Returns the location of the entry at `offset`. The offset is that of the entry itself, after its size field."""
    return log_id << 32 | offset


def file_name(log_id: int) -> str:
    """Returns the name of an entry log: hexadecimal id and `.log`."""
    return f"{log_id:x}{SUFFIX}"


def log_ids(directory: Path) -> list[int]:
    """Returns the ids of the entry logs in `directory`, oldest first. Other files are passed over."""
    names = [_NAME.fullmatch(path.name) for path in directory.glob(f"*{SUFFIX}")]
    return sorted(int(name[1], 16) for name in names if name)


def encode_header(map_offset: int = 0, map_count: int = 0, ledgers_map: bytes = b"") -> bytes:
    """Returns the first bytes of a log, without the zeros after them. A log that grows has no map yet."""
    header = _HEADER.pack(_MAGIC, VERSION, map_offset, map_count)
    return header + _CHECKED.pack(_CHECKED_MAGIC, crc32c(ledgers_map, crc32c(header)))


class LogHeader(NamedTuple):
    """The header of an entry log."""

    version: int
    """0 or 1 in a whole header."""
    map_offset: int
    """The place of the ledgers map; 0 in a log without one."""
    map_count: int
    """The number of ledgers in the map."""
    crc: int | None
    """The checksum of header and map; None in a log of BookKeeper, and where these very bytes are damaged."""

    def fits(self, ledgers_map: bytes) -> bool:
        """Returns False when a checksum is there and does not fit."""
        plain = _HEADER.pack(_MAGIC, *self[:3])
        return self.crc is None or self.crc == crc32c(ledgers_map, crc32c(plain))


def read_header(path: Path) -> LogHeader | None:
    """Returns the header of a log, None for an empty file.

    BookKeeper allocates the next log as an empty file. CorruptEntry when the file is something else; OSError.
    """
    with path.open("rb") as file:
        start = file.read(_HEADER.size)
        checked = file.read(_CHECKED.size)
    if not start:
        return None
    if len(start) < _HEADER.size or start[:4] != _MAGIC:
        raise CorruptEntry(
            f"{path} at 0: not an entry log, it begins with {start[:4]!r} instead of {_MAGIC!r}"
        )
    crc = _CHECKED.unpack(checked)[1] if checked.startswith(_CHECKED_MAGIC) else None
    _, version, map_offset, map_count = _HEADER.unpack(start)
    return LogHeader(version, map_offset, map_count, crc)


def encode_ledgers_map(ledgers: LedgerBytes) -> bytes:
    """Returns the ledgers map of a finished log."""
    # BookKeeper writes them in hash order and reads any order.
    pairs = sorted(ledgers.items())
    blocks = []
    for start in range(0, len(pairs), _MAP_PAIRS_MAX):
        block = pairs[start : start + _MAP_PAIRS_MAX]
        size = _MAP_BLOCK.size - LENGTH_BYTES + KEY.size * len(block)
        blocks.append(_MAP_BLOCK.pack(size, _MAP_LEDGER, _MAP_ENTRY, len(block)))
        blocks += [KEY.pack(*pair) for pair in block]
    return b"".join(blocks)


def read_ledgers_map(path: Path) -> LedgerBytes | None:
    """Returns a log's ledgers map, None for a log without one.

    CorruptEntry when it does not fit its checksum or its own counts. A wrong map would let a log with living entries be
    removed, so a damaged one is never taken for an empty one.
    """
    header = read_header(path)
    if header is None:
        return {}
    data = b""
    if header.map_offset:
        with path.open("rb") as file:
            file.seek(max(header.map_offset, 0))
            data = file.read()
    if not header.fits(data):
        raise CorruptEntry(f"{path} at 0: header and ledgers map do not fit their checksum")
    if header.map_offset == 0:
        return None
    ledgers: LedgerBytes = {}
    offset = 0
    try:
        while len(ledgers) < header.map_count:
            size, ledger, entry, count = _MAP_BLOCK.unpack_from(data, offset)
            if ledger != _MAP_LEDGER or entry != _MAP_ENTRY or size != 20 + KEY.size * count:
                raise CorruptEntry(f"{path} at {header.map_offset + offset}: ledgers map is damaged")
            start = offset + _MAP_BLOCK.size
            ledgers.update(KEY.iter_unpack(data[start : start + KEY.size * count]))
            offset += LENGTH_BYTES + size
    except struct.error as error:
        raise CorruptEntry(f"{path} at {header.map_offset}: ledgers map is cut short: {error}") from None
    return ledgers


class ScannedEntry(NamedTuple):
    """One record that a scan found."""

    ledger_id: int
    """The ledger in the entry."""
    entry_id: int
    """The entry id in the entry."""
    offset: int
    """The place of the size field in the log."""
    size: int
    """Bytes of the entry, without the size field."""


class LogScan:
    """Iterates over every complete entry of a log, finished or not. The attributes hold after the last one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.end = HEADER_BYTES
        """The end of the last complete record."""
        self.rest = 0
        """Bytes after `end` if any is not zero: torn by a crash, or damage that hides what follows."""
        self.gap: int | None = None
        """The start of the first bytes between two records that belong to none; None without a gap."""

    def __iter__(self) -> Iterator[ScannedEntry]:
        """Yields the entries in the order of their places. OSError."""
        if self._path.stat().st_size <= HEADER_BYTES:
            return
        with self._path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
            position = HEADER_BYTES
            while position + LENGTH_BYTES + KEY.size <= len(data):
                (size,) = LENGTH.unpack_from(data, position)
                if size <= 0:
                    # Padding, of BookKeeper's direct-I/O logger for instance: BookKeeper advances by one byte as well.
                    position += 1
                    continue
                stop = position + LENGTH_BYTES + size
                if stop > len(data):
                    break
                if position > self.end and self.gap is None:
                    self.gap = self.end
                ledger_id, entry_id = KEY.unpack_from(data, position + LENGTH_BYTES)
                # A negative one is a block of the ledgers map, or a dummy record of direct I/O.
                if ledger_id >= 0:
                    yield ScannedEntry(ledger_id, entry_id, position, size)
                self.end = position = stop
            left = data[self.end :]
            self.rest = len(left) if left.strip(b"\0") else 0
