"""Entry logs: their names and bytes, and what a scan finds in one.

Bytes as BookKeeper's: 1024-byte header ("BKLO", version, offset and count of the ledgers map), then records
(int32 size, entry); a finished log ends with its ledgers map. A location is log id << 32 | offset of the
entry behind its size.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from bookie_stub.base.errors import CorruptEntry
from bookie_stub.base.record import KEY, LENGTH, LENGTH_BYTES

HEADER_BYTES = 1024
VERSION = 1
SUFFIX = ".log"
_NAME = re.compile(rf"([0-9a-f]{{1,8}}){re.escape(SUFFIX)}")

_HEADER = struct.Struct(">4siqi")
_MAGIC = b"BKLO"
_CHECKED = struct.Struct(">4sI")
"""Ours, behind what BookKeeper reads: magic, CRC32C of the header in front of it and of the whole map."""
_CHECKED_MAGIC = b"MGMC"
_MAP_BLOCK = struct.Struct(">iqqi")
"""Size of what follows, -1 and -2 in the places of ledger and entry, number of pairs."""
_MAP_LEDGER = -1
_MAP_ENTRY = -2
_MAP_PAIRS_MAX = 10_000

LedgerBytes = dict[int, int]
"""Ledger id to bytes of its records in one log."""


def location_of(log_id: int, offset: int) -> int:
    return log_id << 32 | offset


def file_name(log_id: int) -> str:
    return f"{log_id:x}{SUFFIX}"


def log_ids(directory: Path) -> list[int]:
    """Ids of the entry logs in `directory`, oldest first. Other names are no entry logs."""
    names = [_NAME.fullmatch(path.name) for path in directory.glob(f"*{SUFFIX}")]
    return sorted(int(name[1], 16) for name in names if name)


def encode_header(map_offset: int = 0, map_count: int = 0, ledgers_map: bytes = b"") -> bytes:
    """What stands in front of the header's zeros; a log that is being written has no map yet."""
    header = _HEADER.pack(_MAGIC, VERSION, map_offset, map_count)
    return header + _CHECKED.pack(_CHECKED_MAGIC, crc32c(ledgers_map, crc32c(header)))


class LogHeader(NamedTuple):
    version: int
    map_offset: int
    map_count: int
    crc: int | None
    """Of this and the map; None: written by BookKeeper, or the place itself is damaged."""

    def fits(self, ledgers_map: bytes) -> bool:
        """Whether there is no checksum that says otherwise."""
        plain = _HEADER.pack(_MAGIC, *self[:3])
        return self.crc is None or self.crc == crc32c(ledgers_map, crc32c(plain))


def read_header(path: Path) -> LogHeader | None:
    """None for a log that was only allocated. CorruptEntry when the file is something else."""
    with path.open("rb") as file:
        start = file.read(_HEADER.size)
        checked = file.read(_CHECKED.size)
    if not start:
        return None
    if len(start) < _HEADER.size or start[:4] != _MAGIC:
        raise CorruptEntry(f"{path}: not an entry log")
    crc = _CHECKED.unpack(checked)[1] if checked.startswith(_CHECKED_MAGIC) else None
    _, version, map_offset, map_count = _HEADER.unpack(start)
    return LogHeader(version, map_offset, map_count, crc)


def encode_ledgers_map(ledgers: LedgerBytes) -> bytes:
    pairs = sorted(ledgers.items())
    blocks = []
    for start in range(0, len(pairs), _MAP_PAIRS_MAX):
        block = pairs[start : start + _MAP_PAIRS_MAX]
        size = _MAP_BLOCK.size - LENGTH_BYTES + KEY.size * len(block)
        blocks.append(_MAP_BLOCK.pack(size, _MAP_LEDGER, _MAP_ENTRY, len(block)))
        blocks += [KEY.pack(*pair) for pair in block]
    return b"".join(blocks)


def read_ledgers_map(path: Path) -> LedgerBytes | None:
    """Bytes by ledger of a finished log, or None when it has no map: then `scan` tells. CorruptEntry for damage."""
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
                raise CorruptEntry(f"{path}: ledgers map is damaged")
            start = offset + _MAP_BLOCK.size
            ledgers.update(KEY.iter_unpack(data[start : start + KEY.size * count]))
            offset += LENGTH_BYTES + size
    except struct.error as error:
        raise CorruptEntry(f"{path}: ledgers map is cut short: {error}") from None
    return ledgers


class ScannedEntry(NamedTuple):
    ledger_id: int
    entry_id: int
    offset: int
    """Of the size field."""
    size: int
    """Of the entry, without the size field."""


class LogScan:
    """Every complete entry of a log, finished or not; the ledgers map and padding are passed over."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.end = HEADER_BYTES
        """How far the scan has come; at its end, where the last complete record ends."""
        self.rest = 0
        """Bytes that are left behind the end: torn by a crash, or damage that hides whatever follows."""
        self.gap: int | None = None
        """Where the first bytes are that lie between two records and belong to none."""

    def __iter__(self) -> Iterator[ScannedEntry]:
        if self._path.stat().st_size <= HEADER_BYTES:
            return
        with self._path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
            position = HEADER_BYTES
            while position + LENGTH_BYTES + KEY.size <= len(data):
                (size,) = LENGTH.unpack_from(data, position)
                if size <= 0:
                    position += 1
                    continue
                stop = position + LENGTH_BYTES + size
                if stop > len(data):
                    break
                if position > self.end and self.gap is None:
                    self.gap = self.end
                ledger_id, entry_id = KEY.unpack_from(data, position + LENGTH_BYTES)
                if ledger_id >= 0:
                    yield ScannedEntry(ledger_id, entry_id, position, size)
                self.end = position = stop
            left = data[self.end :]
            self.rest = len(left) if left.strip(b"\0") else 0
