"""The file `inventory`: the entry logs and the index rows that a ledger directory must have. Ours; BookKeeper ignores it.

Three losses leave no trace of their own. An entry log that an operator removed looks like one that garbage collection
removed. A log that was cut where a record ends looks like one that a kill left unfinished. And RocksDB takes rows after a
damaged place of its write-ahead log for never written. The inventory says what there was, so that a start can report them.

The law: it is written after everything it lists is on disk, and before the marks move. So all it says is true, and what
it does not list yet is in the journal. Before a log is removed it is struck out.

```
"MGIN"  int32 1
int64 changes of `locations`   int64 changes of `ledgers`   int64 ids in `deleted`     at least; 0 = not known
int32 n   n x (int64 first, int64 last)     ids of finished logs, as ranges
int32 n   n x (int64 id, int64 bytes)       other logs, and how many bytes of each were synced at least
uint32 CRC32 of all before it
```

BookKeeper may have worked on a directory meanwhile. Then the inventory lists too little, and logs that BookKeeper has
removed; a start strikes those out that no row of the index names (`compose/start.py`).
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from bookie_stub.base.errors import BookieStorageError, CorruptEntry
from bookie_stub.base.file_system import FileSystem
from bookie_stub.disk.entry_log import LogScan, file_name, log_ids, read_header

FILE = "inventory"
"""The file's name in a ledger directory."""
_START = struct.Struct(">8sqqq")
"""Magic and version, then `IndexCounts`."""
_MAGIC = b"MGIN\0\0\0\1"
_COUNT = struct.Struct(">i")
_PAIR = struct.Struct(">qq")
_CHECKSUM = struct.Struct(">I")


class IndexCounts(NamedTuple):
    """How much the indexes have at least; 0 stands for unknown."""

    locations: int = 0
    """Changes of the location index, RocksDB's sequence number."""
    ledgers: int = 0
    """Changes of the ledger index, likewise."""
    tombstones: int = 0
    """Ids of deleted ledgers."""


class InventoryContents(NamedTuple):
    """The contents of an inventory file."""

    finished: frozenset[int]
    """Ids of the logs that have their ledgers map."""
    growing: Mapping[int, int]
    """Bytes of each other log that were synced at least, by log id."""
    counts: IndexCounts
    """How much the indexes have at least."""


class Inventory:
    """The inventory of one ledger directory. Any thread.

    Every change is durable on return. A change raises OSError, and then it must be made again.
    """

    def __init__(self, directory: Path, file_system: FileSystem) -> None:
        """Reads the file in `directory`, the one of the entry logs. Logs that it does not list are taken as they are.

        BookieStorageError when the file is damaged; OSError. The inventory is not written yet, but logs that it does
        not list are synced.
        """
        self._directory = directory
        self._file_system = file_system
        self._lock = threading.Lock()
        contents = read_inventory(directory)
        self._finished = set() if contents is None else set(contents.finished)
        self._growing = {} if contents is None else dict(contents.growing)
        self.counts = IndexCounts() if contents is None else contents.counts
        """How much the indexes had when the file was written."""
        found = log_ids(directory)
        self.missing = sorted({*self._finished, *self._growing}.difference(found))
        """Listed logs that do not exist."""
        self.shorter: list[int] = []
        """Listed logs that have fewer bytes than were synced."""
        for log_id in found:
            self._adopt(log_id)

    def _adopt(self, log_id: int) -> None:
        """Lists a log that BookKeeper wrote, or that a kill left between its write and its listing."""
        if log_id in self._finished:
            return
        path = self._directory / file_name(log_id)
        try:
            header = read_header(path)
        # A damaged header says nothing; `check` reports it. The records count, as for a log without a map.
        except CorruptEntry:
            header = None
        size = path.stat().st_size
        if size < self._growing.get(log_id, 0):
            self.shorter.append(log_id)
        elif header is not None and header.map_offset:
            self._finish(log_id)
        elif log_id not in self._growing:
            self._growing[log_id] = min(self._synced_records(path), size)

    def _synced_records(self, path: Path) -> int:
        """Syncs an unlisted log and returns the end of its last complete record. OSError."""
        # A kill in the middle of a write leaves a torn record at the end. The file size would count it, and `check`
        # would report the log as cut although no index names the torn record.
        scan = LogScan(path)
        for _ in scan:
            pass
        # A kill between the write and its sync leaves records in the page cache alone; a power cut would still take them.
        descriptor = self._file_system.open_to_write(path)
        try:
            self._file_system.sync_data(descriptor)
        finally:
            self._file_system.close(descriptor)
        return scan.end

    def flushed(
        self, finished: Collection[int], growing: tuple[int, int] | None, counts: IndexCounts
    ) -> None:
        """Lists the logs and index counts after a flush.

        `finished` are newly finished logs, `growing` is the current log with its synced bytes.
        """
        with self._lock:
            for log_id in finished:
                self._finish(log_id)
            if growing is not None:
                self._growing[growing[0]] = growing[1]
            self.counts = counts
            self._write()

    def added(self, log_id: int) -> None:
        """Lists a finished log that a compaction wrote."""
        with self._lock:
            self._finish(log_id)
            self._write()

    def removed(self, log_ids: Collection[int]) -> None:
        """Strikes logs out. To be called before the files are removed: a listed log must be there after a crash."""
        with self._lock:
            for log_id in log_ids:
                self._finished.discard(log_id)
                self._growing.pop(log_id, None)
            self._write()

    def reset_counts(self, counts: IndexCounts) -> None:
        """Replaces the counts before an index is made anew. A new database counts its changes from the start."""
        with self._lock:
            self.counts = counts
            self._write()

    def _finish(self, log_id: int) -> None:
        self._growing.pop(log_id, None)
        self._finished.add(log_id)

    def _write(self) -> None:
        ranges = _ranges(self._finished)
        growing = sorted(self._growing.items())
        content = b"".join(
            (
                _START.pack(_MAGIC, *self.counts),
                _COUNT.pack(len(ranges)),
                *[_PAIR.pack(*each) for each in ranges],
                _COUNT.pack(len(growing)),
                *[_PAIR.pack(*pair) for pair in growing],
            )
        )
        self._file_system.replace(self._directory / FILE, content + _CHECKSUM.pack(zlib.crc32(content)))


def read_inventory(directory: Path) -> InventoryContents | None:
    """Returns the inventory of a directory, None where there is none. BookieStorageError when it is damaged."""
    path = directory / FILE
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    body, checksum = content[: -_CHECKSUM.size], content[-_CHECKSUM.size :]
    if not body.startswith(_MAGIC) or checksum != _CHECKSUM.pack(zlib.crc32(body)):
        raise BookieStorageError(
            f"{path} at 0: it is damaged, and with it the list of the entry logs that there must be;"
            " run `magnetar bookie index rebuild`, which makes it anew and puts in doubt what the files do not prove"
        )
    _, *counts = _START.unpack_from(body)
    ranges, offset = _pairs(body, _START.size)
    growing, _ = _pairs(body, offset)
    finished = frozenset(log_id for first, last in ranges for log_id in range(first, last + 1))
    return InventoryContents(finished, dict(growing), IndexCounts(*counts))


def _pairs(body: bytes, offset: int) -> tuple[list[tuple[int, int]], int]:
    """Returns the counted pairs at `offset`, and the offset after them."""
    (count,) = _COUNT.unpack_from(body, offset)
    start = offset + _COUNT.size
    end = start + count * _PAIR.size
    return [(first, second) for first, second in _PAIR.iter_unpack(body[start:end])], end


def _ranges(numbers: Collection[int]) -> list[tuple[int, int]]:
    """Returns the ascending ranges (first, last) that cover `numbers`."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = ranges[-1][0], number
        else:
            ranges.append((number, number))
    return ranges
