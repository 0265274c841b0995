"""Entry logs: files of entries in the order of their flushes, and the locations that the index keeps.

Bytes as BookKeeper's: 1024-byte header ("BKLO", version, offset and count of the ledgers map), then records
(int32 size, entry); a finished log ends with its ledgers map. A location is log id << 32 | offset of the
entry behind its size. What a log does not hold as the index says is CorruptEntry, never a missing entry:
recovery would shorten a ledger by an entry that is only unreadable.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator, Sequence
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import NamedTuple

from bookie_stub.errors import CorruptEntry
from bookie_stub.file_system import FileSystem, remove_quietly
from bookie_stub.record import KEY, LENGTH, LENGTH_BYTES

HEADER_BYTES = 1024
VERSION = 1
SUFFIX = ".log"
LAST_ID_FILE = "lastId"

_HEADER = struct.Struct(">4siqi")
_MAGIC = b"BKLO"
_MAP_BLOCK = struct.Struct(">iqqi")
"""Size of what follows, -1 and -2 in the places of ledger and entry, number of pairs."""
_MAP_LEDGER = -1
_MAP_ENTRY = -2
_MAP_PAIRS_MAX = 10_000
_WRITE_BYTES = 256 << 10
_READ_BYTES = 4096
"""First guess at the size of an entry; a longer one takes a second read."""

LedgerBytes = dict[int, int]
"""Ledger id to bytes of its records in one log."""


def location_of(log_id: int, offset: int) -> int:
    return log_id << 32 | offset


def file_name(log_id: int) -> str:
    return f"{log_id:x}{SUFFIX}"


def log_ids(directory: Path) -> list[int]:
    return sorted(int(path.stem, 16) for path in directory.glob(f"*{SUFFIX}"))


class EntryLogWriter:
    """Appends records to the current log and starts the next one at `size_max`. One thread at a time."""

    def __init__(self, directory: Path, size_max: int, file_system: FileSystem) -> None:
        self._directory = directory
        self._size_max = size_max
        self._file_system = file_system
        self._descriptor = -1
        self._position = 0
        self._synced = 0
        self._chunk: list[bytes] = []
        self._chunk_bytes = 0
        self.log_id = -1
        """The log being written; -1 while there is none."""
        self.ledgers: LedgerBytes = {}
        """Of the log being written."""
        self.finished: list[tuple[int, LedgerBytes]] = []
        """Logs that were finished since the owner last looked; it clears the list."""

    def append(self, record: bytes, ledger_id: int) -> int:
        """The location that the record will have. It is written by `sync` at the latest."""
        if self._descriptor < 0:
            self._start()
        elif self.ledgers and self._position + self._chunk_bytes + len(record) > self._size_max:
            self.finish()
            self._start()
        location = location_of(self.log_id, self._position + self._chunk_bytes + LENGTH_BYTES)
        self._chunk.append(record)
        self._chunk_bytes += len(record)
        self.ledgers[ledger_id] = self.ledgers.get(ledger_id, 0) + len(record)
        if self._chunk_bytes >= _WRITE_BYTES:
            self._write_chunk()
        return location

    def sync(self) -> None:
        self._write_chunk()
        if self._descriptor >= 0:
            self._file_system.sync_data(self._descriptor)
            self._synced = self._position

    def finish(self) -> None:
        """Write the ledgers map and close the log. A log without a record is removed."""
        if self._descriptor < 0:
            return
        self._write_chunk()
        ledgers_map = encode_ledgers_map(self.ledgers)
        header = _HEADER.pack(_MAGIC, VERSION, self._position, len(self.ledgers))
        self._file_system.write(self._descriptor, (ledgers_map,), self._position)
        self._file_system.sync_data(self._descriptor)
        # The map first: a header that names a map must never be there without it.
        self._file_system.write(self._descriptor, (header,), 0)
        self._file_system.sync_data(self._descriptor)
        self.finished.append((self.log_id, self.ledgers))
        self._leave()

    def abandon(self) -> None:
        """After a failed write or sync: cut the log to what was synced and go on with another one."""
        if self._descriptor < 0:
            return
        # The index names nothing behind the synced part, so a torn part that stays is only lost space.
        with contextlib.suppress(OSError):
            self._file_system.truncate(self._descriptor, max(self._synced, HEADER_BYTES))
        self._leave()

    def _start(self) -> None:
        log_id = next_log_id(self._directory)
        path = self._directory / file_name(log_id)
        self._file_system.replace(self._directory / LAST_ID_FILE, f"{log_id:x}\n".encode())
        self._descriptor = self._file_system.create(path)
        self.log_id = log_id
        self.ledgers = {}
        self._position = self._synced = HEADER_BYTES
        try:
            header = _HEADER.pack(_MAGIC, VERSION, 0, 0).ljust(HEADER_BYTES, b"\0")
            self._file_system.write(self._descriptor, (header,), 0)
            self._file_system.sync_directory(self._directory)
        except OSError:
            self._leave()
            remove_quietly(self._file_system, path)
            raise

    def _write_chunk(self) -> None:
        if self._chunk:
            self._file_system.write(self._descriptor, (b"".join(self._chunk),), self._position)
            self._position += self._chunk_bytes
            self._chunk = []
            self._chunk_bytes = 0

    def _leave(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        self._chunk = []
        self._chunk_bytes = 0
        self.log_id = -1
        self.ledgers = {}
        self._file_system.close(descriptor)


def next_log_id(directory: Path) -> int:
    """Behind every log that exists and every one that `lastId` has ever named."""
    last = max(log_ids(directory), default=-1)
    # Without a readable one the names of the files decide, as at BookKeeper.
    with contextlib.suppress(FileNotFoundError, ValueError):
        last = max(last, int((directory / LAST_ID_FILE).read_text(), 16))
    return last + 1


class LogHeader(NamedTuple):
    version: int
    map_offset: int
    map_count: int


def read_header(path: Path) -> LogHeader | None:
    """None for a log that was only allocated. CorruptEntry when the file is something else."""
    with path.open("rb") as file:
        start = file.read(_HEADER.size)
    if not start:
        return None
    if len(start) < _HEADER.size or start[:4] != _MAGIC:
        raise CorruptEntry(f"{path}: not an entry log")
    return LogHeader(*_HEADER.unpack(start)[1:])


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
    """Bytes by ledger of a finished log, or None when it has no map: then `scan` tells."""
    header = read_header(path)
    if header is None:
        return {}
    if header.map_offset == 0:
        return None
    with path.open("rb") as file:
        file.seek(header.map_offset)
        data = file.read()
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


def scan(path: Path) -> Iterator[ScannedEntry]:
    """Every complete entry of a log, finished or not; the ledgers map and padding are passed over."""
    if path.stat().st_size <= HEADER_BYTES:
        return
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        position = HEADER_BYTES
        while position + LENGTH_BYTES + KEY.size <= len(data):
            (size,) = LENGTH.unpack_from(data, position)
            if size <= 0:
                position += 1
                continue
            ledger_id, entry_id = KEY.unpack_from(data, position + LENGTH_BYTES)
            stop = position + LENGTH_BYTES + size
            if stop > len(data):
                return
            if ledger_id >= 0:
                yield ScannedEntry(ledger_id, entry_id, position, size)
            position = stop


class _OpenLog:
    """A descriptor that is closed when the last reader lets go of it."""

    __slots__ = ("_file_system", "descriptor")

    def __init__(self, path: Path, file_system: FileSystem) -> None:
        self._file_system = file_system
        self.descriptor = file_system.open_to_read(path)

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):
            self._file_system.close(self.descriptor)


class EntryLogReader:
    """Entries by location, from any thread."""

    def __init__(
        self, directory: Path, entry_bytes_max: int, file_system: FileSystem, open_max: int = 256
    ) -> None:
        """An entry that says to be longer than `entry_bytes_max` is taken for damaged, before memory is."""
        self._directory = directory
        self._entry_bytes_max = entry_bytes_max
        self._file_system = file_system
        self._open_max = open_max
        self._logs: dict[int, _OpenLog] = {}

    def read(self, key: bytes, location: int) -> bytes:
        """The entry whose first 16 bytes are `key`. Raises CorruptEntry or OSError."""
        return next(self.read_run([key], [location]))

    def read_run(self, keys: Sequence[bytes], locations: Sequence[int]) -> Iterator[bytes]:
        """Entries that lie near each other in one log, in ascending order, with one read for all of them.

        Raises CorruptEntry or OSError where one cannot be read, also for those behind it.
        """
        log_id = locations[0] >> 32
        log = self._open(log_id)
        base = locations[0] - LENGTH_BYTES
        size = locations[-1] - base + _READ_BYTES
        data = self._file_system.read(log.descriptor, size, base & 0xFFFFFFFF)
        length_at, size_max = LENGTH.unpack_from, self._entry_bytes_max
        for key, location in zip(keys, locations, strict=True):
            at = location - base
            end = at + length_at(data, at - LENGTH_BYTES)[0] if at <= len(data) else -1
            if at < end <= len(data) and end - at <= size_max and data.startswith(key, at):
                yield data[at:end]
            else:
                yield self._complete(log, log_id, key, location & 0xFFFFFFFF, data[at - LENGTH_BYTES :])

    def _complete(self, log: _OpenLog, log_id: int, key: bytes, offset: int, data: bytes) -> bytes:
        """The entry whose size field `data` begins with, reading what `data` does not hold of it."""
        read = self._file_system.read
        if len(data) < LENGTH_BYTES + KEY.size:
            data = read(log.descriptor, _READ_BYTES, offset - LENGTH_BYTES)
        if len(data) < LENGTH_BYTES + KEY.size:
            raise CorruptEntry(f"log {log_id:x} ends before the entry at {offset}")
        (size,) = LENGTH.unpack_from(data)
        if size < KEY.size or not data.startswith(key, LENGTH_BYTES):
            raise CorruptEntry(f"log {log_id:x} does not hold entry {KEY.unpack(key)} at {offset}")
        if size > self._entry_bytes_max:
            raise CorruptEntry(
                f"log {log_id:x} has entry {KEY.unpack(key)} at {offset} with {size} bytes, more than"
                f" {self._entry_bytes_max}: damaged, or nettyMaxFrameSizeBytes was larger when it was written"
            )
        entry = data[LENGTH_BYTES : LENGTH_BYTES + size]
        if len(entry) < size:
            entry = read(log.descriptor, size, offset)
        if len(entry) < size:
            raise CorruptEntry(f"log {log_id:x} has {len(entry)} of {size} bytes of the entry at {offset}")
        return entry

    def forget(self, log_id: int) -> None:
        """The log is being removed; who reads it now may finish."""
        self._logs.pop(log_id, None)

    def close(self) -> None:
        self._logs.clear()

    def _open(self, log_id: int) -> _OpenLog:
        log = self._logs.get(log_id)
        if log is None:
            path = self._directory / file_name(log_id)
            try:
                log = _OpenLog(path, self._file_system)
            except FileNotFoundError:
                raise CorruptEntry(f"{path} is missing") from None
            if len(self._logs) >= self._open_max:
                self._logs.pop(next(iter(self._logs), log_id), None)
            self._logs[log_id] = log
        return log
