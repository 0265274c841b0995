"""LedgerIdStock: ids of another source, taken ahead, so that the opening of a topic need not wait for a write.

Two laws:

1. Ids come out in the order in which the source gave them: a topic that is opened again gets a higher one.
2. `forget` is called whenever this broker has got a lease. Ids from before could be lower than those that the former owner
   of a topic has reserved, and told to clients as the end of the topic.

As many are taken as were wanted of late: a broker that gets hundreds of bundles takes one for each, and not a stock.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Final

from bookkeeper.ensembles.ledger_ids import LedgerIdSource
from foundation.model.errors import MetadataError

STOCK_IDS: Final = 32
"""Ids that are taken together at most, unless more are waited for. A read of the store that meets a taking waits for its
end: 1 to 3 ms with 32, 10 ms with 200. A stop loses one and a half times as many."""

GROWTH: Final = 8
"""Each taking is so many times as large as the one before it. With 2 the first 500 openings met ten of them."""


class LedgerIdStock:
    """`LedgerIdSource` over a source in which each id costs a round trip and a write."""

    def __init__(self, source: LedgerIdSource) -> None:
        """`source` gives growing ids to all brokers; calls that come together cost it little more than one."""
        self._source = source
        self._ids: deque[int] = deque()
        self._count = 0
        """Ids that were taken together last."""
        self._waiting = 0
        self._forgotten = 0
        """Calls of `forget`."""
        # Two takings at once could come out of order.
        self._taking = asyncio.Lock()
        self._refilling: asyncio.Task[None] | None = None

    async def next(self, above: int = -1) -> int:
        """Returns an id from the stock, which is filled again in the background. Raises as the source where it is empty."""
        self._waiting += 1
        try:
            while not self._has(above):
                async with self._taking:
                    if not self._has(above):
                        await self._take(above)
        finally:
            self._waiting -= 1
        ledger_id = self._ids.popleft()
        if self._refilling is None and 2 * len(self._ids) <= self._count:
            self._refilling = asyncio.create_task(self._refill(), name="ids of ledgers")
        return ledger_id

    def forget(self) -> None:
        """Empties the stock; ids that are being taken do not get into it."""
        self._ids.clear()
        self._count = 0
        self._forgotten += 1

    def _has(self, above: int) -> bool:
        while self._ids and self._ids[0] <= above:
            self._ids.popleft()
        return bool(self._ids)

    async def _take(self, above: int) -> None:
        forgotten, count = self._forgotten, max(self._waiting, min(GROWTH * self._count, STOCK_IDS), 1)
        ids = await asyncio.gather(*(self._source.next(above) for _ in range(count)))
        if forgotten == self._forgotten:
            self._ids.extend(sorted(ids))
            self._count = count

    async def _refill(self) -> None:
        try:
            # A caller that finds the stock empty asks again, and hears of the error.
            with suppress(MetadataError):
                async with self._taking:
                    await self._take(-1)
        finally:
            self._refilling = None
