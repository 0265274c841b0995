"""EntryLogReader: reads entries from entry logs by location, from any thread.

The law: a log that does not hold an entry where the index says so is CorruptEntry, never a missing entry. "No such entry"
lets a recovery close the ledger before it, which would lose an entry that is only unreadable. BookKeeper
answers alike since its pull request 2909.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from bookie_stub.base.errors import CorruptEntry, MissingLog
from bookie_stub.base.file_system import FileSystem
from bookie_stub.base.record import KEY, LENGTH, LENGTH_BYTES
from bookie_stub.disk.entry_log import file_name

_READ_BYTES = 4096
"""The first guess at the size of the last entry of a read; a longer entry takes a second read."""


class _OpenLog:
    """A descriptor that is closed when its last reader is done with it.

    A log may be removed while others read it, so no one place knows when to close; the reference count does.
    """

    def __init__(self, path: Path, file_system: FileSystem) -> None:
        self._file_system = file_system
        self.descriptor = file_system.open_to_read(path)

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):  # missing when opening it failed
            self._file_system.close(self.descriptor)


class EntryLogReader:
    """Reads entries of the entry logs in one directory. It keeps up to `open_max` logs open."""

    def __init__(
        self, directory: Path, entry_bytes_max: int, file_system: FileSystem, open_max: int = 256
    ) -> None:
        """Takes a longer entry than `entry_bytes_max` for damaged. No memory is allocated for it."""
        self._directory = directory
        self._entry_bytes_max = entry_bytes_max
        self._file_system = file_system
        self._open_max = open_max
        self._logs: dict[int, _OpenLog] = {}
        self._gone: set[int] = set()
        """Logs that were forgotten; their ids are never given to other logs."""

    def read(self, key: bytes, location: int) -> bytes:
        """Returns the entry whose first 16 bytes are `key`. Raises CorruptEntry and OSError."""
        return next(self.read_run([key], [location]))

    def read_run(self, keys: Sequence[bytes], locations: Sequence[int]) -> Iterator[bytes]:
        """Yields entries that lie near each other in one log.

        Raises CorruptEntry or OSError at the first one that cannot be read; those after it are not tried.
        """
        log_id = locations[0] >> 32
        log = self._open(log_id)
        base = locations[0] - LENGTH_BYTES
        size = locations[-1] - base + _READ_BYTES
        data = self._file_system.read(log.descriptor, size, base & 0xFFFFFFFF)
        length_at, size_max = LENGTH.unpack_from, self._entry_bytes_max
        for key, location in zip(keys, locations, strict=True):
            at = location - base
            # `base` is the first entry's size field, so `at` is this entry's place in `data`. -1 sends it to `_complete`.
            end = at + length_at(data, at - LENGTH_BYTES)[0] if at <= len(data) else -1
            if at < end <= len(data) and end - at <= size_max and data.startswith(key, at):
                yield data[at:end]
            else:
                yield self._complete(log, log_id, key, location & 0xFFFFFFFF, data[at - LENGTH_BYTES :])

    def _complete(self, log: _OpenLog, log_id: int, key: bytes, offset: int, data: bytes) -> bytes:
        """Returns an entry that the first read does not hold whole. `data` begins with its size field."""
        read = self._file_system.read
        if len(data) < LENGTH_BYTES + KEY.size:
            data = read(log.descriptor, _READ_BYTES, offset - LENGTH_BYTES)
        name = self.path_of(log_id)
        if len(data) < LENGTH_BYTES + KEY.size:
            raise CorruptEntry(f"{name} ends before entry {KEY.unpack(key)} at {offset}")
        (size,) = LENGTH.unpack_from(data)
        if size < KEY.size or not data.startswith(key, LENGTH_BYTES):
            raise CorruptEntry(f"{name} at {offset} does not hold entry {KEY.unpack(key)}")
        if size > self._entry_bytes_max:
            raise CorruptEntry(
                f"{name} at {offset} has entry {KEY.unpack(key)} with {size} bytes, more than"
                f" {self._entry_bytes_max}: damaged, or nettyMaxFrameSizeBytes was larger when it was written"
            )
        entry = data[LENGTH_BYTES : LENGTH_BYTES + size]
        # An entry longer than the first guess: its size is known now, so one read gets it.
        if len(entry) < size:
            entry = read(log.descriptor, size, offset)
        if len(entry) < size:
            raise CorruptEntry(f"{name} at {offset} has {len(entry)} of {size} bytes of {KEY.unpack(key)}")
        return entry

    def path_of(self, log_id: int) -> Path:
        """Returns the path of a log."""
        return self._directory / file_name(log_id)

    def forget(self, log_id: int) -> None:
        """Stops keeping a removed log open. Reads that are under way may finish."""
        self._gone.add(log_id)
        self._logs.pop(log_id, None)

    def close(self) -> None:
        """Closes all logs that no read uses."""
        self._logs.clear()

    def _open(self, log_id: int) -> _OpenLog:
        log = self._logs.get(log_id)
        if log is None:
            path = self.path_of(log_id)
            try:
                log = _OpenLog(path, self._file_system)
            except FileNotFoundError:
                raise MissingLog(f"{path} is missing") from None
            if len(self._logs) >= self._open_max:
                # `list` copies in one step; other threads change the dictionary meanwhile. Any log may be closed.
                self._logs.pop(next(iter(list(self._logs)), log_id), None)
            self._logs[log_id] = log
            # Forgotten between opening and storing: an open descriptor would keep its blocks.
            if log_id in self._gone:
                self._logs.pop(log_id, None)
        return log
