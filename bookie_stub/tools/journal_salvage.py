"""JournalSalvage: writes entries that the logs lost again, from the journals.

A checkpoint leaves `journalMaxBackups` journals. They are the newest part of all that was added, so the last copy
of an entry in them is its newest version. The law: that holds only while nothing between is damaged, as the damage may
hide a newer version. So what precedes a damaged place is not used.
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
from bookie_stub.journal.journal_file import file_name, journal_ids
from bookie_stub.journal.journal_reader import JournalReader

_LOG_BYTES_MAX = 1 << 30
_BATCH = 50_000


class JournalSalvage:
    """Reads the journals twice for lost entries.

    First it finds the newest copy of each wanted entry, then it writes these copies.
    """

    def __init__(self, journals: Sequence[Path], wanted: Callable[[bytes, bytes], bool]) -> None:
        """`wanted(key, record)` returns True when the new index lacks this version."""
        self._journals = journals
        self._wanted = wanted
        self.salvaged: set[bytes] = set()
        """The keys of the entries that were written again."""

    def run(self, logs: Path, into: LocationIndex) -> None:
        """Writes the entries to a new log, and their rows to `into`. Raises BookieError or OSError."""
        newest = self._newest()
        writer = EntryLogWriter(logs, _LOG_BYTES_MAX, FileSystem())
        puts: list[Put] = []
        for directory in self._journals:
            for number, (key, record) in enumerate(_entries(directory, _ignore)):
                # Two readings: of several copies in the journals only the newest may be written, and only a whole pass
                # knows which that is.
                if newest.get(key) != (directory, number):
                    continue
                location = writer.append(record, KEY.unpack(key)[0])
                puts.append((key, LOCATION.pack(location)))
                self.salvaged.add(key)
        # With its ledgers map, so that the next rebuild finds the log complete.
        writer.finish()
        for start in range(0, len(puts), _BATCH):
            into.write(puts[start : start + _BATCH], ())

    def _newest(self) -> dict[bytes, tuple[Path, int]]:
        """Returns directory and number of each wanted entry's newest copy, by key."""
        newest: dict[bytes, tuple[Path, int]] = {}
        for directory in self._journals:
            here: dict[bytes, tuple[Path, int]] = {}
            for number, (key, record) in enumerate(_entries(directory, here.clear)):
                if self._wanted(key, record):
                    here[key] = directory, number
                else:
                    # The index has this very version, and it is newer than the copy that was noted before.
                    here.pop(key, None)
            newest.update(here)
        return newest


def _ignore() -> None:
    """Ignores damage in the second reading, which the first one has judged."""


def _entries(directory: Path, damaged: Callable[[], None]) -> Iterator[tuple[bytes, bytes]]:
    """Yields (key, record) of the entries in a journal directory, in order.

    `damaged` is called at each damaged place, between the entries before and after it.
    """
    for journal_id in journal_ids(directory):
        reader = JournalReader(directory / file_name(journal_id), skip_invalid=True)
        for record in reader:
            if reader.damaged:
                reader.damaged = False  # so that the next damaged place is seen too
                damaged()
            if len(record) >= LENGTH_BYTES + KEY.size:
                key = record[LENGTH_BYTES : LENGTH_BYTES + KEY.size]
                # The entry id is not negative, so the record is not a special one.
                if key[KEY.size // 2] < 0x80:
                    yield key, record
        if reader.damaged:
            damaged()


def differs(reader: EntryLogReader, into: LocationIndex, key: bytes, record: bytes) -> bool:
    """Returns whether the new index lacks this version of an entry.

    It does when it has another version, none, or one that cannot be read.
    """
    location = into.get(key)
    try:
        return not location or reader.read(key, location) != record[LENGTH_BYTES:]
    except (CorruptEntry, OSError):
        return True
