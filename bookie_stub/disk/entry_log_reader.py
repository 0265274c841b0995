"""Entries read from entry logs by location, from any thread.

What a log does not hold as the index says is CorruptEntry, never a missing entry: recovery would shorten a
ledger by an entry that is only unreadable.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from bookie_stub.base.errors import CorruptEntry, MissingLog
from bookie_stub.base.file_system import FileSystem
from bookie_stub.base.record import KEY, LENGTH, LENGTH_BYTES
from bookie_stub.disk.entry_log import file_name

_READ_BYTES = 4096
"""First guess at the size of an entry; a longer one takes a second read."""


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
        self._gone: set[int] = set()
        """Logs that were forgotten; their ids do not come again."""

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
        self._gone.add(log_id)
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
                raise MissingLog(f"{path} is missing") from None
            if len(self._logs) >= self._open_max:
                self._logs.pop(next(iter(list(self._logs)), log_id), None)
            self._logs[log_id] = log
            if log_id in self._gone:  # Forgotten since it was opened: it must not keep its space.
                self._logs.pop(log_id, None)
        return log
