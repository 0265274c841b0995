"""Deletions whose session ends: in the middle of a step, or before the decision is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import Versioned, Write
from broker.managed_ledger.managed_ledger_info import managed_ledger_key
from foundation.model.errors import ServiceNotReady
from tests.broker.service.lifecycle.deletion.test_deletion_races import started
from tests.deletion.kinds import dump, opened, topic


async def test_steps_end_with_their_session_and_take_nothing_that_was_made_anew() -> None:
    """The former owner waits for the store in the middle of a step, in which another broker finishes the deletion."""
    metadata = HoldsReads()
    one = await started(metadata)
    await one.run(one.partitioned.create(topic("p"), 2))
    other = await opened(metadata.another(), one)
    metadata.held = managed_ledger_key(topic("p").with_partition(0).ledger_name)
    deleting = asyncio.ensure_future(one.partitioned.delete(topic("p"), force=True))
    await one.settle()
    assert metadata.waiting
    metadata._end_session()
    await other.run(other.deletions.resume())
    assert other.deletions.resumed == 1
    await other.run(other.partitioned.create(topic("p"), 2))
    metadata.held = ""
    whole = await dump(metadata)
    metadata.expire()
    metadata.free.set()
    with pytest.raises(ServiceNotReady, match="Another broker deletes"):
        await one.run(deleting)
    assert await dump(metadata) == whole


class HoldsReads(MemoryMetadataStore):
    """Lets reads of one key wait for an event, in one session."""

    held = ""
    waiting = False

    def __init__(self) -> None:
        super().__init__()
        self.free = asyncio.Event()

    async def get(self, key: str) -> Versioned | None:
        if key == self.held:
            self.waiting = True
            await self.free.wait()
        return await super().get(key)


class LateAnswers(MemoryMetadataStore):
    """Carries a transaction out, and answers when it is told to."""

    held = False

    def __init__(self) -> None:
        super().__init__()
        self.free = asyncio.Event()

    async def put_all(self, puts: Sequence[Write]) -> list[int]:
        versions = await super().put_all(puts)
        if self.held:
            await self.free.wait()
        return versions


async def test_decision_that_is_answered_after_the_end_of_its_session_is_not_carried_out() -> None:
    """Another broker has finished the deletion meanwhile, and the topic was made anew."""
    metadata = LateAnswers()
    one = await started(metadata)
    await one.run(one.partitioned.create(topic("p"), 2))
    other = await opened(metadata.another(), one)
    metadata.held = True
    deleting = asyncio.ensure_future(one.partitioned.delete(topic("p"), force=True))
    await one.settle()
    metadata.expire()
    await other.run(other.deletions.resume())
    await other.run(other.partitioned.create(topic("p"), 2))
    whole = await dump(metadata)
    metadata.free.set()
    with pytest.raises(ServiceNotReady, match="Another broker deletes"):
        await one.run(deleting)
    await one.run(one.deletions.resume())
    assert await dump(metadata) == whole
    assert not one.deletions.intents.pending
