"""Ledger ids: unique in a metadata store for ever, reserved in it a block at a time.

The law: no id is used twice, because the entries of two ledgers with one id would be mixed. One key counts the ids that
any broker may have used; a broker advances it by a block with a compare-and-set, so opening a thousand topics writes it
once. The rest of a block is lost at a stop.

A metadata store that was wiped, or restored from an older copy, counts ids again that were used before. Two sources guard
against it: `LedgerIdsAbove` knows the highest id of the embedded bookie, `LedgerIdsUnused` asks bookies over TCP for each
id, because no protocol lists the ledgers of a bookie. In ZooKeeper ids come from `zookeeper_ledger_ids`. BookKeeper's
name: LedgerIdGenerator.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Protocol

from bookkeeper.client.ledger_client import LedgerClient
from bookkeeper.ensembles.bookies import Bookies
from bookkeeper.metadata.metadata_store import ABSENT, MetadataStore
from foundation.model.errors import BadVersion
from protocol.bookie_frame import RC_NO_ENTRY, RC_OK

log = logging.getLogger(__name__)

KEY = "/ledgers/idgen"
"""Its value is the first id that no block has, in decimal."""
BLOCK_IDS = 1000
"""Ids reserved by one write."""
ASKED_S = 1.0
"""Limit on the time that bookies without an answer delay a new ledger."""


class LedgerIdSource(Protocol):
    """Gives each new ledger its id."""

    async def next(self, above: int = -1) -> int:
        """Returns an unused id greater than `above`.

        A log's ledgers are ordered by id, so its next one needs an id above its last. Raises MetadataError when the
        store refuses, or has no ids left.
        """
        ...

    def forget(self) -> None:
        """Drops ids that were taken ahead: this broker has got a lease, and others may have used higher ones before."""
        ...


class LedgerIds:
    """Ids from blocks that are reserved in the metadata store."""

    def __init__(self, metadata: MetadataStore, block_ids: int = BLOCK_IDS) -> None:
        """`block_ids` as small as tests need it."""
        assert block_ids > 0
        self._metadata = metadata
        self._block_ids = block_ids
        self._next = 0
        self._end = 0
        self._reserving = asyncio.Lock()

    async def next(self, above: int = -1) -> int:
        """Writes the store once per block."""
        if not self._has(above):
            # One block for all that wait; each would otherwise reserve its own.
            async with self._reserving:
                while not self._has(above):
                    await self._reserve(above)
        # The ids in between are lost.
        ledger_id = max(self._next, above + 1)
        self._next = ledger_id + 1
        return ledger_id

    def forget(self) -> None:
        """Does nothing: brokers that share such a store use blocks in any order."""

    def _has(self, above: int) -> bool:
        return max(self._next, above + 1) < self._end

    async def _reserve(self, above: int) -> None:
        found = await self._metadata.get(KEY)
        # Above what the log has: a store that was wiped may count from the beginning again.
        start = max(int(found.value) if found else 0, above + 1)
        end = start + self._block_ids
        try:
            await self._metadata.put(KEY, b"%d" % end, found.version if found else ABSENT)
        except BadVersion:
            return  # Another broker reserved a block in between: the caller looks again.
        # Only after the write: ids of a block that is not reserved could be used by two brokers.
        self._next, self._end = start, end


class LedgerIdsAbove:
    """Ids of another source, above all that the bookie had."""

    def __init__(self, source: LedgerIdSource, highest: int) -> None:
        """`highest` is the highest id in the bookie's files, -1 when it has no ledger."""
        self._source = source
        self._highest = highest
        self._warned = False

    async def next(self, above: int = -1) -> int:
        """Skips the source to above the bookie's ids, with one warning."""
        ledger_id = await self._source.next(above)
        if ledger_id > self._highest:
            return ledger_id
        # Once: every id up to the bookie's highest would warn again.
        if not self._warned:
            self._warned = True
            log.warning(
                "the metadata store gave out ledger id %d, but the bookie has had ids up to %d: the store is newer or"
                " older than the bookie's files (wiped, or restored from a copy); ids go on above, and ledgers that the"
                " store does not know keep their disk space",
                ledger_id,
                self._highest,
            )
        return await self._source.next(max(above, self._highest))

    def forget(self) -> None:
        """Drops those of the source."""
        self._source.forget()


class LedgerIdsUnused:
    """Ids of another source that no reachable bookie has a ledger of.

    After each id that is taken the next try is twice as far above, so a few questions pass every used id.
    """

    def __init__(self, source: LedgerIdSource, bookies: Bookies) -> None:
        self._source = source
        self._bookies = bookies

    async def next(self, above: int = -1) -> int:
        """Asks every reachable bookie, for at most a second per id."""
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

    def forget(self) -> None:
        """Drops those of the source."""
        self._source.forget()


async def _is_taken(ledger_id: int, clients: Collection[LedgerClient]) -> bool:
    """Returns True when a bookie has a ledger of that id. A bookie that fails or is silent proves nothing."""
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

        # Entry 0 tells: a bookie that has the ledger without it answers "no entry", otherwise "no ledger".
        client.read(ledger_id, 0, done)
    answers, _ = await asyncio.wait(asked, timeout=ASKED_S)
    return any(answer.result() in (RC_OK, RC_NO_ENTRY) for answer in answers)
