"""Writes entry logs.

`LogFile` is a log while it grows, `EntryLogWriter` has the current log of a directory and begins the next.

BookKeeper: `EntryLogManagerForSingleEntryLog`, `EntryLoggerAllocator`. Two laws: one thread writes at a time, and no index
names bytes that are not synced. So bytes after the synced part, torn or not, are lost space and nothing more.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from bookie_stub.base.file_system import FileSystem, remove_quietly
from bookie_stub.base.record import LENGTH_BYTES
from bookie_stub.disk.entry_log import (
    HEADER_BYTES,
    LedgerBytes,
    encode_header,
    encode_ledgers_map,
    file_name,
    location_of,
    log_ids,
)

LAST_ID_FILE = "lastId"
"""The file with the newest log's id in hexadecimal digits, as at BookKeeper. It outlives the log."""
_WRITE_BYTES = 256 << 10
"""Records are collected until a write has this many bytes."""


class LogFile:
    """A log while it is written."""

    def __init__(self, path: Path, log_id: int, file_system: FileSystem) -> None:
        """Creates the file. OSError, and then there is no file."""
        self.path = path
        """The file, which may have another name than the finished log will get."""
        self.log_id = log_id
        """The id in the locations of its entries."""
        self.ledgers: LedgerBytes = {}
        """The ledgers map so far."""
        self.end = HEADER_BYTES
        """The place of the next record."""
        self._file_system = file_system
        self._written = self._synced = HEADER_BYTES
        self._chunk: list[bytes] = []
        self._descriptor = file_system.create(path)
        try:
            header = encode_header().ljust(HEADER_BYTES, b"\0")
            file_system.write(self._descriptor, (header,), 0)
            # The name now, the header with the first records: an index that names this log must find it in the
            # directory after a power cut.
            file_system.sync_directory(path.parent)
        except OSError:
            file_system.close(self._descriptor)
            remove_quietly(file_system, path)
            raise

    def append(self, record: bytes, ledger_id: int) -> int:
        """Returns the location that the record will have. It is written by `sync` at the latest. OSError."""
        location = location_of(self.log_id, self.end + LENGTH_BYTES)
        self._chunk.append(record)
        self.end += len(record)
        self.ledgers[ledger_id] = self.ledgers.get(ledger_id, 0) + len(record)
        if self.end - self._written >= _WRITE_BYTES:
            self._write_chunk()
        return location

    @property
    def synced(self) -> int:
        """Bytes of the file that are on disk for certain."""
        return self._synced

    def sync(self) -> None:
        """Writes and syncs all records. OSError."""
        self._write_chunk()
        self._file_system.sync_data(self._descriptor)
        self._synced = self.end

    def finish(self) -> None:
        """Writes the ledgers map, syncs, and closes the log. OSError."""
        self._write_chunk()
        ledgers_map = encode_ledgers_map(self.ledgers)
        self._file_system.write(self._descriptor, (ledgers_map,), self.end)
        self._file_system.sync_data(self._descriptor)
        # The map is synced before the header names it: a header that names a missing map says that the log is damaged.
        header = encode_header(self.end, len(self.ledgers), ledgers_map)
        self._file_system.write(self._descriptor, (header,), 0)
        self._file_system.sync_data(self._descriptor)
        self._file_system.close(self._descriptor)

    def abandon(self) -> None:
        """Cuts the log to its synced part and closes it. To be called after a write or a sync that failed."""
        with contextlib.suppress(OSError):  # no index names the torn part, so it may stay
            self._file_system.truncate(self._descriptor, self._synced)
        self._file_system.close(self._descriptor)

    def _write_chunk(self) -> None:
        if self._chunk:
            self._file_system.write(self._descriptor, (b"".join(self._chunk),), self._written)
            self._written = self.end
            self._chunk = []


class EntryLogWriter:
    """Appends records to the current log of a directory. At `size_max` bytes it begins the next log."""

    def __init__(self, directory: Path, size_max: int, file_system: FileSystem) -> None:
        self._directory = directory
        self._size_max = size_max
        self._file_system = file_system
        self._file: LogFile | None = None
        self.newer_than = -1
        """The id that the next record's log must exceed; a compaction's log has it."""
        self.finished: list[int] = []
        """Logs finished since the owner last cleared this list."""

    @property
    def log_id(self) -> int:
        """The id of the current log, -1 without one."""
        return -1 if self._file is None else self._file.log_id

    @property
    def ledgers(self) -> LedgerBytes:
        """The bytes of each ledger in the current log, empty without one."""
        return {} if self._file is None else self._file.ledgers

    @property
    def synced(self) -> tuple[int, int] | None:
        """The current log's id and its synced bytes, or None."""
        return None if self._file is None else (self._file.log_id, self._file.synced)

    def append(self, record: bytes, ledger_id: int) -> int:
        """Returns the location that the record will have. It is written by `sync` at the latest. OSError."""
        file = self._file
        if file is None:
            file = self._start()
        # An entry larger than `size_max` gets a log of its own rather than an endless chain of empty ones.
        elif file.log_id < self.newer_than or (file.ledgers and file.end + len(record) > self._size_max):
            self.finish()
            file = self._start()
        return file.append(record, ledger_id)

    def sync(self) -> None:
        """Writes and syncs all records. OSError."""
        if self._file is not None:
            self._file.sync()

    def finish(self) -> None:
        """Finishes the current log with its ledgers map. OSError."""
        if self._file is not None:
            self._file.finish()
            # Kept for the owner: the inventory lists a log as finished only when the indexes have its entries.
            self.finished.append(self._file.log_id)
            self._file = None

    def abandon(self) -> None:
        """Gives up the current log after a failed write or sync. The next record begins another log."""
        if self._file is not None:
            file, self._file = self._file, None
            file.abandon()

    def reserve_id(self) -> int:
        """Returns an id for a log that a compaction writes. OSError.

        Records appended from now on go to a log with a higher id. Of two copies of an entry the one in the log with the
        higher id is the newer one, and a rebuild of the index relies on that.
        """
        self.newer_than = self._next_id()
        return self.newer_than

    def _start(self) -> LogFile:
        log_id = self._next_id()
        self._file = LogFile(self._directory / file_name(log_id), log_id, self._file_system)
        return self._file

    def _next_id(self) -> int:
        log_id = next_log_id(self._directory)
        # Before the log itself: a kill between the two skips an id. In the other order a log that was removed before
        # `lastId` knew it could give its id to another one.
        self._file_system.replace(self._directory / LAST_ID_FILE, f"{log_id:x}\n".encode())
        return log_id


def next_log_id(directory: Path) -> int:
    """Returns an id above all existing logs and above `lastId`.

    An id is never used twice: the index may still name a log that was removed.
    """
    last = max(log_ids(directory), default=-1)
    # Without a readable `lastId` the names of the files decide, as at BookKeeper.
    with contextlib.suppress(FileNotFoundError, ValueError):
        last = max(last, int((directory / LAST_ID_FILE).read_text(), 16))
    return last + 1
