"""Ids that are taken ahead, from a source that answers when the test says so."""

from __future__ import annotations

import asyncio
import gc

import pytest

from bookkeeper.ensembles.ledger_id_stock import STOCK_IDS, LedgerIdStock
from foundation.model.errors import MetadataError


class Source:
    """Counts ids, and the moments in which some were asked for."""

    def __init__(self) -> None:
        self.given = -1
        self.takings = 0
        self.open = asyncio.Event()
        self.open.set()
        self.error: MetadataError | None = None
        self._is_out = False

    async def next(self, above: int = -1) -> int:
        if not self._is_out:
            self._is_out = True
            self.takings += 1
            asyncio.get_running_loop().call_soon(self._end)
        self.given = ledger_id = max(self.given, above) + 1
        await self.open.wait()
        if self.error is not None:
            raise self.error
        return ledger_id

    def _end(self) -> None:
        self._is_out = False

    def forget(self) -> None:
        """Has none."""


async def settled() -> None:
    """Returns when the background has done what it can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_ids_grow_and_few_takings_give_many() -> None:
    source = Source()
    stock = LedgerIdStock(source)
    found = []
    for _ in range(1_000):
        found.append(await stock.next())
        await settled()
    assert found == list(range(1_000))
    assert source.takings < 1_000 / STOCK_IDS + 5
    assert source.given < 1_000 + 1.5 * STOCK_IDS


async def test_first_ids_are_taken_for_those_who_wait() -> None:
    source = Source()
    stock = LedgerIdStock(source)
    source.open.clear()
    waiting = [asyncio.create_task(stock.next()) for _ in range(30)]
    await settled()
    source.open.set()
    assert sorted(await asyncio.gather(*waiting)) == list(range(30))
    assert source.takings <= 3


async def test_id_is_above_what_was_asked_for() -> None:
    stock = LedgerIdStock(Source())
    for _ in range(8):
        await stock.next()
        await settled()
    assert await stock.next(above=500) == 501
    assert await stock.next() > 501


async def test_forgotten_ids_do_not_come_also_not_those_that_are_being_taken() -> None:
    source = Source()
    stock = LedgerIdStock(source)
    await stock.next()
    await settled()
    stock.forget()
    before = source.given
    source.open.clear()
    waiting = asyncio.create_task(stock.next())
    await settled()
    assert source.given == before + 1, "not one from before"
    stock.forget()
    source.open.set()
    assert await waiting == before + 2


async def test_error_of_a_refill_reaches_the_one_who_needs_an_id_alone() -> None:
    source = Source()
    stock = LedgerIdStock(source)
    unseen: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
    source.error = MetadataError("away")
    with pytest.raises(MetadataError, match="away"):
        await stock.next()
    source.error = None
    assert await stock.next() == 1
    source.error = MetadataError("away")
    await settled()
    with pytest.raises(MetadataError, match="away"):
        await stock.next()
    source.error = None
    assert await stock.next() > 1
    gc.collect()
    assert unseen == []
