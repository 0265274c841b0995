"""The location index: the log and the offset of each entry (BookKeeper: `EntryLocationIndex`).

RocksDB directory `locations`. Key: ledger and entry, big-endian int64 each. Value: the location, big-endian int64; 0 and
no key mean that there is no such entry.

The law: the index alone decides which copy of an entry is the current one. Two entries that lie side by side in a log
prove nothing, because either may have been written again since (BookKeeper trusts the neighbourhood, and serves old
versions by it).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from bookie_stub.base.errors import BookieStorageError
from bookie_stub.base.file_system import FileSystem
from bookie_stub.base.record import KEY
from bookie_stub.disk.rocks import Pause, Put, Rocks, no_pause

LOCATION = struct.Struct(">q")
"""A location as a value of the index."""
_ID_MAX = 2**63 - 1
_BUFFER_BYTES = 16 << 20
_SLICE = 128
"""Rows fetched at a time. rocksdict holds the interpreter's lock meanwhile, for about 60 microseconds."""


class LocationRows(NamedTuple):
    """Some rows of one ledger, in the order of their ids. Ids that the ledger does not have are left out."""

    ids: list[int]
    """The entry ids, ascending."""
    keys: list[bytes]
    """The keys of the rows, which are the first 16 bytes of the entries."""
    locations: tuple[int, ...]
    """The locations, never 0."""


class LocationIndex:
    """The database of one ledger directory. Any thread reads; one thread writes at a time."""

    def __init__(self, path: Path, file_system: FileSystem | None = None) -> None:
        """Opens the database, or makes it. Raises BookieInUse and BookieStorageError."""
        self.path = path
        """The database's directory."""
        self._rocks = Rocks(path, buffer_bytes=_BUFFER_BYTES, file_system=file_system)

    def get(self, key: bytes) -> int:
        """Returns the location of an entry, 0 without one."""
        value = self._rocks.get(key)
        return 0 if value is None else int.from_bytes(value, "big")

    def rows(self, ledger_id: int, first: int, count_max: int) -> Iterator[LocationRows]:
        """Yields up to `count_max` rows from entry `first` on, in slices.

        BookieStorageError when the first row of a slice cannot be read; rows before damage are still yielded.
        """
        if first < 0:
            return
        if count_max == 1:
            # One lookup costs less than an iterator.
            key = KEY.pack(ledger_id, first)
            if location := self.get(key):
                yield LocationRows([first], [key], (location,))
            return
        items = self._rocks.items_from(KEY.pack(ledger_id, first))
        while found := _readable(islice(items, min(count_max, _SLICE))):
            rows = _rows_of(ledger_id, found)
            if rows.ids:
                yield rows
            # Another ledger's row, or location 0, ended the slice.
            if len(rows.ids) < len(found):
                return
            count_max -= len(found)

    def entry_ids(self, ledger_id: int) -> Iterator[int]:
        """Yields the ids of all entries of a ledger, ascending. BookieStorageError."""
        for key, _ in self._rocks.items_from(KEY.pack(ledger_id, 0)):
            found, entry_id = KEY.unpack(key)
            if found != ledger_id:
                return
            yield entry_id

    def ledger_rows(self, ledger_id: int) -> Iterator[tuple[int, int]]:
        """Yields (entry id, location) of all rows of a ledger, ascending. BookieStorageError."""
        for found, entry_id, location in self.all_rows(KEY.pack(ledger_id, 0)):
            if found != ledger_id:
                return
            yield entry_id, location

    def all_rows(self, start: bytes = b"") -> Iterator[tuple[int, int, int]]:
        """Yields (ledger id, entry id, location) from the key `start` on, ascending. BookieStorageError."""
        for key, value in self._rocks.items_from(start):
            ledger_id, entry_id = KEY.unpack(key)
            yield ledger_id, entry_id, int.from_bytes(value, "big")

    def last_entry(self, ledger_id: int) -> int:
        """Returns the highest entry id of a ledger, -1 without one. BookieStorageError."""
        key = self._rocks.floor(KEY.pack(ledger_id, _ID_MAX))
        if key is None:
            return -1
        found, entry_id = KEY.unpack(key)
        return entry_id if found == ledger_id else -1

    def write(self, puts: list[Put], deleted: Iterable[int], pause: Pause = no_pause) -> None:
        """Deletes all rows of some ledgers, then puts rows; durable on return.

        BookieStorageError; then it must be repeated as a whole.
        """
        # BookKeeper deletes the same range, without its end: no entry has the id 2**63 - 1.
        ranges = [(KEY.pack(ledger_id, 0), KEY.pack(ledger_id, _ID_MAX)) for ledger_id in deleted]
        self._rocks.write(puts, deletes=[], ranges=ranges, pause=pause)

    def compact(self) -> None:
        """Rewrites the database's files without deleted rows.

        Takes seconds; reads and writes go on meanwhile.
        A range deletion only hides rows. RocksDB rewrites a file when rows near its keys are written, and ledger ids only
        grow, so the rows of old ledgers would stay for good. BookieStorageError.
        """
        self._rocks.compact()

    def bytes_on_disk(self) -> int:
        """Returns the bytes of the database's files."""
        return self._rocks.bytes_on_disk()

    def count(self) -> int:
        """Returns the number of rows by walking them, for tools."""
        return sum(1 for _ in self._rocks.items_from(b""))

    def count_estimate(self) -> int:
        """Returns RocksDB's estimate of the number of rows, without a walk."""
        return self._rocks.count_estimate()

    @property
    def sequence(self) -> int:
        """The number of changes since the database was made; see `Rocks.sequence`."""
        return self._rocks.sequence

    def close(self) -> None:
        """Closes the database."""
        self._rocks.close()


def _readable(items: Iterator[Put]) -> list[Put]:
    """Returns the rows before the first one that cannot be read. BookieStorageError when that is the first of all."""
    found: list[Put] = []
    try:
        found.extend(items)  # `extend` keeps the rows before an error, a list comprehension would not
    except BookieStorageError:
        if not found:
            raise
    return found


def _rows_of(ledger_id: int, found: list[Put]) -> LocationRows:
    """Returns the rows before another ledger's row or a location 0."""
    keys, values = [key for key, _ in found], [value for _, value in found]
    ids = [entry_id for ledger, entry_id in KEY.iter_unpack(b"".join(keys)) if ledger == ledger_id]
    locations = struct.unpack(f">{len(values)}q", b"".join(values))
    count = locations.index(0) if 0 in locations else len(locations)
    count = min(count, len(ids))
    return LocationRows(ids[:count], keys[:count], locations[:count])
