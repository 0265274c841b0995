"""Deletions of other brokers: what they have finished refuses nothing, and what they have left takes nothing new."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import ABSENT, Put, Versioned, Write
from broker.managed_ledger.managed_ledger_info import managed_ledger_key
from broker.managed_ledger.removal.deletion import decide_deletion
from broker.service.lifecycle.deletion import steps
from broker.service.lifecycle.deletion.intents import DeletedKind, Intent
from broker.service.policies.topic_events import events_topic
from foundation.model.errors import BrokerError, MetadataError, ServiceNotReady
from tests.broker.service.lifecycle.deletion.test_deletion_races import HoldsDeletes, started, two_brokers
from tests.deletion.kinds import NAMESPACE, topic


class HoldsLists(MemoryMetadataStore):
    """The answer to the deletion of a list of ledgers waits for an event, and the deletion of an intent for another one."""

    def __init__(self) -> None:
        super().__init__()
        self.answers, self.intents = asyncio.Event(), asyncio.Event()

    async def delete(self, key: str, expected: int | None = None) -> None:
        if key.startswith("/admin/deletions/"):
            await self.intents.wait()
        await super().delete(key, expected)
        if key.startswith("/managed-ledgers/"):
            await self.answers.wait()


class AnswersLate(MemoryMetadataStore):
    """An answer to a read of an intent comes after that to a later write."""

    def __init__(self) -> None:
        super().__init__()
        self.is_late = False
        self.written = asyncio.Event()

    async def get(self, key: str) -> Versioned | None:
        found = await super().get(key)
        for _ in range(6 if self.is_late and key.startswith("/admin/deletions/") else 0):
            await asyncio.sleep(0)
        return found

    async def put_all(self, puts: Sequence[Write]) -> list[int]:
        versions = await super().put_all(puts)
        if self.is_late:
            self.written.set()
            for _ in range(4):
                await asyncio.sleep(0)
        return versions


class ShowsLate(MemoryMetadataStore):
    """The answer to the first intent is lost, and a server that lags shows it after `sync`."""

    def __init__(self) -> None:
        super().__init__()
        self.is_losing = False
        self.late: Sequence[Write] = ()

    async def put_all(self, puts: Sequence[Write]) -> list[int]:
        if self.is_losing:
            self.is_losing, self.late = False, puts
            raise MetadataError("no answer")
        return await super().put_all(puts)

    async def sync(self) -> None:
        if self.late:
            puts, self.late = self.late, ()
            await super().put_all(puts)


class PutsBack(MemoryMetadataStore):
    """Another broker writes the list of a topic again after each deletion."""

    def __init__(self) -> None:
        super().__init__()
        self.times = 0
        """Writes that are left."""

    async def delete(self, key: str, expected: int | None = None) -> None:
        found = await self.get(key)
        await super().delete(key, expected)
        if self.times and found is not None and key == managed_ledger_key(topic("t").ledger_name):
            self.times -= 1
            await self.put(key, found.value)


async def test_thing_whose_deletion_another_broker_has_finished_is_made_anew_at_once() -> None:
    one, other, metadata = await two_brokers()
    metadata.deletes_left = 0
    with pytest.raises(MetadataError):
        await one.run(one.partitioned.delete(topic("p"), force=True))
    with pytest.raises(MetadataError):
        await one.run(one.deletions.namespace(NAMESPACE, force=True))
    # The other broker learns of both, as by its look each minute.
    await other.run(other.deletions.resume())
    assert len(other.deletions.intents.pending) == 2
    with pytest.raises(BrokerError):
        await other.run(other.namespaces.create(NAMESPACE))
    metadata.deletes_left = 1 << 30
    await one.run(one.deletions.resume())
    await other.run(other.namespaces.create(NAMESPACE))
    await other.run(other.partitioned.create(topic("p"), 2))
    assert await other.run(other.registry.get(topic("t"), create=True))


async def test_intent_that_is_left_over_takes_no_policies_of_a_later_topic() -> None:
    stage = await started(HoldsDeletes())
    # As by a broker that was killed before it removed the intent: nothing else is left.
    await stage.deletions.intents.decide_alone(Intent(DeletedKind.TOPIC, str(topic("t")), 1))
    forgotten = list[str]()

    async def noted(topic: str) -> None:
        forgotten.append(topic)

    stage.namespaces.topic_deleted = noted  # type: ignore[method-assign]
    await stage.run(stage.deletions.resume())
    assert not forgotten
    assert not stage.deletions.intents.pending


async def test_namespace_is_deleted_although_a_topic_comes_back() -> None:
    metadata = PutsBack()
    stage = await started(metadata)
    await stage.publish(await stage.open(str(topic("t"))), 1)
    metadata.times = 3
    await stage.run(stage.deletions.namespace(NAMESPACE, force=True))
    assert (metadata.times, stage.namespaces.exists(NAMESPACE)) == (0, False)


async def test_topic_that_comes_back_for_ever_is_named() -> None:
    metadata = PutsBack()
    stage = await started(metadata)
    await stage.publish(await stage.open(str(topic("t"))), 1)
    metadata.times = steps.ROUNDS_MAX
    with pytest.raises(ServiceNotReady, match=str(topic("t"))):
        await stage.run(stage.deletions.namespace(NAMESPACE, force=True))


async def test_topic_with_policies_is_marked_before_it_goes() -> None:
    stage = await started(HoldsDeletes())
    name = events_topic(NAMESPACE)
    await stage.publish(await stage.open(str(name)), 1)
    written = list[bytes]()
    put_all = stage.environment.metadata.put_all

    async def noted(puts: Sequence[Write]) -> list[int]:
        written.extend(
            one.value
            for one in puts
            if isinstance(one, Put) and one.key == managed_ledger_key(name.ledger_name)
        )
        return await put_all(puts)

    stage.environment.metadata.put_all = noted  # type: ignore[method-assign]
    await stage.run(stage.deletions.namespace(NAMESPACE, force=True))
    assert any(b"deleted" in value for value in written)


async def test_look_for_interrupted_deletions_leaves_one_alone_whose_request_lacks_the_last_write() -> None:
    metadata = HoldsLists()
    stage = await started(metadata)
    await stage.publish(await stage.open(str(topic("t"))), 1)
    deleting = asyncio.ensure_future(stage.deletions.topic(topic("t"), force=True))
    await stage.settle()
    resuming = asyncio.ensure_future(stage.deletions.resume())
    await stage.settle()
    metadata.answers.set()
    await stage.settle()
    metadata.intents.set()
    await stage.run(deleting)
    await stage.run(resuming)
    assert not stage.deletions.intents.pending


async def test_request_for_a_topic_does_not_end_the_resumption_of_its_deletion() -> None:
    metadata = AnswersLate()
    stage = await started(metadata)
    name = topic("t")
    await stage.publish(await stage.open(str(name)), 1)
    await stage.registry.unload(name)
    left = Intent(DeletedKind.TOPIC, str(name), 1, owner="gone")
    await decide_deletion(name.ledger_name, metadata, (Put(left.key, left.encode(), ABSENT),))
    await stage.deletions.open()
    metadata.is_late = True
    resuming = asyncio.ensure_future(stage.deletions.resume())

    async def ask() -> None:
        await metadata.written.wait()
        with pytest.raises(ServiceNotReady, match="is being deleted"):
            await stage.registry.get(name, create=True)

    asking = asyncio.ensure_future(ask())
    await stage.run(resuming)
    await stage.run(asking)
    assert not stage.deletions.intents.pending
    assert not await metadata.get(managed_ledger_key(name.ledger_name))


async def test_deletion_that_was_perhaps_decided_refuses_topics_until_the_store_tells() -> None:
    metadata = ShowsLate()
    stage = await started(metadata)
    metadata.is_losing = True
    with pytest.raises(MetadataError):
        await stage.run(stage.deletions.namespace(NAMESPACE, force=True))
    with pytest.raises(BrokerError):
        await stage.run(stage.registry.get(topic("t"), create=True))
    await stage.run(stage.deletions.resume())
    assert not stage.namespaces.exists(NAMESPACE)
