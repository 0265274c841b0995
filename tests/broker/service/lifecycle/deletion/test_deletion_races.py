"""Deletions beside requests that come at the same time: nothing new is deleted, and nothing is left behind."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from broker.service.lifecycle.deletion.intents import Intent, Kind
from foundation.model.errors import BrokerError, MetadataError, ServiceNotReady, TopicNotFound
from tests.broker.service.lifecycle.deletion.test_deletion import RefusesDeletes
from tests.deletion.kinds import NAMESPACE, dump, opened, topic, with_namespace
from tests.fakes.metadata import FakeMetadata
from tests.fakes.stage import Stage


class HoldsDeletes(MemoryMetadataStore):
    """Lets deletes wait for an event."""

    def __init__(self) -> None:
        super().__init__()
        self.free = asyncio.Event()
        self.free.set()

    async def delete(self, key: str, expected: int | None = None) -> None:
        await self.free.wait()
        await super().delete(key, expected)


async def started(metadata: MemoryMetadataStore) -> Stage:
    stage = await opened(metadata)
    await with_namespace(stage)
    return stage


async def test_look_for_interrupted_deletions_leaves_a_topic_alone_that_is_made_anew_meanwhile() -> None:
    metadata = HoldsDeletes()
    stage = await started(metadata)
    name = topic("t")
    await stage.publish(await stage.open(str(name)), 3)
    metadata.free.clear()
    deleting = asyncio.ensure_future(stage.deletions.topic(name, force=True))
    await stage.settle()
    assert stage.deletions.waiting
    # A client connects again at once, and the look of each minute comes while the deletion goes on.
    connecting = asyncio.ensure_future(stage.registry.get(name, create=True))
    resuming = asyncio.ensure_future(stage.deletions.resume())
    await stage.settle()
    metadata.free.set()
    await stage.run(deleting)
    made = await stage.run(connecting)
    await stage.run(resuming)
    assert not made.closed
    assert await stage.open(str(name)) is made


async def test_tenant_or_namespace_is_not_made_anew_before_its_deletion_is_finished() -> None:
    stage = await started(MemoryMetadataStore())
    for kind, name in ((Kind.TENANT, "shop"), (Kind.NAMESPACE, NAMESPACE)):
        await stage.deletions.intents.decide(Intent(kind, name, 1))
    await stage.namespaces.delete(NAMESPACE)
    # Nothing of both is left except for the intents, as at a kill before the last write.
    later = await opened(stage.environment.metadata, stage)
    with pytest.raises(BrokerError):
        await later.namespaces.create(NAMESPACE)
    await later.namespaces.delete_tenant("shop")
    with pytest.raises(ServiceNotReady):
        await later.namespaces.create_tenant("shop", {})
    await later.run(later.deletions.resume())
    await with_namespace(later)
    assert not later.deletions.waiting
    assert later.namespaces.exists(NAMESPACE)


async def test_default_namespace_that_a_start_makes_anew_stays() -> None:
    metadata = MemoryMetadataStore()
    first = await opened(metadata)
    intent = Intent(Kind.NAMESPACE, "public/default", 1)
    await first.deletions.intents.decide(intent)
    await first.namespaces.delete("public/default")
    later = await opened(metadata, first)
    await later.run(later.deletions.resume())
    assert later.namespaces.exists("public/default")
    assert not later.deletions.waiting


async def test_forced_deletion_of_a_namespace_waits_for_a_topic_that_is_being_made() -> None:
    metadata = FakeMetadata()
    stage = await started(metadata)
    before = set(await dump(metadata))
    metadata.gate = asyncio.Event()
    opening = asyncio.ensure_future(stage.registry.get(topic("t"), create=True))
    await stage.settle()
    # Only the topic's first write is held back.
    gate, metadata.gate = metadata.gate, None
    deleting = asyncio.ensure_future(stage.deletions.namespace(NAMESPACE, force=True))
    await stage.settle()
    gate.set()
    await stage.run(deleting)
    with suppress(BrokerError):
        await stage.run(opening)
    assert set(await dump(metadata)) == before - {f"/admin/policies/{NAMESPACE}"}


async def test_cancelled_deletion_does_not_end_the_opening_that_it_waits_for() -> None:
    metadata = FakeMetadata()
    stage = await started(metadata)
    metadata.gate = asyncio.Event()
    opening = asyncio.ensure_future(stage.registry.get(topic("t"), create=True))
    await stage.settle()
    deleting = asyncio.ensure_future(stage.deletions.namespace(NAMESPACE, force=False))
    await stage.settle()
    deleting.cancel()
    await stage.settle()
    metadata.gate.set()
    assert not (await stage.run(opening)).closed


async def test_partitioned_topic_is_not_made_or_grown_while_its_deletion_is_unfinished() -> None:
    metadata = RefusesDeletes()
    stage = await started(metadata)
    name = topic("p", "non-persistent")
    await stage.run(stage.partitioned.create(name, 2))
    with pytest.raises(MetadataError):
        await stage.run(stage.partitioned.delete(name, force=True))
    for asked in (stage.partitioned.create(name, 2), stage.partitioned.grow(name, 4)):
        with pytest.raises(ServiceNotReady):
            await stage.run(asked)
    metadata.deletes_left = 1 << 30
    await stage.run(stage.deletions.resume())
    assert not await stage.registry.partitions.count(name)
    await stage.run(stage.partitioned.create(name, 2))


async def test_partitions_that_are_added_while_a_deletion_is_decided_go_too() -> None:
    metadata = MemoryMetadataStore()
    stage = await started(metadata)
    before = set(await dump(metadata))
    name = topic("p")
    await stage.run(stage.partitioned.create(name, 2))
    await stage.run(stage.partitioned.grow(name, 4))
    # The deletion has read the count before the topic grew.
    await stage.run(stage.deletions.partitioned(name, 2))
    assert set(await dump(metadata)) == before


async def test_count_of_a_deleted_topic_is_not_written_back() -> None:
    stage = await started(MemoryMetadataStore())
    partitions = stage.registry.partitions
    await partitions.create(topic("p"), 2, None)
    await partitions.delete(topic("p"))
    with pytest.raises(TopicNotFound):
        await partitions.set_count(topic("p"), 4)
    with pytest.raises(TopicNotFound):
        await partitions.set_properties(topic("p"), {"a": "b"})
    assert not await partitions.count(topic("p"))


async def test_namespace_with_a_key_that_no_topic_name_gives_is_not_deleted_for_ever() -> None:
    metadata = MemoryMetadataStore()
    stage = await started(metadata)
    await stage.open(str(topic("t")))
    foreign = f"/managed-ledgers/{NAMESPACE}/persistent/a%7Eb"
    await metadata.put(foreign, b"{}")
    with pytest.raises(MetadataError, match="a~b"):
        await stage.run(stage.deletions.namespace(NAMESPACE, force=True))
    await metadata.delete(foreign)
    await stage.run(stage.deletions.resume())
    assert not stage.deletions.waiting
    assert not stage.namespaces.exists(NAMESPACE)
