"""Tombstones: the ids of ledgers that a ledger directory had and deleted.

File `deleted` beside the indexes; ours.

Ledger ids only grow and are never given out twice. So a request for a deleted ledger comes late, from a writer that was
fenced off, say. Taken for a new ledger it would have no fence, and entries after the ledger's end would be confirmed.
Hence the law: a bookie never forgets a deleted ledger, and the id is in this file before the ledger leaves the indexes.
(BookKeeper remembers deleted ledgers in memory only, for seven days.)

```
"MGDL"  int32 2      then blocks: int32 n   uint32 CRC32 of the n bytes   n bytes
a block's bytes      zlib: for each range of ids, ascending, two varints: ids between it and the range before (0 before
                     the first), and its number of ids less one
```

A checkpoint appends one block with its new ids, so it writes what is new and not what there is. A last block that is not
whole was torn by a crash, unless the inventory says that there were more ids.
"""

from __future__ import annotations

import contextlib
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from bookie_stub.base.errors import BookieStorageError
from bookie_stub.base.file_system import FileSystem
from bookie_stub.disk.id_set import IdRange, IdSet, ranges_of
from protocol.varint import read_varint, varint

FILE = "deleted"
"""The file's name in an index directory."""
_MAGIC = b"MGDL\0\0\0\2"
_BLOCK = struct.Struct(">iI")
"""Bytes and CRC32 of the body, which follows."""
_WHOLE_MAGIC = b"MGDL\0\0\0\1"
"""The format before: compressed chunks of bits, and one checksum at the end. The next deletion replaces it."""
_WHOLE_CHUNK = struct.Struct(">qi")
_WHOLE_CHECKSUM = struct.Struct(">I")
_BLOCKS_MAX = 1000
"""A file with more blocks becomes one block with the first deletion after a start: a small block takes thirty bytes."""


class Tombstones:
    """The ids of one ledger directory. One thread adds, with the storage's lock held; any thread may look."""

    def __init__(self, path: Path, file_system: FileSystem, count_min: int = 0) -> None:
        """Reads the file at `path`; without a file the set is empty.

        BookieStorageError when it is damaged, or has fewer ids than `count_min`, which the inventory knows. A torn last
        block after so many ids is dropped. OSError.
        """
        self._path = path
        self._file_system = file_system
        self._ids = IdSet()
        self._end: int | None = None
        """The place of the next block; None when the file must be written as a whole."""
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
        return ledger_id in self._ids

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def highest(self) -> int:
        """The highest id, -1 for none."""
        return self._ids.highest

    def add(self, ledger_ids: Iterable[int]) -> None:
        """Adds ids; durable on return. OSError, and then it must be called again."""
        # All ids again after an OSError: the set has them already, but the file may lack them.
        ranges = list(ranges_of(sorted(ledger_ids)))
        for each in ranges:
            self._ids.add_range(*each)
        if self._end is None:
            # The new ids are in the set already, so the one block has all of them.
            content = _MAGIC + _block(ranges_of(self._ids))
            self._file_system.replace(self._path, content)
            self._end = len(content)
        else:
            self._append(_block(ranges), self._end)

    def _append(self, block: bytes, end: int) -> None:
        descriptor = self._file_system.open_to_write(self._path)
        try:
            # A block that a crash has torn, or an earlier attempt, may be longer than this one.
            self._file_system.truncate(descriptor, end)
            self._file_system.write(descriptor, (block,), end)
            self._file_system.sync_data(descriptor)
        finally:
            self._file_system.close(descriptor)
        self._end = end + len(block)

    def _load_blocks(self, content: bytes) -> None:
        """Adds the ids of all blocks up to a torn last one."""
        offset = len(_MAGIC)
        blocks = 0
        while offset + _BLOCK.size <= len(content):
            size, checksum = _BLOCK.unpack_from(content, offset)
            body = content[offset + _BLOCK.size : offset + _BLOCK.size + max(size, 0)]
            if not body or len(body) < size or zlib.crc32(body) != checksum:
                # Bytes after a block prove that its append had ended, so it is damaged and not torn.
                if size <= 0 or offset + _BLOCK.size + size < len(content):
                    raise self._damaged(offset)
                break
            for each in _ranges_in(body):
                self._ids.add_range(*each)
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
            self._ids.add_chunk(chunk, bits)
            offset += size

    def _damaged(self, offset: int) -> BookieStorageError:
        return BookieStorageError(
            f"{self._path} at {offset}: it is damaged, and with it the list of the ledgers that were deleted;"
            " run `magnetar bookie index rebuild`, which makes it anew from the journals: they have the latest of them"
        )


def _block(ranges: Iterable[IdRange]) -> bytes:
    parts = []
    after = 0
    for first, last in ranges:
        parts += [varint(first - after), varint(last - first)]
        after = last + 1
    body = zlib.compress(b"".join(parts), 1)
    return _BLOCK.pack(len(body), zlib.crc32(body)) + body


def _ranges_in(body: bytes) -> Iterator[IdRange]:
    data = zlib.decompress(body)
    offset = after = 0
    while offset < len(data):
        gap, offset = read_varint(data, offset)
        more, offset = read_varint(data, offset)
        yield after + gap, after + gap + more
        after += gap + more + 1
