"""Entries that the entry logs have lost and the journals still have: a rebuild writes them to an entry log again.

A checkpoint leaves `journalMaxBackups` journals behind that it does not need. They are the last part of all that was
added, so the last copy of an entry in them is its newest one, as long as nothing in between is damaged: what comes before
a damaged place is not believed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bookie_stub.base.errors import CorruptEntry
from bookie_stub.base.file_system import FileSystem
from bookie_stub.base.record import KEY, LENGTH_BYTES
from bookie_stub.disk.entry_log_reader import EntryLogReader
from bookie_stub.disk.entry_log_writer import EntryLogWriter
from bookie_stub.disk.location_index import LOCATION, LocationIndex
from bookie_stub.disk.rocks import Put
from bookie_stub.journal.journal_file import JournalReader, file_name, journal_ids

_LOG_BYTES_MAX = 1 << 30
_BATCH = 50_000


class JournalSalvage:
    def __init__(self, journals: Sequence[Path], wanted: Callable[[bytes, bytes], bool]) -> None:
        """`wanted(key, record)`: whether the new index lacks the entry, or has another version of it."""
        self._journals = journals
        self._wanted = wanted
        self.rescued: set[bytes] = set()
        """Their keys."""

    def run(self, logs: Path, into: LocationIndex) -> None:
        """Raises BookieError or OSError."""
        newest = self._newest()
        writer = EntryLogWriter(logs, _LOG_BYTES_MAX, FileSystem())
        puts: list[Put] = []
        for directory in self._journals:
            for number, (key, record) in enumerate(_entries(directory, _ignore)):
                if newest.get(key) != (directory, number):
                    continue
                location = writer.append(record, KEY.unpack(key)[0])
                puts.append((key, LOCATION.pack(location)))
                self.rescued.add(key)
        writer.finish()
        for start in range(0, len(puts), _BATCH):
            into.write(puts[start : start + _BATCH], ())

    def _newest(self) -> dict[bytes, tuple[Path, int]]:
        """Where the newest copy of each wanted entry is."""
        newest: dict[bytes, tuple[Path, int]] = {}
        for directory in self._journals:
            here: dict[bytes, tuple[Path, int]] = {}
            for number, (key, record) in enumerate(_entries(directory, here.clear)):
                if self._wanted(key, record):
                    here[key] = directory, number
                else:
                    here.pop(key, None)
            newest.update(here)
        return newest


def _ignore() -> None:
    """What is before a damaged place is not among the newest."""


def _entries(directory: Path, damaged: Callable[[], None]) -> Iterator[tuple[bytes, bytes]]:
    """(key, record) of a journal directory in order; `damaged` is called between what precedes a damaged place and what
    follows it."""
    for journal_id in journal_ids(directory):
        reader = JournalReader(directory / file_name(journal_id), skip_invalid=True)
        for record in reader:
            if reader.damaged:
                reader.damaged = False  # so that the next place is seen too
                damaged()
            if len(record) >= LENGTH_BYTES + KEY.size:
                key = record[LENGTH_BYTES : LENGTH_BYTES + KEY.size]
                if key[KEY.size // 2] < 0x80:  # a negative id is no entry's
                    yield key, record
        if reader.damaged:
            damaged()


def differs(reader: EntryLogReader, into: LocationIndex, key: bytes, record: bytes) -> bool:
    """Whether the new index has no such entry, another version of it, or one that cannot be read."""
    location = into.get(key)
    try:
        return not location or reader.read(key, location) != record[LENGTH_BYTES:]
    except (CorruptEntry, OSError):
        return True
