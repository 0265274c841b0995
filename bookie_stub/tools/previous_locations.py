"""What the old location index knows that a scan of the entry logs did not find: a rebuild forgets none of it.

A row that the scan has not confirmed, or for which it found only an older copy, is tried at its place: behind a damaged
size there are whole entries. It is kept either way: an entry that cannot be read is an I/O error for who asks, as it was
before, and never absent, or served in an older version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from bookie_stub.base.errors import BookieError, BookieStorageError
from bookie_stub.base.record import KEY
from bookie_stub.disk.entry_log import file_name
from bookie_stub.disk.entry_log_reader import EntryLogReader
from bookie_stub.disk.location_index import LOCATION, LocationIndex
from bookie_stub.disk.rocks import Put, read_rows, sequence_of

_BATCH = 50_000


class PreviousLocations:
    def __init__(self, path: Path, changes: int) -> None:
        """`changes`: how many it must have seen, 0 when that is not known."""
        self._path = path
        self._changes = changes
        self.complete = False
        """Nothing is missing in it: whatever it does not name was never acknowledged, or is in the journals."""
        self.ledgers: set[int] = set()
        """Those that it has kept entries of."""
        self.rescued = 0
        """Entries that only it could find."""
        self.unreadable: dict[bytes, int] = {}
        """Key to location of the entries that nobody can read."""

    def keep(self, into: LocationIndex, is_known: Callable[[int], bool], reader: EntryLogReader) -> None:
        """Adds to the new index. BookieStorageError when that cannot be written."""
        puts: list[Put] = []
        for key, location in self._beyond(into, is_known):
            self.ledgers.add(KEY.unpack(key)[0])
            try:
                reader.read(key, location)
            except (BookieError, OSError):
                self.unreadable[key] = location
            else:
                self.rescued += 1
            puts.append((key, LOCATION.pack(location)))
            if len(puts) == _BATCH:
                into.write(puts, ())
                puts = []
        into.write(puts, ())

    def _beyond(self, into: LocationIndex, is_known: Callable[[int], bool]) -> Iterator[tuple[bytes, int]]:
        """Rows of known ledgers that the new index has not, or with a lower location."""
        try:
            self.complete = sequence_of(self._path) >= self._changes
            with read_rows(self._path) as rows:
                new = _Ascending(into)
                for key, value in rows:
                    location = int.from_bytes(value, "big")
                    if location > new.location_of(key) and is_known(KEY.unpack(key)[0]):
                        yield key, location
        except BookieStorageError:
            self.complete = False

    def logs_of_unreadable(self) -> list[str]:
        """Names of the entry logs that they should be in."""
        return [file_name(log_id) for log_id in sorted({each >> 32 for each in self.unreadable.values()})]


class _Ascending:
    """Looks keys up that come in ascending order, by going along with them."""

    def __init__(self, index: LocationIndex) -> None:
        self._rows = index.all_rows()
        self._key = b""
        self._location = 0

    def location_of(self, key: bytes) -> int:
        """0 for none."""
        while self._key < key:
            row = next(self._rows, None)
            if row is None:
                self._key, self._location = b"\xff" * KEY.size, 0
            else:
                self._key, self._location = KEY.pack(*row[:2]), row[2]
        return self._location if self._key == key else 0
