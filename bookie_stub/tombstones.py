"""Which ledgers a ledger directory had and deleted: file `deleted` beside its indexes. Ours; BookKeeper passes it over.

Ids of ledgers only grow and never come back, so whatever asks for a deleted one again is late: a writer that was fenced
off before, and would find a new ledger without a fence. So the bookie knows its deleted ledgers for ever. One bit for
each id, in chunks of 65,536 ids, compressed in the file: 8 KiB of memory for a chunk at most, some ten bytes in the file
where neighbours go together. Ids that somebody draws at random lie in a chunk each, so a chunk with few of them is their
sorted list.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from pathlib import Path

from bookie_stub.errors import BookieStorageError
from bookie_stub.file_system import FileSystem

FILE = "deleted"
_MAGIC = b"MGDL\0\0\0\1"
_CHUNK = struct.Struct(">qi")
"""The number of the chunk, and the bytes of its compressed bits, which follow."""
_CHECKSUM = struct.Struct(">I")
"""CRC32 of all before it."""
_IDS = 1 << 16
_FEW = 500
"""So many ids of a chunk are a list, 1 KiB of it; more of them are bits."""


class Tombstones:
    """Changed by whoever flushes, one thread at a time; any thread may look."""

    def __init__(self, path: Path, file_system: FileSystem) -> None:
        """`path` is the file; none is an empty set. BookieStorageError when it is damaged."""
        self._path = path
        self._file_system = file_system
        self._few: dict[int, array[int]] = {}
        """The chunks with at most `_FEW` ids, each sorted: the ids less the chunk's first one."""
        self._bits: dict[int, int] = {}
        """The others."""
        self._packed: dict[int, bytes] = {}
        """The compressed bits of chunks that have not changed since."""
        if path.exists():
            self._load(path.read_bytes())

    def __contains__(self, ledger_id: int) -> bool:
        chunk, place = divmod(ledger_id, _IDS)
        few = self._few.get(chunk)
        if few is None:
            return bool(self._bits.get(chunk, 0) >> place & 1)
        at = bisect_left(few, place)
        return at < len(few) and few[at] == place

    def __len__(self) -> int:
        in_bits = sum(bits.bit_count() for bits in self._bits.values())
        return in_bits + sum(map(len, self._few.values()))

    @property
    def highest(self) -> int:
        """-1 for none."""
        chunk = max((*self._few, *self._bits), default=None)
        if chunk is None:
            return -1
        few = self._few.get(chunk)
        return chunk * _IDS + (self._bits[chunk].bit_length() - 1 if few is None else few[-1])

    def add(self, ledger_ids: Iterable[int]) -> None:
        """Durable on return. OSError, and then it is to be called again."""
        for ledger_id in ledger_ids:
            chunk, place = divmod(ledger_id, _IDS)
            self._packed.pop(chunk, None)
            if chunk in self._bits:
                self._bits[chunk] |= 1 << place
            else:
                self._add_to_few(chunk, place)
        self._file_system.replace(self._path, self._content())

    def _add_to_few(self, chunk: int, place: int) -> None:
        few = self._few.setdefault(chunk, array("H"))
        at = bisect_left(few, place)
        if at == len(few) or few[at] != place:
            few.insert(at, place)
        if len(few) > _FEW:
            self._bits[chunk] = _bits_of(self._few.pop(chunk))

    def _content(self) -> bytes:
        parts = [_MAGIC]
        for chunk in sorted((*self._few, *self._bits)):
            packed = self._packed.get(chunk)
            if packed is None:
                few = self._few.get(chunk)
                bits = self._bits[chunk] if few is None else _bits_of(few)
                packed = self._packed[chunk] = zlib.compress(bits.to_bytes(_IDS // 8, "little"), 1)
            parts += [_CHUNK.pack(chunk, len(packed)), packed]
        content = b"".join(parts)
        return content + _CHECKSUM.pack(zlib.crc32(content))

    def _load(self, content: bytes) -> None:
        body, checksum = content[: -_CHECKSUM.size], content[-_CHECKSUM.size :]
        if not body.startswith(_MAGIC) or checksum != _CHECKSUM.pack(zlib.crc32(body)):
            raise BookieStorageError(
                f"{self._path} is damaged, and with it the knowledge of which ledgers were deleted;"
                " `index rebuild` makes it anew from the journals, which have the latest of them"
            )
        offset = len(_MAGIC)
        while offset < len(body):
            chunk, size = _CHUNK.unpack_from(body, offset)
            offset += _CHUNK.size
            self._packed[chunk] = body[offset : offset + size]
            bits = int.from_bytes(zlib.decompress(self._packed[chunk]), "little")
            if bits.bit_count() > _FEW:
                self._bits[chunk] = bits
            else:
                self._few[chunk] = _places_in(bits)
            offset += size


def _bits_of(places: Iterable[int]) -> int:
    bits = bytearray(_IDS // 8)
    for place in places:
        bits[place >> 3] |= 1 << (place & 7)
    return int.from_bytes(bits, "little")


def _places_in(bits: int) -> array[int]:
    places = array("H")
    while bits:
        lowest = bits & -bits
        places.append(lowest.bit_length() - 1)
        bits ^= lowest
    return places
