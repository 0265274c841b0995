"""Which ledgers a ledger directory had and deleted: file `deleted` beside its indexes. Ours; BookKeeper passes it over.

Ids of ledgers only grow and never come back, so whatever asks for a deleted one again is late: a writer that was fenced
off before, and would find a new ledger without a fence. So the bookie knows its deleted ledgers for ever. One bit for
each id, in chunks of 65,536 ids, compressed in the file: 8 KiB of memory for a chunk at most, some ten bytes in the file
where neighbours go together.
"""

from __future__ import annotations

import struct
import zlib
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


class Tombstones:
    """Changed by whoever flushes, one thread at a time; any thread may look."""

    def __init__(self, path: Path, file_system: FileSystem) -> None:
        """`path` is the file; none is an empty set. BookieStorageError when it is damaged."""
        self._path = path
        self._file_system = file_system
        self._bits: dict[int, int] = {}
        self._packed: dict[int, bytes] = {}
        """The compressed bits of chunks that have not changed since."""
        if path.exists():
            self._load(path.read_bytes())

    def __contains__(self, ledger_id: int) -> bool:
        chunk, bit = divmod(ledger_id, _IDS)
        return bool(self._bits.get(chunk, 0) >> bit & 1)

    def __len__(self) -> int:
        return sum(bits.bit_count() for bits in self._bits.values())

    def add(self, ledger_ids: Iterable[int]) -> None:
        """Durable on return. OSError, and then it is to be called again."""
        for ledger_id in ledger_ids:
            chunk, bit = divmod(ledger_id, _IDS)
            self._bits[chunk] = self._bits.get(chunk, 0) | 1 << bit
            self._packed.pop(chunk, None)
        self._file_system.replace(self._path, self._content())

    def _content(self) -> bytes:
        parts = [_MAGIC]
        for chunk, bits in sorted(self._bits.items()):
            packed = self._packed.get(chunk)
            if packed is None:
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
            self._bits[chunk] = int.from_bytes(zlib.decompress(self._packed[chunk]), "little")
            offset += size
