"""Topic compaction while another broker takes the topic over: the writes of the first one arrive late."""

from __future__ import annotations

import asyncio

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from tests.broker.service.compaction.test_topic_compaction import (
    check_view,
    compact,
    ledgers_of,
    lived_until_dead,
    referenced,
)
from tests.fakes.metadata import LateWrites
from tests.fakes.stage import Stage


@pytest.mark.parametrize("compacts", [False, True])
async def test_late_writes_of_a_broker_that_lost_the_topic_lose_no_key(compacts: bool) -> None:
    """Its late horizon named a compacted ledger that the next broker had removed; the keys were gone with the log."""
    # The first four writes make tenants and namespaces.
    for writes in range(4, 60):
        shared = MemoryMetadataStore()
        way = LateWrites(shared, writes)
        stage, ports, work = await lived_until_dead(way)
        second = Stage(entries_per_ledger=3, metadata=shared, before=stage)
        topic = await second.open()
        if compacts:
            await compact(second, topic)
        confirmed = sum(len(port.receipts) for port in ports)
        way.release()
        await second.settle()
        work.cancel()
        await asyncio.wait((work,))
        await second.settle()
        third = Stage(entries_per_ledger=3, metadata=shared, before=stage)
        topic = await third.open()
        await check_view(third, topic, confirmed)
        assert await ledgers_of(shared) - await referenced(shared, topic.name.ledger_name) == set()
        if not way.dead:
            break
    else:
        raise AssertionError("the life never ends")
