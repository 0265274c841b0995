"""Writing entry logs: one file while it grows, the current one of a directory, and where the next one gets its id.

Law of the place: one thread at a time; what is not synced is named by no index.
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
_WRITE_BYTES = 256 << 10


class LogFile:
    """A log while it is written."""

    def __init__(self, path: Path, log_id: int, file_system: FileSystem) -> None:
        """Creates the file. OSError, and then there is none."""
        self.path = path
        self.log_id = log_id
        self.ledgers: LedgerBytes = {}
        self.end = HEADER_BYTES
        """Where the next record begins."""
        self._file_system = file_system
        self._written = self._synced = HEADER_BYTES
        self._chunk: list[bytes] = []
        self._descriptor = file_system.create(path)
        try:
            header = encode_header().ljust(HEADER_BYTES, b"\0")
            file_system.write(self._descriptor, (header,), 0)
            file_system.sync_directory(path.parent)
        except OSError:
            file_system.close(self._descriptor)
            remove_quietly(file_system, path)
            raise

    def append(self, record: bytes, ledger_id: int) -> int:
        """The location that the record will have. It is written by `sync` at the latest."""
        location = location_of(self.log_id, self.end + LENGTH_BYTES)
        self._chunk.append(record)
        self.end += len(record)
        self.ledgers[ledger_id] = self.ledgers.get(ledger_id, 0) + len(record)
        if self.end - self._written >= _WRITE_BYTES:
            self._write_chunk()
        return location

    @property
    def synced(self) -> int:
        return self._synced

    def sync(self) -> None:
        self._write_chunk()
        self._file_system.sync_data(self._descriptor)
        self._synced = self.end

    def finish(self) -> None:
        """Write the ledgers map and close the log."""
        self._write_chunk()
        ledgers_map = encode_ledgers_map(self.ledgers)
        self._file_system.write(self._descriptor, (ledgers_map,), self.end)
        self._file_system.sync_data(self._descriptor)
        # The map first: a header that names a map must never be there without it.
        header = encode_header(self.end, len(self.ledgers), ledgers_map)
        self._file_system.write(self._descriptor, (header,), 0)
        self._file_system.sync_data(self._descriptor)
        self._file_system.close(self._descriptor)

    def abandon(self) -> None:
        """After a failed write or sync: cut the log to what was synced."""
        # The index names nothing behind the synced part, so a torn part that stays is only lost space.
        with contextlib.suppress(OSError):
            self._file_system.truncate(self._descriptor, self._synced)
        self._file_system.close(self._descriptor)

    def _write_chunk(self) -> None:
        if self._chunk:
            self._file_system.write(self._descriptor, (b"".join(self._chunk),), self._written)
            self._written = self.end
            self._chunk = []


class EntryLogWriter:
    """Appends records to the current log and starts the next one at `size_max`."""

    def __init__(self, directory: Path, size_max: int, file_system: FileSystem) -> None:
        self._directory = directory
        self._size_max = size_max
        self._file_system = file_system
        self._file: LogFile | None = None
        self.newer_than = -1
        """What is appended now goes to a log with a higher id."""
        self.finished: list[int] = []
        """Logs that were finished since the owner last looked; it clears the list."""

    @property
    def log_id(self) -> int:
        """The log being written; -1 while there is none."""
        return -1 if self._file is None else self._file.log_id

    @property
    def synced(self) -> tuple[int, int] | None:
        """The log being written, and how many of its bytes are on disk for certain."""
        return None if self._file is None else (self._file.log_id, self._file.synced)

    def append(self, record: bytes, ledger_id: int) -> int:
        """The location that the record will have. It is written by `sync` at the latest."""
        file = self._file
        if file is None:
            file = self._start()
        elif file.log_id < self.newer_than or (file.ledgers and file.end + len(record) > self._size_max):
            self.finish()
            file = self._start()
        return file.append(record, ledger_id)

    def sync(self) -> None:
        if self._file is not None:
            self._file.sync()

    def finish(self) -> None:
        """Write the ledgers map of the current log and close it."""
        if self._file is not None:
            self._file.finish()
            self.finished.append(self._file.log_id)
            self._file = None

    def abandon(self) -> None:
        """After a failed write or sync: go on with another log."""
        if self._file is not None:
            file, self._file = self._file, None
            file.abandon()

    def reserve_id(self) -> int:
        """For a log of somebody else's. What is appended from now on goes to a newer one, so that of two logs with
        the same entry the newer one has the newer version."""
        self.newer_than = self._next_id()
        return self.newer_than

    def _start(self) -> LogFile:
        log_id = self._next_id()
        self._file = LogFile(self._directory / file_name(log_id), log_id, self._file_system)
        return self._file

    def _next_id(self) -> int:
        log_id = next_log_id(self._directory)
        self._file_system.replace(self._directory / LAST_ID_FILE, f"{log_id:x}\n".encode())
        return log_id


def next_log_id(directory: Path) -> int:
    """Behind every log that exists and every one that `lastId` has ever named."""
    last = max(log_ids(directory), default=-1)
    # Without a readable one the names of the files decide, as at BookKeeper.
    with contextlib.suppress(FileNotFoundError, ValueError):
        last = max(last, int((directory / LAST_ID_FILE).read_text(), 16))
    return last + 1
