"""What a ledger directory must have: its entry logs, how long they are, and how far its indexes had come. File `inventory`.

Ours; BookKeeper passes it over. An entry log that is removed, or cut at the edge of a record, looks like one that garbage
collection took, or that a kill left unfinished; a write-ahead log of RocksDB that lost its end looks like a shorter one.
Here stands what they were. Law of the place: written after what it names and before the mark moves, so that all that it
says is so, and what it does not say is in the journal. Of a directory that BookKeeper has worked on meanwhile it knows
too little, never too much, but for logs that BookKeeper removed: a start strikes those out that no row names.
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
from bookie_stub.disk.entry_log import file_name, log_ids, read_header

FILE = "inventory"
_START = struct.Struct(">8sqqq")
"""Magic and version, then `Written`."""
_MAGIC = b"MGIN\0\0\0\1"
_COUNT = struct.Struct(">i")
_PAIR = struct.Struct(">qq")
_CHECKSUM = struct.Struct(">I")


class Written(NamedTuple):
    """What the indexes have at least; 0 = not known."""

    locations: int = 0
    """Changes, as RocksDB counts them."""
    ledgers: int = 0
    tombstones: int = 0
    """Ids of deleted ledgers."""


class Listed(NamedTuple):
    finished: frozenset[int]
    """Logs that have their ledgers map."""
    growing: Mapping[int, int]
    """The others, and how many bytes of each were synced at least."""
    written: Written


class Inventory:
    """Any thread. Every change is durable on return; OSError, and then it is to be made again."""

    def __init__(self, directory: Path, file_system: FileSystem) -> None:
        """`directory` is the entry logs' one; if it has none yet, what there is counts. BookieStorageError when it is
        damaged."""
        self._directory = directory
        self._file_system = file_system
        self._lock = threading.Lock()
        listed = read_inventory(directory)
        self._finished = set() if listed is None else set(listed.finished)
        self._growing = {} if listed is None else dict(listed.growing)
        self.written = Written() if listed is None else listed.written
        found = log_ids(directory)
        self.missing = sorted({*self._finished, *self._growing}.difference(found))
        """Listed logs that are not there."""
        self.shorter: list[int] = []
        """Listed logs that have fewer bytes than were synced."""
        for log_id in found:
            self._take(log_id)

    def _take(self, log_id: int) -> None:
        """A log that somebody else has written, or that a kill kept from being listed or finished here."""
        if log_id in self._finished:
            return
        path = self._directory / file_name(log_id)
        try:
            header = read_header(path)
        except CorruptEntry:
            header = None
        size = path.stat().st_size
        if size < self._growing.get(log_id, 0):
            self.shorter.append(log_id)
        elif header is not None and header.map_offset:
            self._finish(log_id)
        elif log_id not in self._growing:
            self._growing[log_id] = size

    def flushed(self, finished: Collection[int], growing: tuple[int, int] | None, written: Written) -> None:
        """`growing`: the current log and its bytes."""
        with self._lock:
            for log_id in finished:
                self._finish(log_id)
            if growing is not None:
                self._growing[growing[0]] = growing[1]
            self.written = written
            self._write()

    def added(self, log_id: int) -> None:
        """A finished log."""
        with self._lock:
            self._finish(log_id)
            self._write()

    def removed(self, log_ids: Collection[int]) -> None:
        """To be called before they are: what is listed must be there."""
        with self._lock:
            for log_id in log_ids:
                self._finished.discard(log_id)
                self._growing.pop(log_id, None)
            self._write()

    def forget(self, written: Written) -> None:
        """Before an index is made anew, whose numbers begin again."""
        with self._lock:
            self.written = written
            self._write()

    def _finish(self, log_id: int) -> None:
        self._growing.pop(log_id, None)
        self._finished.add(log_id)

    def _write(self) -> None:
        runs = _runs(self._finished)
        growing = sorted(self._growing.items())
        content = b"".join(
            (
                _START.pack(_MAGIC, *self.written),
                _COUNT.pack(len(runs)),
                *[_PAIR.pack(*run) for run in runs],
                _COUNT.pack(len(growing)),
                *[_PAIR.pack(*pair) for pair in growing],
            )
        )
        self._file_system.replace(self._directory / FILE, content + _CHECKSUM.pack(zlib.crc32(content)))


def read_inventory(directory: Path) -> Listed | None:
    """None where there is none. BookieStorageError when it is damaged."""
    path = directory / FILE
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    body, checksum = content[: -_CHECKSUM.size], content[-_CHECKSUM.size :]
    if not body.startswith(_MAGIC) or checksum != _CHECKSUM.pack(zlib.crc32(body)):
        raise BookieStorageError(
            f"{path} at 0: it is damaged, and with it the knowledge of which entry logs there were;"
            " `magnetar bookie index rebuild` makes it anew and puts in doubt what the files do not prove"
        )
    _, *written = _START.unpack_from(body)
    runs, offset = _pairs(body, _START.size)
    growing, _ = _pairs(body, offset)
    finished = frozenset(log_id for first, last in runs for log_id in range(first, last + 1))
    return Listed(finished, dict(growing), Written(*written))


def _pairs(body: bytes, offset: int) -> tuple[list[tuple[int, int]], int]:
    (count,) = _COUNT.unpack_from(body, offset)
    start = offset + _COUNT.size
    end = start + count * _PAIR.size
    return [(first, second) for first, second in _PAIR.iter_unpack(body[start:end])], end


def _runs(numbers: Collection[int]) -> list[tuple[int, int]]:
    """Ascending, each from and up to and with."""
    runs: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    return runs
