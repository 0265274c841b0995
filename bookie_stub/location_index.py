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

from bookie_stub.record import KEY
from bookie_stub.rocks import Breathe, Put, Rocks, no_pause

LOCATION = struct.Struct(">q")
_ID_MAX = 2**63 - 1
_BUFFER_BYTES = 16 << 20


Run = tuple[list[bytes], tuple[int, ...]]


class LocationIndex:
    def __init__(self, path: Path) -> None:
        self._rocks = Rocks(path, buffer_bytes=_BUFFER_BYTES)

    def get(self, key: bytes) -> int:
        """0 when there is no such entry."""
        value = self._rocks.get(key)
        return 0 if value is None else int.from_bytes(value, "big")

    def run(self, ledger_id: int, first: int, count_max: int) -> Run:
        """The entries `first`, `first` + 1, ... up to the first gap; keys and locations, equally many."""
        if first < 0:
            return [], ()
        found = list(islice(self._rocks.items_from(KEY.pack(ledger_id, first)), count_max))
        count = _consecutive(found, ledger_id, first)
        locations = b"".join([value for _, value in found[:count]])
        return [key for key, _ in found[:count]], struct.unpack(f">{count}q", locations)

    def entry_ids(self, ledger_id: int) -> Iterator[int]:
        """All entries of the ledger, ascending."""
        for key, _ in self._rocks.items_from(KEY.pack(ledger_id, 0)):
            found, entry_id = KEY.unpack(key)
            if found != ledger_id:
                return
            yield entry_id

    def last_entry(self, ledger_id: int) -> int:
        """The highest entry id of the ledger, or -1."""
        key = self._rocks.floor(KEY.pack(ledger_id, _ID_MAX))
        if key is None:
            return -1
        found, entry_id = KEY.unpack(key)
        return entry_id if found == ledger_id else -1

    def write(self, puts: list[Put], deleted: Iterable[int], breathe: Breathe = no_pause) -> None:
        """Forget the ledgers of `deleted`, then put; durable on return. Raises BookieStorageError."""
        ranges = [(KEY.pack(ledger_id, 0), KEY.pack(ledger_id, _ID_MAX)) for ledger_id in deleted]
        self._rocks.write(puts, deletes=[], ranges=ranges, breathe=breathe)

    def count(self) -> int:
        """Entries in the index, by walking it: for tests and tools."""
        return sum(1 for _ in self._rocks.items_from(b""))

    def count_estimate(self) -> int:
        return self._rocks.count_estimate()

    def close(self) -> None:
        self._rocks.close()


def _consecutive(found: list[Put], ledger_id: int, first: int) -> int:
    """How many of the ascending keys have no gap before them: where one fits its place, all before it do."""
    low, high = 0, len(found)
    if found and found[-1][0] == KEY.pack(ledger_id, first + high - 1):
        return high
    while low < high:
        middle = (low + high) // 2
        if found[middle][0] == KEY.pack(ledger_id, first + middle):
            low = middle + 1
        else:
            high = middle
    return low
