"""Pieces in memory: requests, reading ahead, checksums, the bound."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from broker.offload import pieces as module
from broker.offload.pieces import Pieces
from foundation.objects.object_storage import ObjectStorageError
from protocol.checksum import crc32c
from protocol.ledger_metadata import LedgerMetadata
from protocol.offload.blocks import OffloadFormatError, OffloadIndex, Piece

OFFLOAD = UUID(int=1)
BYTES = 10


class Storage:
    def __init__(self, count: int, gap_before: int = -1) -> None:
        self.requests: list[tuple[int, int]] = []
        self.fails = False
        offsets = [number * BYTES + (100 if 0 <= gap_before <= number else 0) for number in range(count)]
        self.data = bytes(range(200)) * 2
        found = [
            Piece(number, offset, BYTES, crc32c(self.data[offset : offset + BYTES]))
            for number, offset in enumerate(offsets)
        ]
        self.index = OffloadIndex(LedgerMetadata(()), len(self.data), (), tuple(found))

    async def fetch(self, start: int, length: int) -> bytes:
        self.requests.append((start, length))
        await asyncio.sleep(0)
        if self.fails:
            raise ObjectStorageError("away")
        return self.data[start : start + length]


async def test_missing_pieces_in_a_row_are_one_request() -> None:
    storage, pieces = Storage(6), Pieces()
    assert await pieces.read(OFFLOAD, storage.index, 1, 1, 0, storage.fetch) == [storage.data[10:20]]
    found = await pieces.read(OFFLOAD, storage.index, 0, 4, 0, storage.fetch)
    assert b"".join(found) == storage.data[:50]
    assert storage.requests == [(10, 10), (0, 10), (20, 30)]


async def test_pieces_of_two_blocks_are_two_requests() -> None:
    storage, pieces = Storage(4, gap_before=2), Pieces()
    await pieces.read(OFFLOAD, storage.index, 0, 3, 0, storage.fetch)
    assert storage.requests == [(0, 20), (120, 20)]


async def test_the_next_pieces_are_read_ahead_once() -> None:
    storage, pieces = Storage(4), Pieces()
    await pieces.read(OFFLOAD, storage.index, 0, 0, 2, storage.fetch)
    await pieces.read(OFFLOAD, storage.index, 1, 1, 2, storage.fetch)
    await pieces.read(OFFLOAD, storage.index, 2, 3, 2, storage.fetch)
    assert storage.requests == [(0, 10), (10, 20), (30, 10)]


async def test_two_readers_of_a_piece_share_its_request() -> None:
    storage, pieces = Storage(1), Pieces()
    reads = [pieces.read(OFFLOAD, storage.index, 0, 0, 0, storage.fetch) for _ in range(3)]
    assert await asyncio.gather(*reads) == [[storage.data[:10]]] * 3
    assert len(storage.requests) == 1


async def test_a_failed_piece_is_asked_for_again() -> None:
    storage, pieces = Storage(2), Pieces()
    storage.fails = True
    with pytest.raises(ObjectStorageError):
        await pieces.read(OFFLOAD, storage.index, 0, 0, 1, storage.fetch)
    await asyncio.sleep(0.01)
    storage.fails = False
    assert await pieces.read(OFFLOAD, storage.index, 0, 1, 0, storage.fetch)


async def test_other_bytes_than_were_written_are_refused() -> None:
    storage, pieces = Storage(1), Pieces()
    storage.data = b"x" + storage.data[1:]
    with pytest.raises(OffloadFormatError, match="CRC32C"):
        await pieces.read(OFFLOAD, storage.index, 0, 0, 0, storage.fetch)
    storage.data = storage.data[:5]
    with pytest.raises(OffloadFormatError, match="5 bytes at 0"):
        await pieces.read(OFFLOAD, storage.index, 0, 0, 0, storage.fetch)


async def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_BYTES", 3 * BYTES)
    storage, pieces = Storage(10), Pieces()
    for place in range(10):
        await pieces.read(OFFLOAD, storage.index, place, place, 0, storage.fetch)
    assert len(pieces._kept) == 3
    storage.requests.clear()
    await pieces.read(OFFLOAD, storage.index, 9, 9, 0, storage.fetch)
    assert storage.requests == []
    pieces.forget(OFFLOAD)
    assert (len(pieces._kept), pieces._total_bytes) == (0, 0)
