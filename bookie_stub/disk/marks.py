"""The file `lastMark`: the place where a replay begins (BookKeeper: `LastLogMark`).

```
lastMark     int64 journal id   int64 offset        BookKeeper reads these 16 bytes
             "MGMK"  uint32 CRC32 of the 16 bytes   ours
```

The law: everything before a mark is in the entry logs and indexes of all ledger directories. So a checkpoint moves it
last, and a mark that is too low costs time only, while one that is too high would skip acknowledged records.

Every ledger directory has the marks of all journals (`lastMark`, or `lastMark.0`, `lastMark.1`, ... with several
journals). The highest whole one counts, since it was written when all directories had what it covers.
"""

from __future__ import annotations

import logging
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

from bookie_stub.base.errors import CorruptJournal, ForeignDirectory
from bookie_stub.base.file_system import FileSystem
from bookie_stub.journal.journal_file import NO_MARK, JournalMark, file_name, journal_ids, read_header

MARK_FILE = "lastMark"
"""The file's name with one journal, and the start of its name with several."""
_MARK = struct.Struct(">qq")
_TRAILER = struct.Struct(">4sI")
_MAGIC = b"MGMK"
_REPLAY_ALL = "without the file a start replays the journals from their beginning, which is safe"

log = logging.getLogger(__name__)


def mark_name(journal: int, count: int) -> str:
    """Returns the file name for journal number `journal` of `count`."""
    return MARK_FILE if count == 1 else f"{MARK_FILE}.{journal}"


def write_mark(path: Path, mark: JournalMark, file_system: FileSystem) -> None:
    """Replaces a mark file atomically; durable on return. Raises OSError."""
    content = _MARK.pack(*mark)
    file_system.replace(path, content + _trailer(content))


def read_mark(path: Path) -> JournalMark:
    """Returns the mark in one file.

    Raises ForeignDirectory when the file is too short or does not fit its checksum. BookKeeper's marks have none.
    """
    content = path.read_bytes()
    if len(content) < _MARK.size:
        raise ForeignDirectory(f"{path} has {len(content)} bytes, not {_MARK.size}; {_REPLAY_ALL}")
    trailer = content[_MARK.size : _MARK.size + _TRAILER.size]
    if trailer.startswith(_MAGIC) and trailer != _trailer(content[: _MARK.size]):
        raise ForeignDirectory(f"{path} at 0: it does not fit its checksum; {_REPLAY_ALL}")
    return JournalMark(*_MARK.unpack_from(content))


def replay_start(files: Sequence[Path], journals: Path) -> JournalMark:
    """Returns the mark from which one journal directory is replayed.

    `files` are its mark files in all ledger directories. Without a mark that can be believed it is the beginning of the
    oldest journal. Raises ForeignDirectory and CorruptJournal for a damaged mark.
    """
    marks = {path: read_mark(path) for path in files if path.exists()}
    # Directories are written one after the other, so a crash may leave different marks; all before the highest is there.
    # A mark of ours beats a higher one without a checksum, which may be a damaged one.
    if ours := [mark for path, mark in marks.items() if _has_checksum(path)]:
        return max(ours)
    for path, mark in marks.items():
        _check_foreign(path, mark, journals)
    highest = max(marks.values(), default=NO_MARK)
    ids = journal_ids(journals)
    # BookKeeper's marks have no checksum, and name BookKeeper's journals. One that names a journal of ours may be a mark
    # of ours that was damaged or cut, so it is not believed.
    if highest.journal_id and not _names_our_journal(highest, journals, ids):
        return highest
    if ids:
        log.warning("%s is missing or has no checksum: all journals are replayed", files[0])
    return JournalMark(ids[0], 0) if ids else NO_MARK


def _has_checksum(path: Path) -> bool:
    return path.read_bytes()[_MARK.size :].startswith(_MAGIC)


def _check_foreign(path: Path, mark: JournalMark, journals: Path) -> None:
    """Raises CorruptJournal for a foreign mark outside of its journal.

    A mark without a checksum is foreign: BookKeeper's.
    """
    if mark.journal_id not in journal_ids(journals):
        return
    size = (journals / file_name(mark.journal_id)).stat().st_size
    if not 0 <= mark.offset <= size:
        raise CorruptJournal(
            f"{path} at 8: it names {mark.offset} in {file_name(mark.journal_id)}, which has {size} bytes; "
            + _REPLAY_ALL
        )


def _names_our_journal(mark: JournalMark, journals: Path, ids: Sequence[int]) -> bool:
    if mark.journal_id not in ids:
        return False
    try:
        header = read_header(journals / file_name(mark.journal_id))
    except CorruptJournal:
        return True
    return header is not None and header.grouped


def _trailer(mark: bytes) -> bytes:
    return _TRAILER.pack(_MAGIC, zlib.crc32(mark))
