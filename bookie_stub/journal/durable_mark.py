"""How far a journal was acknowledged, as a note in its directory: `durable`.

A torn group at a journal's end and an acknowledged one that was damaged look alike; the note tells them apart. It is
written behind each sync and before the answer, and not synced itself. So after a kill it is exact, and after a power cut
it names an older place, which was durable too. Behind the first group of each file it is synced, so that the newest file
is always named. The file is mapped: a call per group would give the interpreter away between sync and answer.
"""

from __future__ import annotations

import logging
import struct
from mmap import mmap
from pathlib import Path

from crc32c import crc32c

from bookie_stub.base.errors import CorruptJournal
from bookie_stub.base.file_system import FileSystem
from bookie_stub.journal.journal_file import Mark

FILE = "durable"
_PLACE = struct.Struct(">qq")
_CRC = struct.Struct(">I")
_SLOTS = (0, 512)
"""Written in turn, so that one is whole when a write is torn; each in a sector of its own."""
_SLOT_BYTES = _PLACE.size + _CRC.size
_BYTES = _SLOTS[-1] + _SLOT_BYTES

log = logging.getLogger(__name__)


def read_durable_mark(directory: Path) -> Mark | None:
    """None where there is no note: BookKeeper writes none. CorruptJournal when it is damaged."""
    path = directory / FILE
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    slots = [content[start : start + _SLOT_BYTES] for start in _SLOTS]
    marks = [mark for mark in map(_decode, slots) if mark is not None]
    if not marks:
        raise CorruptJournal(
            f"{path} at 0: it does not fit its checksum; without the file a start takes the damaged end of a journal"
            " for one that a crash has torn"
        )
    return max(marks)


def _encode(mark: Mark) -> bytes:
    place = _PLACE.pack(*mark)
    return place + _CRC.pack(crc32c(place))


def _decode(slot: bytes) -> Mark | None:
    if len(slot) < _SLOT_BYTES:
        return None
    mark = Mark(*_PLACE.unpack_from(slot))
    return mark if slot == _encode(mark) else None


class DurableMarkFile:
    """For the journal's thread. A note that cannot be written is out of date, never wrong, so it fails no add."""

    def __init__(self, directory: Path, file_system: FileSystem) -> None:
        self._path = directory / FILE
        self._file_system = file_system
        self._mapped: mmap | None = None
        self._turn = 0

    def open(self, mark: Mark) -> None:
        """Begin with `mark`, before which everything is in logs and indexes; does nothing when it is open."""
        if self._mapped is not None:
            return
        try:
            if not self._path.exists() or self._path.stat().st_size != _BYTES:
                content = _encode(mark).ljust(_SLOTS[1], b"\0") + _encode(mark)
                self._file_system.replace(self._path, content)
            self._mapped = self._file_system.open_mapped(self._path)
        except OSError as error:
            log.warning("%s: %s", self._path, error)
        for _ in _SLOTS:
            self.write(mark, sync=False)

    def write(self, mark: Mark, *, sync: bool) -> None:
        if self._mapped is None:
            return
        self._turn = 1 - self._turn
        self._file_system.write_mapped(self._mapped, _encode(mark), _SLOTS[self._turn])
        if sync:
            try:
                self._file_system.sync_mapped(self._mapped)
            except OSError as error:
                log.warning("%s: %s", self._path, error)

    def close(self) -> None:
        if self._mapped is not None:
            self._mapped.close()
            self._mapped = None
