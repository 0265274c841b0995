"""Pieces: what was read of copies lately, in a bounded memory.

A reader asks for some entries at a time, of which a piece has many. So pieces stay until newer ones need their place, and
the next one is read ahead. One range request brings all missing pieces of a read.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final
from uuid import UUID

from foundation.units import MIB
from protocol.checksum import crc32c
from protocol.offload.blocks import OffloadFormatError, OffloadIndex

KEPT_BYTES: Final = 64 * MIB
"""Of pieces of all ledgers, those that are being read included."""
_Key = tuple[UUID, int]
FetchRange = Callable[[int, int], Awaitable[bytes]]
"""Returns bytes of the data object: from an offset on, so many."""


class Pieces:
    """Pieces by offload and place in its index; the one that was used longest ago leaves first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[_Key, asyncio.Task[bytes]] = OrderedDict()
        self._size_bytes: dict[_Key, int] = {}
        self._total_bytes = 0

    async def read(
        self, uuid: UUID, index: OffloadIndex, first: int, last: int, ahead: int, fetch: FetchRange
    ) -> list[bytes]:
        """Returns the pieces at these places of the index, and begins to read `ahead` more.

        Raises OffloadFormatError for one whose bytes are not as written, and whatever `fetch` raises.
        """
        self._begin(uuid, index, first, last, fetch)
        tasks = [self._kept[uuid, place] for place in range(first, last + 1)]
        for place in range(first, last + 1):
            self._kept.move_to_end((uuid, place))
        if last + 1 < len(index.pieces) and ahead > 0:
            self._begin(uuid, index, last + 1, min(last + ahead, len(index.pieces) - 1), fetch)
        self._shrink()
        # Shielded: a reader that gives up must not take the bytes from the others.
        return [await asyncio.shield(task) for task in tasks]

    def _begin(self, uuid: UUID, index: OffloadIndex, first: int, last: int, fetch: FetchRange) -> None:
        """Begins one range request for each run of pieces that are missing."""
        run: list[int] = []
        for place in [*range(first, last + 1), None]:
            neighbour = not run or (
                place is not None
                and index.pieces[place].offset == index.pieces[run[-1]].offset + index.pieces[run[-1]].length
            )
            if place is not None and (uuid, place) not in self._kept and neighbour:
                run.append(place)
                continue
            if run:
                self._begin_run(uuid, index, run, fetch)
            run = [place] if place is not None and (uuid, place) not in self._kept else []

    def _begin_run(self, uuid: UUID, index: OffloadIndex, run: list[int], fetch: FetchRange) -> None:
        start, end = index.pieces[run[0]].offset, index.pieces[run[-1]].offset + index.pieces[run[-1]].length
        loop = asyncio.get_running_loop()
        data = loop.create_task(_fetched(fetch, start, end - start))
        for place in run:
            task = loop.create_task(_part(data, index, place, start))
            task.add_done_callback(lambda done, key=(uuid, place): self._ended(key, done))  # type: ignore[misc]
            self._kept[uuid, place] = task
            self._size_bytes[uuid, place] = index.pieces[place].length
            self._total_bytes += index.pieces[place].length

    def _ended(self, key: _Key, task: asyncio.Task[bytes]) -> None:
        # A failed piece is asked for again by the next reader. `exception` also tells the loop that the error was seen:
        # nobody may wait for a piece that was read ahead.
        if (task.cancelled() or task.exception() is not None) and self._kept.get(key) is task:
            self._forget(key)

    def _shrink(self) -> None:
        while self._total_bytes > KEPT_BYTES and len(self._kept) > 1:
            self._forget(next(iter(self._kept)))

    def _forget(self, key: _Key) -> None:
        del self._kept[key]
        self._total_bytes -= self._size_bytes.pop(key)

    def forget(self, uuid: UUID) -> None:
        """Forgets the pieces of a copy that is deleted."""
        for key in [key for key in self._kept if key[0] == uuid]:
            self._forget(key)


async def _fetched(fetch: FetchRange, start: int, length: int) -> bytes:
    data = await fetch(start, length)
    if len(data) != length:
        raise OffloadFormatError(f"{len(data)} bytes at {start} where the index names {length}")
    return data


async def _part(whole: asyncio.Task[bytes], index: OffloadIndex, place: int, start: int) -> bytes:
    piece = index.pieces[place]
    at = piece.offset - start
    data = (await asyncio.shield(whole))[at : at + piece.length]
    if piece.crc is not None and crc32c(data) != piece.crc:
        raise OffloadFormatError(
            f"the CRC32C of its bytes {piece.offset} to {piece.offset + piece.length} does not match: entries from"
            f" {piece.first_entry} on are damaged"
        )
    return data
