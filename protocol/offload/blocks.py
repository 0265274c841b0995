"""The objects of an offloaded ledger, in the layout that Apache Pulsar's offloaders for object storage write and read.

    <uuid>-ledger-<id>        the data: blocks in a row
    <uuid>-ledger-<id>-index  the index: the ledger's metadata, and the place of each block

All numbers are big-endian. A block:

    magic 4 | length of the header 8 | length of the block 8 | first entry 8 | zeros up to byte 128
    entries: size 4 | entry id 8 | the bytes that the bookie stored
    padding up to the block's length: FE DC DE AD, repeated

The index:

    magic 4 | length 4 | length of the data 8 | length of a block's header 8 | blocks 4 | length of the metadata 4
    LedgerMetadataFormat
    for each block: first entry 8 | part 4 | offset 8

Apache's readers stop there. Ours adds a table of pieces, about a MiB of whole entries each, because the layout has no
checksum and finds no entry inside a block:

    magic 4 | pieces 4
    for each piece: first entry 8 | offset 8 | length 4 | CRC32C of these bytes 4
    CRC32C of the index up to here 4

Pure: bytes in, values out.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from protocol import ledger_metadata
from protocol.bookkeeper_metadata_pb2 import LedgerMetadataFormat
from protocol.checksum import crc32c
from protocol.ledger_metadata import LedgerMetadata, LedgerMetadataError
from protocol.varint import read_varint, varint

BLOCK_MAGIC: Final = 0xFBDBABCB
INDEX_MAGIC: Final = 0xDE47DE47
PIECES_MAGIC: Final = 0x4D475043
"""`MGPC`: begins the table of pieces."""
HEADER_BYTES: Final = 128
"""Of a block."""
ENTRY_HEADER_BYTES: Final = 12
PADDING: Final = b"\xfe\xdc\xde\xad"
ATTRIBUTES: Final = {"s3managedledgeroffloaderformatversion": "1"}
"""Attributes of both objects; Apache's readers refuse an object without them."""
_BLOCK_HEADER = struct.Struct(">IQQQ")
_INDEX_HEADER = struct.Struct(">IIQQII")
_BLOCK = struct.Struct(">QIQ")
_PIECES_HEADER = struct.Struct(">II")
_PIECE = struct.Struct(">QQII")
_ENTRY_HEADER = struct.Struct(">iq")
_CRC = struct.Struct(">I")
_INDEX_END: Final = "-index"
_BETWEEN: Final = "-ledger-"


class OffloadFormatError(ValueError):
    """The bytes are no object of an offloaded ledger, or are damaged. The text says why."""


def data_key(uuid: UUID, ledger_id: int) -> str:
    """Returns the name of the object with the entries."""
    return f"{uuid}{_BETWEEN}{ledger_id}"


def index_key(uuid: UUID, ledger_id: int) -> str:
    """Returns the name of the object with the index."""
    return data_key(uuid, ledger_id) + _INDEX_END


def key_parts(key: str) -> tuple[UUID, int] | None:
    """Returns offload and ledger of an object's name; None for another name."""
    uuid, between, ledger_id = key.removesuffix(_INDEX_END).partition(_BETWEEN)
    try:
        return (UUID(uuid), int(ledger_id)) if between else None
    except ValueError:
        return None


class IndexedBlock(NamedTuple):
    """A block of the data."""

    first_entry: int
    """Its first entry."""
    part: int
    """Its number, from 1."""
    offset: int
    """Of its header in the data."""


class Piece(NamedTuple):
    """Consecutive entries inside one block, which are read at once."""

    first_entry: int
    """Its first entry."""
    offset: int
    """Of the first entry's header in the data."""
    length: int
    """Of its bytes."""
    crc: int | None
    """CRC32C of its bytes; None where the writer noted none."""


@dataclass(frozen=True, slots=True)
class OffloadIndex:
    """The index of an offloaded ledger."""

    metadata: LedgerMetadata
    """Of the closed ledger, without its password."""
    data_length: int
    """Bytes of the data object."""
    blocks: tuple[IndexedBlock, ...]
    """In the order of their entries."""
    pieces: tuple[Piece, ...]
    """In the order of their entries. Of an object that Apache wrote: each block is one piece."""

    def piece_of(self, entry_id: int) -> int:
        """Returns the place in `pieces` of the piece that has the entry."""
        return bisect_right(self.pieces, entry_id, key=lambda piece: piece.first_entry) - 1


def encode_index(index: OffloadIndex) -> bytes:
    """Returns the bytes of the index object."""
    value = ledger_metadata.encode(index.metadata)
    _, start = read_varint(value, len(ledger_metadata.VERSION_LINE))
    message = LedgerMetadataFormat.FromString(value[start:])
    # A reader of the storage could write to the ledger by its password. Apache leaves the two fields out as well.
    message.ClearField("password")
    message.ClearField("cToken")
    metadata = message.SerializeToString()
    size = _INDEX_HEADER.size + len(metadata) + _BLOCK.size * len(index.blocks)
    parts = [
        _INDEX_HEADER.pack(
            INDEX_MAGIC, size, index.data_length, HEADER_BYTES, len(index.blocks), len(metadata)
        ),
        metadata,
        *(_BLOCK.pack(*block) for block in index.blocks),
        _PIECES_HEADER.pack(PIECES_MAGIC, len(index.pieces)),
        *(_PIECE.pack(*piece) for piece in index.pieces),
    ]
    whole = b"".join(parts)
    return whole + _CRC.pack(crc32c(whole))


def decode_index(value: bytes) -> OffloadIndex:
    """Returns the index in an object's bytes. Raises OffloadFormatError."""
    try:
        magic, _, data_length, header_length, blocks, size = _INDEX_HEADER.unpack_from(value)
        if magic != INDEX_MAGIC:
            raise OffloadFormatError(f"it begins with {magic:#x} and not with {INDEX_MAGIC:#x}")
        at = _INDEX_HEADER.size
        metadata = ledger_metadata.decode(ledger_metadata.VERSION_LINE + varint(size) + value[at : at + size])
        at += size
        found = tuple(
            IndexedBlock(*_BLOCK.unpack_from(value, at + _BLOCK.size * place)) for place in range(blocks)
        )
        at += _BLOCK.size * blocks
        pieces = _pieces(value, at) if at < len(value) else _whole_blocks(found, header_length, data_length)
    except (struct.error, LedgerMetadataError) as error:
        raise OffloadFormatError(f"the index cannot be read: {error}") from error
    if not pieces or pieces[0].first_entry != 0:
        raise OffloadFormatError("the index names no block that begins with entry 0")
    return OffloadIndex(metadata, data_length, found, pieces)


def _pieces(value: bytes, at: int) -> tuple[Piece, ...]:
    (crc,) = _CRC.unpack_from(value, len(value) - _CRC.size)
    if crc32c(value[: -_CRC.size]) != crc:
        raise OffloadFormatError("the CRC32C of the index does not match its bytes")
    magic, count = _PIECES_HEADER.unpack_from(value, at)
    if magic != PIECES_MAGIC:
        raise OffloadFormatError(f"its table of pieces begins with {magic:#x}")
    at += _PIECES_HEADER.size
    return tuple(Piece(*_PIECE.unpack_from(value, at + _PIECE.size * place)) for place in range(count))


def _whole_blocks(
    blocks: tuple[IndexedBlock, ...], header_length: int, data_length: int
) -> tuple[Piece, ...]:
    ends = [block.offset for block in blocks[1:]] + [data_length]
    return tuple(
        Piece(block.first_entry, block.offset + header_length, end - block.offset - header_length, None)
        for block, end in zip(blocks, ends, strict=True)
    )


def entries_of(data: bytes, first_entry: int) -> Iterator[tuple[int, memoryview]]:
    """Yields entry id and stored bytes of each entry in a piece. Raises OffloadFormatError.

    `first_entry`: the id that the first one must have; each has the next one.
    """
    view, at, expected = memoryview(data), 0, first_entry
    while at + ENTRY_HEADER_BYTES <= len(view):
        size, entry_id = _ENTRY_HEADER.unpack_from(view, at)
        # Padding, as a number with a sign.
        if size < 0:
            return
        at += ENTRY_HEADER_BYTES
        if entry_id != expected or at + size > len(view):
            raise OffloadFormatError(f"entry {expected} was expected, {entry_id} of {size} bytes was found")
        yield entry_id, view[at : at + size]
        at += size
        expected += 1


class BlockWriter:
    """Makes the bytes of the data object of entries in their order, and the index of them.

    Returned bytes are to be written in their order. The data object has one piece after the other, each inside one block.
    """

    def __init__(self, metadata: LedgerMetadata, block_bytes: int, piece_bytes: int) -> None:
        """`metadata`: of the closed ledger. `block_bytes`: the most that a block has, unless one entry has more."""
        self._metadata = metadata
        self._block_bytes = block_bytes
        self._piece_bytes = piece_bytes
        self._left_bytes = metadata.length
        """Stored bytes of the entries that are not added yet."""
        self._next_entry = 0
        self._written = 0
        """Bytes that were returned."""
        self._block_end = 0
        """The end of the current block in the data."""
        self._blocks: list[IndexedBlock] = []
        self._pieces: list[Piece] = []
        self._piece: list[bytes | memoryview] = []
        self._piece_size = 0
        self._piece_first = 0

    def add(self, stored: list[bytes | memoryview]) -> bytes:
        """Adds the next entry, in parts; returns the bytes of a piece that is full, else none."""
        size = sum(map(len, stored))
        whole, out = size + ENTRY_HEADER_BYTES, b""
        if self._written + self._piece_size + whole > self._block_end:
            out = self._end_block() + self._begin_block(whole)
        elif self._piece and self._piece_size + whole > self._piece_bytes:
            out = self._end_piece()
        if not self._piece:
            self._piece_first = self._next_entry
        self._piece += [_ENTRY_HEADER.pack(size, self._next_entry), *stored]
        self._piece_size += whole
        self._next_entry += 1
        self._left_bytes -= size
        return out

    def end(self) -> bytes:
        """Returns the last bytes. Raises OffloadFormatError when the entries are not those of the metadata."""
        if self._next_entry != self._metadata.last_entry_id + 1 or self._left_bytes:
            raise OffloadFormatError(
                f"{self._next_entry} entries were read, with {self._left_bytes} bytes less than the metadata says"
            )
        return self._end_block()

    @property
    def last_entry(self) -> int:
        """The last entry of the ledger."""
        return self._metadata.last_entry_id

    @property
    def index(self) -> OffloadIndex:
        """The index of the data, after `end`."""
        return OffloadIndex(self._metadata, self._written, tuple(self._blocks), tuple(self._pieces))

    def _begin_block(self, entry_bytes: int) -> bytes:
        entries = self._metadata.last_entry_id + 1 - self._next_entry
        rest = HEADER_BYTES + self._left_bytes + entries * ENTRY_HEADER_BYTES
        size = max(min(self._block_bytes, rest), HEADER_BYTES + entry_bytes)
        self._blocks.append(IndexedBlock(self._next_entry, len(self._blocks) + 1, self._written))
        self._block_end = self._written + size
        self._written += HEADER_BYTES
        header = _BLOCK_HEADER.pack(BLOCK_MAGIC, HEADER_BYTES, size, self._next_entry)
        return header.ljust(HEADER_BYTES, b"\0")

    def _end_piece(self) -> bytes:
        data = b"".join(self._piece)
        self._pieces.append(Piece(self._piece_first, self._written, len(data), crc32c(data)))
        self._written += len(data)
        self._piece, self._piece_size = [], 0
        return data

    def _end_block(self) -> bytes:
        data = self._end_piece() if self._piece else b""
        padding = self._block_end - self._written
        self._written = self._block_end
        return data + (PADDING * (padding // len(PADDING) + 1))[:padding]
