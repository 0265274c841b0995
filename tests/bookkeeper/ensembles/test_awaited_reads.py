"""A read that is awaited: its error leaves nothing that only the garbage collector frees."""

from __future__ import annotations

import asyncio
import gc

import pytest

from bookkeeper.client.memory import MemoryLedgerClient
from bookkeeper.ensembles.awaited_reads import read_entries
from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from foundation.model.errors import NoSuchLedger
from tests.fakes.ledgers import on_one_bookie


async def test_failed_read_leaves_no_cycle() -> None:
    ledgers = on_one_bookie(MemoryMetadataStore(), MemoryLedgerClient(asyncio.get_running_loop().call_soon))

    async def fails() -> None:
        with pytest.raises(NoSuchLedger):
            await read_entries(ledgers, 7, 0, 9, 1_000)

    await fails()
    gc.collect()
    gc.disable()
    try:
        gc.set_debug(gc.DEBUG_SAVEALL)
        await fails()
        await asyncio.sleep(0)
        gc.collect()
        left = [one for one in gc.garbage if isinstance(one, NoSuchLedger | asyncio.Future)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert left == []
