"""Which ledgers a ledger directory had and deleted: file `deleted` beside its indexes. Ours; BookKeeper passes it over.

Ids of ledgers only grow and never come back, so whatever asks for a deleted one again is late: a writer that was fenced
off before, and would find a new ledger without a fence. So the bookie knows its deleted ledgers for ever. In memory one
bit for each id, in chunks of 65,536 ids: 8 KiB for a chunk at most. Ids that somebody draws at random lie in a chunk
each, so a chunk with few of them is their sorted list. The file only grows: a checkpoint appends the ids that are new.
"""

from __future__ import annotations

import contextlib
import struct
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from pathlib import Path

from bookie_stub.base.errors import BookieStorageError
from bookie_stub.base.file_system import FileSystem
from protocol.varint import read_varint, varint

FILE = "deleted"
_MAGIC = b"MGDL\0\0\0\2"
_BLOCK = struct.Struct(">iI")
"""Bytes and CRC32 of the body, which follows."""
_WHOLE_MAGIC = b"MGDL\0\0\0\1"
"""The format before: chunks of compressed bits, and one checksum behind them all. The next add replaces it."""
_WHOLE_CHUNK = struct.Struct(">qi")
_WHOLE_CHECKSUM = struct.Struct(">I")
_BLOCKS_MAX = 1000
"""More of them make one, by the first add after a start: small ones take some thirty bytes for each checkpoint."""
_IDS = 1 << 16
_FEW = 500
"""So many ids of a chunk are a list, 1 KiB of it; more of them are bits."""
_ALL = (1 << _IDS) - 1

Run = tuple[int, int]
"""The first and the last id."""


class Tombstones:
    """Changed by whoever flushes, one thread at a time; any thread may look."""

    def __init__(self, path: Path, file_system: FileSystem, count_min: int = 0) -> None:
        """`path` is the file; none is an empty set. BookieStorageError when it is damaged, or has fewer ids than
        `count_min`: what is behind those was torn by a crash, and is dropped."""
        self._path = path
        self._file_system = file_system
        self._few: dict[int, array[int]] = {}
        """The chunks with at most `_FEW` ids, each sorted: the ids less the chunk's first one."""
        self._bits: dict[int, int] = {}
        """The others."""
        self._count = 0
        self._end: int | None = None
        """Where the next block goes; None: the file is to be written as a whole."""
        content = b""
        with contextlib.suppress(FileNotFoundError):
            content = path.read_bytes()
        if content.startswith(_WHOLE_MAGIC):
            self._load_whole(content)
        elif content.startswith(_MAGIC):
            self._load_blocks(content)
        elif content:
            raise self._damaged(0)
        if len(self) < count_min:
            raise self._damaged(self._end or 0)

    def __contains__(self, ledger_id: int) -> bool:
        chunk, place = divmod(ledger_id, _IDS)
        few = self._few.get(chunk)
        if few is None:
            return bool(self._bits.get(chunk, 0) >> place & 1)
        at = bisect_left(few, place)
        return at < len(few) and few[at] == place

    def __len__(self) -> int:
        return self._count

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
        runs = list(_runs(sorted(ledger_ids)))
        for run in runs:
            self._add_run(*run)
        if self._end is None:
            content = _MAGIC + _block(_runs(self._ascending()))
            self._file_system.replace(self._path, content)
            self._end = len(content)
        else:
            self._append(_block(runs), self._end)

    def _append(self, block: bytes, end: int) -> None:
        descriptor = self._file_system.open_to_write(self._path)
        try:
            self._file_system.truncate(descriptor, end)  # of a block that a crash has torn
            self._file_system.write(descriptor, (block,), end)
            self._file_system.sync_data(descriptor)
        finally:
            self._file_system.close(descriptor)
        self._end = end + len(block)

    # In memory.

    def _add_run(self, first: int, last: int) -> None:
        while first <= last:
            chunk, place = divmod(first, _IDS)
            count = min(last, chunk * _IDS + _IDS - 1) - first + 1
            if chunk in self._bits or count > _FEW:
                bits = self._bits.get(chunk)
                if bits is None:
                    bits = _bits_of(self._few.pop(chunk, ()))
                self._bits[chunk] = bits | _ALL >> (_IDS - count) << place
                self._count += self._bits[chunk].bit_count() - bits.bit_count()
            else:
                for each in range(place, place + count):
                    self._add_place(chunk, each)
            first += count

    def _add_place(self, chunk: int, place: int) -> None:
        """To a chunk that is a list, or has become bits since."""
        if chunk in self._bits:
            bits = self._bits[chunk]
            self._count += 1 - (bits >> place & 1)
            self._bits[chunk] = bits | 1 << place
            return
        few = self._few.setdefault(chunk, array("H"))
        at = bisect_left(few, place)
        if at == len(few) or few[at] != place:
            few.insert(at, place)
            self._count += 1
        if len(few) > _FEW:
            self._bits[chunk] = _bits_of(self._few.pop(chunk))

    def _ascending(self) -> Iterator[int]:
        for chunk in sorted((*self._few, *self._bits)):
            few = self._few.get(chunk)
            for place in _places_in(self._bits[chunk]) if few is None else few:
                yield chunk * _IDS + place

    # From the file.

    def _load_blocks(self, content: bytes) -> None:
        """Up to a last block that is not whole."""
        offset = len(_MAGIC)
        blocks = 0
        while offset + _BLOCK.size <= len(content):
            size, checksum = _BLOCK.unpack_from(content, offset)
            body = content[offset + _BLOCK.size : offset + _BLOCK.size + max(size, 0)]
            if not body or len(body) < size or zlib.crc32(body) != checksum:
                if size <= 0 or offset + _BLOCK.size + size < len(content):
                    raise self._damaged(offset)
                break
            for run in _runs_in(body):
                self._add_run(*run)
            offset += _BLOCK.size + size
            blocks += 1
        self._end = None if blocks > _BLOCKS_MAX else offset

    def _load_whole(self, content: bytes) -> None:
        body, checksum = content[: -_WHOLE_CHECKSUM.size], content[-_WHOLE_CHECKSUM.size :]
        if checksum != _WHOLE_CHECKSUM.pack(zlib.crc32(body)):
            raise self._damaged(0)
        offset = len(_WHOLE_MAGIC)
        while offset < len(body):
            chunk, size = _WHOLE_CHUNK.unpack_from(body, offset)
            offset += _WHOLE_CHUNK.size
            bits = int.from_bytes(zlib.decompress(body[offset : offset + size]), "little")
            if bits.bit_count() > _FEW:
                self._bits[chunk] = bits
            else:
                self._few[chunk] = _places_in(bits)
            self._count += bits.bit_count()
            offset += size

    def _damaged(self, offset: int) -> BookieStorageError:
        return BookieStorageError(
            f"{self._path} at {offset}: it is damaged, and with it the knowledge of which ledgers were deleted;"
            " `index rebuild` makes it anew from the journals, which have the latest of them"
        )


def _block(runs: Iterable[Run]) -> bytes:
    """Of each run the ids that lie between it and the one before, and how many more than one it has."""
    parts = []
    behind = 0
    for first, last in runs:
        parts += [varint(first - behind), varint(last - first)]
        behind = last + 1
    body = zlib.compress(b"".join(parts), 1)
    return _BLOCK.pack(len(body), zlib.crc32(body)) + body


def _runs_in(body: bytes) -> Iterator[Run]:
    data = zlib.decompress(body)
    offset = behind = 0
    while offset < len(data):
        gap, offset = read_varint(data, offset)
        more, offset = read_varint(data, offset)
        yield behind + gap, behind + gap + more
        behind += gap + more + 1


def _runs(ascending: Iterable[int]) -> Iterator[Run]:
    first = last = None
    for each in ascending:
        if first is None or last is None:
            first = last = each
        elif each > last + 1:
            yield first, last
            first = last = each
        else:
            last = each
    if first is not None and last is not None:
        yield first, last


def _bits_of(places: Iterable[int]) -> int:
    bits = bytearray(_IDS // 8)
    for place in places:
        bits[place >> 3] |= 1 << (place & 7)
    return int.from_bytes(bits, "little")


def _places_in(bits: int) -> array[int]:
    """Bytes that are zero are passed over at once, so that this takes as long as there are ids."""
    places = array("H")
    for index, byte in enumerate(bits.to_bytes(_IDS // 8, "little")):
        if byte:
            places.extend(index * 8 + bit for bit in range(8) if byte >> bit & 1)
    return places
