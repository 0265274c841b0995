"""PreviousLocations: the old location index, for entries that a scan missed.

A damaged size field hides the entries after it from a scan, but the old index still names their places, and most of them
can be read. The law: a rebuild forgets no row. A row that the scan did not confirm, or for which it found an older copy
only, is kept whether its entry can be read or not. An entry that cannot be read stays an I/O error, as it was before; it
never becomes absent, and its older version is never served in its place.
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
    """Reads the old location index of one directory."""

    def __init__(self, path: Path, changes: int) -> None:
        """`changes` is the least number of changes; 0 when unknown."""
        self._path = path
        self._changes = changes
        self.complete = False
        """True when all of it could be read: an entry that it does not name was never flushed, or is in the journal."""
        self.ledgers: set[int] = set()
        """The ledgers of the rows that were kept."""
        self.rescued = 0
        """Entries that could be read and that the scan did not find."""
        self.unreadable: dict[bytes, int] = {}
        """The location, by key, of each entry that no log has."""

    def keep(self, into: LocationIndex, is_known: Callable[[int], bool], reader: EntryLogReader) -> None:
        """Adds the rows of known ledgers that the new index lacks. BookieStorageError when that cannot be written."""
        puts: list[Put] = []
        for key, location in self._rows_beyond(into, is_known):
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

    def _rows_beyond(
        self, into: LocationIndex, is_known: Callable[[int], bool]
    ) -> Iterator[tuple[bytes, int]]:
        """Yields (key, location) of rows newer than those of the new index.

        A row that the new index lacks is newer too.
        """
        try:
            # A copy with fewer changes than the inventory says has lost its newest rows.
            self.complete = sequence_of(self._path) >= self._changes
            with read_rows(self._path) as rows:
                new = _AscendingLookup(into)
                for key, value in rows:
                    location = int.from_bytes(value, "big")
                    # Locations grow with the log's id and the place in it, so the higher one is the newer copy.
                    if location > new.location_of(key) and is_known(KEY.unpack(key)[0]):
                        yield key, location
        except BookieStorageError:
            self.complete = False

    def logs_of_unreadable(self) -> list[str]:
        """Returns the names of the logs that lack unreadable entries."""
        return [file_name(log_id) for log_id in sorted({each >> 32 for each in self.unreadable.values()})]


class _AscendingLookup:
    """Looks up keys that come in ascending order, by walking the index once beside them."""

    def __init__(self, index: LocationIndex) -> None:
        self._rows = index.all_rows()
        self._key = b""
        self._location = 0

    def location_of(self, key: bytes) -> int:
        """Returns the location of a key, 0 without one."""
        while self._key < key:
            row = next(self._rows, None)
            if row is None:
                self._key, self._location = b"\xff" * KEY.size, 0
            else:
                self._key, self._location = KEY.pack(*row[:2]), row[2]
        return self._location if self._key == key else 0
