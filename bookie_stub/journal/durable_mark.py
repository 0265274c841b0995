"""The file `durable`: the end of the acknowledged records of a journal.

Ours; BookKeeper has none.

A torn group at the end of a journal looks like an acknowledged group that was damaged later. The first is dropped by a
replay, the second is a loss that must be reported; this file tells them apart (`journal_chain`).

The law: the mark is written after the sync of a group and before its answers, so everything before it is durable at any
time. It is synced after the first group of a file only. Hence after a kill of the process the mark is exact, and after a
power cut it is some older place, which was durable too. Groups after it may be torn.

```
two copies, at 0 and at 512:   int64 journal id   int64 offset   uint32 CRC32C of both
```

The copies lie in different sectors and are written in turn, so that one of them is whole when a write is torn. The higher
one that fits its checksum counts.
"""

from __future__ import annotations

import logging
import struct
from mmap import mmap
from pathlib import Path

from bookie_stub.base.errors import CorruptJournal
from bookie_stub.base.file_system import FileSystem
from bookie_stub.journal.journal_file import JournalMark
from protocol.checksum import crc32c

FILE = "durable"
"""The file's name in the journal directory."""
_PLACE = struct.Struct(">qq")
_CRC = struct.Struct(">I")
_SLOTS = (0, 512)
_SLOT_BYTES = _PLACE.size + _CRC.size
_BYTES = _SLOTS[-1] + _SLOT_BYTES

log = logging.getLogger(__name__)


def read_durable_mark(directory: Path) -> JournalMark | None:
    """Returns a journal directory's mark, None for one of BookKeeper.

    Raises CorruptJournal when neither copy fits its checksum.
    """
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
    # A torn write leaves one copy whole: the older mark, which was durable too.
    return max(marks)


def _encode(mark: JournalMark) -> bytes:
    place = _PLACE.pack(*mark)
    return place + _CRC.pack(crc32c(place))


def _decode(slot: bytes) -> JournalMark | None:
    if len(slot) < _SLOT_BYTES:
        return None
    mark = JournalMark(*_PLACE.unpack_from(slot))
    return mark if slot == _encode(mark) else None


class DurableMarkFile:
    """Writes the mark, in the journal's thread.

    No error leaves this class: a mark that cannot be written is out of date and never wrong, so it fails no add.
    """

    def __init__(self, directory: Path, file_system: FileSystem) -> None:
        self._path = directory / FILE
        self._file_system = file_system
        self._mapped: mmap | None = None
        self._slot = 0

    def open(self, mark: JournalMark) -> None:
        """Maps the file and writes `mark` to both copies.

        The file is made if need be. Nothing happens when it is open already.
        `mark` is the end of the replay, so everything before it is in entry logs and indexes.
        """
        if self._mapped is not None:
            return
        try:
            if not self._path.exists() or self._path.stat().st_size != _BYTES:
                content = _encode(mark).ljust(_SLOTS[1], b"\0") + _encode(mark)
                self._file_system.replace(self._path, content)
            # Mapped, because a write is a system call: it would give the interpreter's lock away between sync and answer.
            self._mapped = self._file_system.open_mapped(self._path)
        except OSError as error:
            log.warning(
                "%s: it stays as it was, a later start may not tell a torn group: %s", self._path, error
            )
        # Both copies: after a start that gave up damage the other one may name a higher place, which no longer counts.
        for _ in _SLOTS:
            self.write(mark, sync=False)

    def write(self, mark: JournalMark, *, sync: bool) -> None:
        """Writes `mark` over the older copy. Nothing happens when the file could not be opened."""
        if self._mapped is None:
            return
        self._slot = 1 - self._slot
        self._file_system.write_mapped(self._mapped, _encode(mark), _SLOTS[self._slot])
        # A sync costs a disk write of its own, so it is not done for every group.
        if sync:
            try:
                self._file_system.sync_mapped(self._mapped)
            except OSError as error:
                log.warning("%s: the mark is written and not synced: %s", self._path, error)

    def close(self) -> None:
        """Unmaps the file."""
        if self._mapped is not None:
            self._mapped.close()
            self._mapped = None
