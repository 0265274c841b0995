"""The location index: (ledger, entry) to the place in an entry log. RocksDB directory `locations`.

Key: ledger and entry as big-endian int64. Value: the location as big-endian int64; 0 or no key = no entry.
The index alone decides which copy of an entry is the current one; that two entries lie side by side in a
log proves nothing, because one of them may have been rewritten since.
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
_ID_MAX = 2**63 - 1
_BUFFER_BYTES = 16 << 20
_SLICE = 128
"""Rows that are fetched at a time: about 60 microseconds in which no other thread computes."""


class Rows(NamedTuple):
    """Rows of one ledger in the order of their ids, with gaps where it has none."""

    ids: list[int]
    keys: list[bytes]
    locations: tuple[int, ...]


class LocationIndex:
    def __init__(self, path: Path, file_system: FileSystem | None = None) -> None:
        self.path = path
        self._rocks = Rocks(path, buffer_bytes=_BUFFER_BYTES, file_system=file_system)

    def get(self, key: bytes) -> int:
        """0 when there is no such entry."""
        value = self._rocks.get(key)
        return 0 if value is None else int.from_bytes(value, "big")

    def rows(self, ledger_id: int, first: int, count_max: int) -> Iterator[Rows]:
        """The ledger's rows from entry `first` on, at most `count_max`, some at a time and none of them empty."""
        if first < 0:
            return
        if count_max == 1:
            key = KEY.pack(ledger_id, first)
            if location := self.get(key):
                yield Rows([first], [key], (location,))
            return
        items = self._rocks.items_from(KEY.pack(ledger_id, first))
        while found := _readable(islice(items, min(count_max, _SLICE))):
            rows = _rows_of(ledger_id, found)
            if rows.ids:
                yield rows
            if len(rows.ids) < len(found):
                return
            count_max -= len(found)

    def entry_ids(self, ledger_id: int) -> Iterator[int]:
        """All entries of the ledger, ascending."""
        for key, _ in self._rocks.items_from(KEY.pack(ledger_id, 0)):
            found, entry_id = KEY.unpack(key)
            if found != ledger_id:
                return
            yield entry_id

    def ledger_rows(self, ledger_id: int) -> Iterator[tuple[int, int]]:
        """(entry, location) of the ledger, ascending."""
        for found, entry_id, location in self.all_rows(KEY.pack(ledger_id, 0)):
            if found != ledger_id:
                return
            yield entry_id, location

    def all_rows(self, start: bytes = b"") -> Iterator[tuple[int, int, int]]:
        """(ledger, entry, location), ascending, from the key `start` on."""
        for key, value in self._rocks.items_from(start):
            ledger_id, entry_id = KEY.unpack(key)
            yield ledger_id, entry_id, int.from_bytes(value, "big")

    def last_entry(self, ledger_id: int) -> int:
        """The highest entry id of the ledger, or -1."""
        key = self._rocks.floor(KEY.pack(ledger_id, _ID_MAX))
        if key is None:
            return -1
        found, entry_id = KEY.unpack(key)
        return entry_id if found == ledger_id else -1

    def write(self, puts: list[Put], deleted: Iterable[int], pause: Pause = no_pause) -> None:
        """Forget the ledgers of `deleted`, then put; durable on return. Raises BookieStorageError."""
        ranges = [(KEY.pack(ledger_id, 0), KEY.pack(ledger_id, _ID_MAX)) for ledger_id in deleted]
        self._rocks.write(puts, deletes=[], ranges=ranges, pause=pause)

    def compact(self) -> None:
        """What was deleted leaves the files. Blocks; other threads go on, with reads and writes too. Raises
        BookieStorageError."""
        self._rocks.compact()

    def bytes_on_disk(self) -> int:
        return self._rocks.bytes_on_disk()

    def count(self) -> int:
        """Entries in the index, by walking it: for tests and tools."""
        return sum(1 for _ in self._rocks.items_from(b""))

    def count_estimate(self) -> int:
        return self._rocks.count_estimate()

    @property
    def sequence(self) -> int:
        """How many changes it has seen."""
        return self._rocks.sequence

    def close(self) -> None:
        self._rocks.close()


def _readable(items: Iterator[Put]) -> list[Put]:
    """Up to where they cannot be read; BookieStorageError when that is the first."""
    found: list[Put] = []
    try:
        found.extend(items)  # keeps what came before an error
    except BookieStorageError:
        if not found:
            raise
    return found


def _rows_of(ledger_id: int, found: list[Put]) -> Rows:
    """Up to the first row that is another ledger's, or says that there is no entry."""
    keys, values = [key for key, _ in found], [value for _, value in found]
    ids = [entry_id for ledger, entry_id in KEY.iter_unpack(b"".join(keys)) if ledger == ledger_id]
    locations = struct.unpack(f">{len(values)}q", b"".join(values))
    count = locations.index(0) if 0 in locations else len(locations)
    count = min(count, len(ids))
    return Rows(ids[:count], keys[:count], locations[:count])
