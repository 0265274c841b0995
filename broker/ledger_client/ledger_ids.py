"""Ledger ids: unique in the metadata store for ever, taken from it a block at a time.

One key counts the ids that any broker may have given out; a broker advances it by a block with a
compare-and-set and then answers from memory, so that opening a thousand topics writes it once. What is left
of a block at a stop is never used.

A metadata store that was wiped, or restored from an older copy, counts again what it has given out before. A bookie in
the broker's process still knows those ids, so it says above which of them new ledgers begin. Bookies over TCP can only be
asked for one ledger at a time: no protocol has a list of what a bookie holds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Protocol

from broker.ledger_client.bookies import Bookies
from broker.ledger_client.ledger_client import LedgerClient
from broker.metadata.metadata_store import ABSENT, MetadataStore
from broker.model.errors import BadVersion
from protocol.bookie_frame import RC_NO_ENTRY, RC_OK

log = logging.getLogger(__name__)

KEY = "/ledgers/idgen"
BLOCK_IDS = 1000
ASKED_S = 1.0
"""So long a new ledger waits for bookies that hang before they say whether they have one of its id."""


class LedgerIdSource(Protocol):
    async def next(self, above: int = -1) -> int:
        """A fresh id greater than `above`. MetadataError when there is none to be had."""
        ...


class LedgerIds:
    def __init__(self, metadata: MetadataStore, block_ids: int = BLOCK_IDS) -> None:
        assert block_ids > 0
        self._metadata = metadata
        self._block_ids = block_ids
        self._next = 0
        self._end = 0
        self._reserving = asyncio.Lock()

    async def next(self, above: int = -1) -> int:
        """A fresh id greater than `above`, because a log's ledgers are ordered by their ids.

        Raises MetadataError when the store cannot be written.
        """
        if not self._has(above):
            async with self._reserving:
                while not self._has(above):
                    await self._reserve(above)
        ledger_id = max(self._next, above + 1)
        self._next = ledger_id + 1
        return ledger_id

    def _has(self, above: int) -> bool:
        return max(self._next, above + 1) < self._end

    async def _reserve(self, above: int) -> None:
        found = await self._metadata.get(KEY)
        start = max(int(found.value) if found else 0, above + 1)
        end = start + self._block_ids
        try:
            await self._metadata.put(KEY, b"%d" % end, found.version if found else ABSENT)
        except BadVersion:
            return  # Another broker took a block in between: look again.
        self._next, self._end = start, end


class LedgerIdsAbove:
    """Ids of another source that are greater than every one that the bookie has or had."""

    def __init__(self, source: LedgerIdSource, highest: int) -> None:
        """`highest`: the bookie's, -1 for none."""
        self._source = source
        self._highest = highest
        self._told = False

    async def next(self, above: int = -1) -> int:
        """A fresh id greater than `above`. MetadataError when there is none to be had."""
        ledger_id = await self._source.next(above)
        if ledger_id > self._highest:
            return ledger_id
        if not self._told:
            self._told = True
            log.warning(
                "the metadata store gave out ledger id %d, but the bookie has had ids up to %d: the store is newer or"
                " older than the bookie's files (wiped, or restored from a copy); ids go on above, and ledgers that the"
                " store does not know keep their disk space",
                ledger_id,
                self._highest,
            )
        return await self._source.next(max(above, self._highest))


class LedgerIdsUnused:
    """Ids of another source that no bookie has a ledger of, as far as those that can be reached know.

    Entries of two ledgers with one id would be mixed. Behind one that is taken the ids go on further and further above,
    so that a few questions leave all that there is behind.
    """

    def __init__(self, source: LedgerIdSource, bookies: Bookies) -> None:
        self._source = source
        self._bookies = bookies

    async def next(self, above: int = -1) -> int:
        """A fresh id greater than `above`. MetadataError when there is none to be had."""
        ledger_id = await self._source.next(above)
        step = BLOCK_IDS
        while await _is_taken(ledger_id, self._bookies.reachable_clients()):
            log.warning(
                "the metadata store gave out ledger id %d, and a bookie has a ledger of that id: the store is older than"
                " the bookies' files (wiped, or restored from a copy); ids go on above %d, and ledgers that the store does"
                " not know keep their disk space",
                ledger_id,
                ledger_id + step,
            )
            ledger_id = await self._source.next(ledger_id + step)
            step *= 2
        return ledger_id


async def _is_taken(ledger_id: int, clients: Collection[LedgerClient]) -> bool:
    """Whether one of them says so. Who fails or hangs proves nothing."""
    if not clients:
        return False
    loop = asyncio.get_running_loop()
    asked: list[asyncio.Future[int]] = []
    for client in clients:
        answered: asyncio.Future[int] = loop.create_future()
        asked.append(answered)

        def done(rc: int, _entry: bytes, answered: asyncio.Future[int] = answered) -> None:
            if not answered.done():
                answered.set_result(rc)

        client.read(ledger_id, 0, done)
    answers, _ = await asyncio.wait(asked, timeout=ASKED_S)
    return any(answer.result() in (RC_OK, RC_NO_ENTRY) for answer in answers)
