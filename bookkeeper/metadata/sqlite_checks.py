"""Checks of the metadata file: records that are damaged, and commits that are lost.

Two kinds of damage leave SQLite content:

* A changed byte of a record. Each record has a CRC32 of its key and value; a start reads all of them, in a large file after
  the start, and each read checks its own.
* A changed byte of the write-ahead log. SQLite takes everything after it for never written. So each commit counts up, in
  the file and in a small file beside it, `…-commits`. That one is written after the commit and never synced: it survives
  `kill -9`, and after a power loss it may be older than the store, never newer.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import struct
import threading
from pathlib import Path
from typing import Final
from urllib.parse import quote
from zlib import crc32

from foundation.model.errors import MetadataError

log = logging.getLogger("magnetar")

CHECKED_AT_START_BYTES_MAX: Final = 64 << 20
"""Size of a file up to which a start waits for the check of its records: half a second, 150,000 topics."""
_COUNT: Final = struct.Struct(">qI")
_NAMES_MAX: Final = 5
"""Damaged records that an error names."""


def crc_of(key: str, value: bytes) -> int:
    """Returns the checksum of a record."""
    return crc32(value, crc32(key.encode()))


class CommitCount:
    """The file with the number of the last commit."""

    def __init__(self, store: Path) -> None:
        """Opens or makes the file beside the store. Raises OSError."""
        self.path = store.with_name(store.name + "-commits")
        """The file's path."""
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)

    def read(self) -> int:
        """Returns the number; 0 without one, and for bytes that are none."""
        data = os.pread(self._descriptor, _COUNT.size, 0)
        if len(data) < _COUNT.size:
            return 0
        number, crc = _COUNT.unpack(data)
        return int(number) if crc == crc32(data[:8]) else 0

    def write(self, number: int) -> None:
        """Writes the number; raises OSError on a full disk only when the file is new."""
        head = number.to_bytes(8, "big")
        os.pwrite(self._descriptor, head + crc32(head).to_bytes(4, "big"), 0)

    def close(self) -> None:
        """Closes the file."""
        os.close(self._descriptor)


def check_commits(store: Path, count: CommitCount, found: int) -> None:
    """Raises MetadataError when the store has fewer commits than were answered."""
    answered = count.read()
    if found < answered:
        raise MetadataError(
            f"{store} has {found} of {answered} commits: a byte of its write-ahead log is damaged, or it is an older copy."
            f" Bring the newest files back; or remove {count.path.name}, and all that these commits stored is lost,"
            " such as the last ledgers of topics with their messages"
        )


def checks_later(store: Path) -> bool:
    """Returns True for a file whose check would lengthen the start by more than a second."""
    return store.stat().st_size > CHECKED_AT_START_BYTES_MAX


def check_later(store: Path) -> None:
    """Checks a large file after the start, in a thread, and logs damage. Each read checks its own record in any case."""
    threading.Thread(target=_check_and_log, args=(store,), name="metadata-check", daemon=True).start()


def _check_and_log(store: Path) -> None:
    try:
        connection = sqlite3.connect(f"file:{quote(str(store))}?mode=ro", uri=True)
        try:
            check_records(connection, store)
        finally:
            connection.close()
    except (MetadataError, sqlite3.Error) as error:
        log.error("! %s", error)


def check_records(connection: sqlite3.Connection, store: Path) -> None:
    """Reads every record. Raises MetadataError that names damaged ones; takes 2 s for a million records."""
    try:
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        rows = connection.execute("SELECT key, value, crc FROM node WHERE crc IS NOT NULL")
        damaged = [key for key, value, crc in rows if crc_of(key, value) != crc]
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise MetadataError(f"{store} is damaged: {error}; bring a copy of it back") from error
    if verdict != "ok":
        raise MetadataError(f"{store} is damaged: {verdict}; bring a copy of it back")
    if damaged:
        names = ", ".join(map(repr, damaged[:_NAMES_MAX]))
        raise MetadataError(
            f"{store}: {len(damaged)} records do not fit their checksums: {names}; bring a copy of the file back"
        )
