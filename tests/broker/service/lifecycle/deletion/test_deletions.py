"""Deletions: nothing of a topic, a namespace or a tenant stays, wherever the broker ends in between.

The store is compared byte for byte with the one before. A counter may grow: the ids of ledgers. So may versions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from broker.service.lifecycle.deletion.intents import ROOT, DeletedKind, Intent
from broker.service.namespaces.namespaces import NotEmpty
from broker.service.topics.topic import TopicBusy
from foundation.model.errors import BrokerError, MetadataError, ServiceNotReady, TopicNotFound
from tests.deletion.compare import compare
from tests.deletion.kinds import KINDS, NAMESPACE, delete, dump, make_plain, opened, topic, with_namespace
from tests.fakes.metadata import FakeMetadata, WritesUntilCrash
from tests.fakes.stage import EXCLUSIVE, Stage
from tests.support.slow import slow_but

T = TypeVar("T")


@pytest.mark.parametrize("kind", KINDS)
async def test_deleted_topic_leaves_the_store_as_it_was(kind: str) -> None:
    metadata = MemoryMetadataStore()
    stage = await opened(metadata)
    await with_namespace(stage)
    before = await dump(metadata)
    domain, make = KINDS[kind]
    names = [topic(f"{kind} é {index}", domain) for index in range(3)]
    for name in names:
        await make(stage, name)
    assert len(await dump(metadata)) >= len(before) + 6
    for name in names:
        await delete(stage, name)
    assert await dump(metadata) == before
    assert stage.ledgers._ledgers == {}


async def bury_tasks() -> None:
    """Ends the tasks of a dead broker; none of its writes arrives any more."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def make_namespace(stage: Stage) -> None:
    await with_namespace(stage)
    for index, (domain, make) in enumerate(KINDS.values()):
        await make(stage, topic(f"t{index}", domain))


DELETIONS: dict[str, Callable[[Stage], Awaitable[object]]] = {
    **{
        kind: lambda stage, domain=domain: delete(stage, topic("t", domain))  # type: ignore[misc]
        for kind, (domain, _) in KINDS.items()
    },
    "namespace": lambda stage: stage.run(stage.deletions.namespace(NAMESPACE, force=True)),
    "tenant": lambda stage: stage.run(stage.deletions.tenant("shop", force=True)),
}


async def prepared(kind: str) -> tuple[Stage, MemoryMetadataStore, dict[str, bytes]]:
    """Returns a stage with the thing to delete, its store, and the store as it must be afterwards."""
    metadata = MemoryMetadataStore()
    stage = await opened(metadata)
    empty = await dump(metadata)
    if kind in KINDS:
        await with_namespace(stage)
        expected = await dump(metadata)
        domain, make = KINDS[kind]
        await make(stage, topic("t", domain))
        return stage, metadata, expected
    await make_namespace(stage)
    tenant = {"/admin/policies/shop": (await dump(metadata))["/admin/policies/shop"]}
    return stage, metadata, empty | tenant if kind == "namespace" else empty


@pytest.mark.parametrize("kind", DELETIONS)
async def test_deletion_is_finished_by_the_next_broker_when_it_was_killed_before_any_write(kind: str) -> None:
    for writes in range(200):
        first, metadata, expected = await prepared(kind)
        whole = await dump(metadata)
        await first.run(first.deletions.close())
        await first.run(first.registry.close())
        way = WritesUntilCrash(metadata, writes)
        second = await opened(way, first)
        if kind == "non-persistent":
            await second.run(second.registry.get(topic("t", "non-persistent"), create=True))
        deleting = asyncio.ensure_future(DELETIONS[kind](second))
        for _ in range(100_000):
            if way.dead or deleting.done():
                break
            await asyncio.sleep(0)
        decided = bool(await metadata.children(ROOT)) or not way.dead
        await bury_tasks()
        await metadata.close()  # The session of the dead broker ends.
        third = await opened(metadata, second)
        await third.run(third.deletions.resume())
        if decided:
            assert await dump(metadata) == expected, writes
            assert third.ledgers._ledgers == {}
        else:
            assert (await dump(metadata)).keys() >= whole.keys() - {"/admin/deletions"}
        assert not third.deletions.intents.pending
        if not way.dead:
            assert writes >= 3
            return
    raise AssertionError("the deletion never ends")


async def test_deletion_that_fails_is_tried_again_and_holds_the_topic_until_then() -> None:
    stage, metadata, expected = await refusing()
    name = topic("t")
    with pytest.raises(MetadataError):
        await stage.run(stage.deletions.topic(name, force=True))
    with pytest.raises(ServiceNotReady):
        await stage.run(stage.registry.get(name, create=True))
    await stage.run(stage.deletions.resume())
    assert stage.deletions.intents.pending, "the store still refuses"
    await stage.pass_time(90_000)
    assert stage.deletions.oldest_age_s >= 90
    metadata.deletes_left = 1 << 30
    await stage.run(stage.deletions.resume())
    assert await dump(metadata) == expected
    assert stage.deletions.resumed == 1
    assert stage.deletions.oldest_age_s == 0
    assert (await stage.open(str(name))).ledger.ledgers.entries == 0


class RefusesDeletes(FakeMetadata):
    """Refuses deletes behind the given number."""

    deletes_left = 0

    async def delete(self, key: str, expected: int | None = None) -> None:
        if not self.deletes_left:
            raise MetadataError("refused by the test")
        self.deletes_left -= 1
        await super().delete(key, expected)


async def refusing() -> tuple[Stage, RefusesDeletes, dict[str, bytes]]:
    metadata = RefusesDeletes()
    stage = await opened(metadata)
    await with_namespace(stage)
    expected = await dump(metadata)
    await make_plain(stage, topic("t"))
    return stage, metadata, expected


async def test_topic_that_was_made_anew_by_another_broker_keeps_everything() -> None:
    stage, metadata, _ = await refusing()
    name = topic("t")
    with pytest.raises(MetadataError):
        await stage.run(stage.deletions.topic(name, force=True))
    metadata.deletes_left = 1 << 30
    # A broker of an earlier version finishes the mark in the list alone, and makes the topic anew.
    other = Stage(metadata=metadata, before=stage)
    await other.namespaces.open()
    await other.publish(await other.open(str(name)), 2)
    whole = await dump(metadata)
    await stage.run(stage.deletions.resume())
    after = await dump(metadata)
    assert whole.keys() - after.keys() == {Intent(DeletedKind.TOPIC, str(name), 0).key}
    assert (await stage.open(str(name))).ledger.ledgers.entries == 2


async def test_cancelled_request_does_not_stop_a_deletion() -> None:
    for kind in DELETIONS:
        stage, metadata, expected = await prepared(kind)
        deleting = asyncio.ensure_future(DELETIONS[kind](stage))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        deleting.cancel()
        for _ in range(10_000):
            if not stage.registry._closing and not stage.deletions._running:
                break
            await stage.settle()
        assert await dump(metadata) == expected, kind


async def test_topic_with_clients_is_deleted_by_force_alone() -> None:
    stage = await opened(MemoryMetadataStore())
    await with_namespace(stage)
    found = await stage.open(str(topic("t")))
    await stage.consume(found, EXCLUSIVE)
    with pytest.raises(TopicBusy):
        await stage.run(stage.deletions.topic(topic("t"), force=False))
    assert str(topic("t")) in stage.registry.topics
    await stage.run(stage.partitioned.create(topic("p"), 3))
    await stage.consume(await stage.open(str(topic("p-partition-1"))))
    with pytest.raises(TopicBusy):
        await stage.run(stage.partitioned.delete(topic("p"), force=False))
    assert len(await stage.registry.names(NAMESPACE)) == 4
    await stage.run(stage.deletions.topic(topic("t"), force=True))
    assert found.closed
    with pytest.raises(TopicNotFound):
        await stage.run(stage.deletions.topic(topic("t"), force=True))


async def test_namespace_with_topics_is_refused_and_takes_no_new_ones_while_it_is_deleted() -> None:
    metadata = FakeMetadata()
    stage = await opened(metadata)
    await with_namespace(stage)
    await stage.open(str(topic("t")))
    with pytest.raises(NotEmpty):
        await stage.run(stage.deletions.namespace(NAMESPACE, force=False))
    await stage.open(str(topic("u")))
    metadata.gate = asyncio.Event()
    deleting = asyncio.ensure_future(stage.deletions.namespace(NAMESPACE, force=True))
    await stage.settle()
    asked = asyncio.ensure_future(stage.registry.get(topic("v"), create=True))
    await stage.settle()
    metadata.gate.set()
    await stage.run(deleting)
    with pytest.raises(TopicNotFound):
        await asked
    assert not await stage.registry.names(NAMESPACE)


async def test_two_deletions_of_one_name_share_the_work() -> None:
    stage, metadata, expected = await prepared("namespace")
    both = [asyncio.ensure_future(stage.deletions.namespace(NAMESPACE, force=True)) for _ in range(2)]
    await stage.run(asyncio.gather(*both))
    assert await dump(metadata) == expected


async def test_stop_of_the_broker_leaves_a_deletion_to_the_next_start() -> None:
    stage, metadata, expected = await prepared("namespace")
    deleting = asyncio.ensure_future(stage.deletions.namespace(NAMESPACE, force=True))
    for _ in range(12):
        await asyncio.sleep(0)
    await stage.run(stage.deletions.close())
    await stage.run(stage.registry.close())
    with suppress(asyncio.CancelledError, BrokerError):
        await deleting
    await metadata.close()
    later = await opened(metadata, stage)
    await later.run(later.deletions.resume())
    assert await dump(metadata) == expected


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", slow_but(("compacted",), [*KINDS]))
async def test_many_deleted_topics_leave_a_store_on_disk_as_it_was(kind: str, tmp_path: Path) -> None:
    assert (await compare(kind, 200, tmp_path / "metadata")).differences == []
