"""Deletions beside requests that come at the same time: nothing new is deleted, and nothing is left behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import ABSENT, SessionState, Write
from broker.service.lifecycle.deletion.intents import DeletedKind, Intent
from foundation.model.errors import BrokerError, MetadataError, ServiceNotReady, TopicNotFound
from foundation.model.topic_name import TopicName
from tests.broker.service.lifecycle.deletion.test_deletions import RefusesDeletes
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
    assert stage.deletions.intents.pending
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
    for kind, name in ((DeletedKind.TENANT, "shop"), (DeletedKind.NAMESPACE, NAMESPACE)):
        await stage.deletions.intents.decide_alone(Intent(kind, name, 1))
    await stage.namespaces.delete(NAMESPACE)
    # Nothing of both is left except for the intents, as at a kill before the last write.
    await stage.environment.metadata.close()
    later = await opened(stage.environment.metadata, stage)
    with pytest.raises(BrokerError):
        await later.namespaces.create(NAMESPACE)
    await later.namespaces.delete_tenant("shop")
    with pytest.raises(ServiceNotReady):
        await later.namespaces.create_tenant("shop", {})
    await later.run(later.deletions.resume())
    await with_namespace(later)
    assert not later.deletions.intents.pending
    assert later.namespaces.exists(NAMESPACE)


async def test_default_namespace_that_a_start_makes_anew_stays() -> None:
    metadata = MemoryMetadataStore()
    first = await opened(metadata)
    intent = Intent(DeletedKind.NAMESPACE, "public/default", 1)
    await first.deletions.intents.decide_alone(intent)
    await first.namespaces.delete("public/default")
    await metadata.close()
    later = await opened(metadata, first)
    await later.run(later.deletions.resume())
    assert later.namespaces.exists("public/default")
    assert not later.deletions.intents.pending


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
        await partitions.change_properties(topic("p"), {"a": "b"})
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
    assert not stage.deletions.intents.pending
    assert not stage.namespaces.exists(NAMESPACE)


async def two_brokers() -> tuple[Stage, Stage, RefusesDeletes]:
    """Two brokers on one store, both with a partitioned topic `p` that they have looked at; one may be refused deletes."""
    metadata = RefusesDeletes()
    metadata.deletes_left = 1 << 30
    one = await started(metadata)
    await one.run(one.partitioned.create(topic("p"), 2))
    other = await opened(metadata.another(), one)
    for stage in (one, other):
        assert await stage.run(stage.partitioned.count_or_create(topic("p"), create=False)) == 2
    return one, other, metadata


async def test_partitioned_topic_that_one_broker_deletes_is_gone_for_another() -> None:
    one, other, _ = await two_brokers()
    await one.run(one.partitioned.delete(topic("p"), force=True))
    with pytest.raises(TopicNotFound):
        await other.run(other.partitioned.count_or_create(topic("p"), create=False))
    assert not await other.registry.exists(topic("p"))
    await other.run(other.partitioned.create(topic("p"), 3))
    assert await one.run(one.partitioned.count_or_create(topic("p"), create=False)) == 3


async def test_partitioned_topic_whose_deletion_one_broker_has_begun_is_refused_by_another() -> None:
    one, other, metadata = await two_brokers()
    metadata.deletes_left = 0
    with pytest.raises(MetadataError):
        await one.run(one.partitioned.delete(topic("p"), force=True))
    stored = await metadata.get("/admin/partitioned-topics/shop/orders/persistent/p")
    assert stored is not None
    assert json.loads(stored.value) == {"partitions": 2, "deleted": True}
    for refused in (
        other.partitioned.count_or_create(topic("p"), create=True),
        other.partitioned.create(topic("p"), 2),
        other.partitioned.grow(topic("p"), 4),
        other.registry.get(topic("p").with_partition(0), create=True),
        other.registry.get(topic("p").with_partition(3), create=True),
        other.registry.get(topic("p"), create=True),
    ):
        with pytest.raises(ServiceNotReady, match="is being deleted"):
            await other.run(refused)


async def test_deletion_is_carried_out_by_one_broker_alone_while_it_lives() -> None:
    one, other, metadata = await two_brokers()
    metadata.deletes_left = 0
    for deleting in (
        one.partitioned.delete(topic("p"), force=True),
        one.deletions.namespace(NAMESPACE, force=True),
    ):
        with pytest.raises(MetadataError):
            await one.run(deleting)
    before = await dump(metadata)
    await other.run(other.deletions.resume())
    for refused in (
        other.partitioned.delete(topic("p"), force=True),
        other.deletions.namespace(NAMESPACE, force=True),
    ):
        with pytest.raises(ServiceNotReady, match="Another broker deletes"):
            await other.run(refused)
    assert await dump(metadata) == before
    assert other.deletions.resumed == 0
    metadata.deletes_left = 1 << 30
    await one.run(one.deletions.resume())
    await other.run(other.deletions.resume())
    assert (one.deletions.resumed, other.deletions.resumed) == (2, 0)
    assert not other.deletions.intents.pending
    assert not await metadata.children("/admin/deletions")


async def test_deletion_of_a_broker_that_is_gone_is_finished_by_another() -> None:
    one, other, metadata = await two_brokers()
    metadata.deletes_left = 0
    with pytest.raises(MetadataError):
        await one.run(one.partitioned.delete(topic("p"), force=True))
    await metadata.close()
    await other.run(other.deletions.resume())
    assert other.deletions.resumed == 1
    assert not await other.registry.exists(topic("p"))
    assert not await metadata.children("/admin/deletions")


async def test_broker_that_lost_its_session_leaves_its_deletion_to_another() -> None:
    one, other, metadata = await two_brokers()
    metadata.deletes_left = 1  # The first partition goes.
    with pytest.raises(MetadataError):
        await one.run(one.partitioned.delete(topic("p"), force=True))
    # The other broker is quicker than the news of the end.
    metadata._end_session()
    await other.run(other.deletions.resume())
    await other.run(other.partitioned.create(topic("p"), 2))
    metadata.deletes_left = 1 << 30
    whole = await dump(metadata)
    metadata.expire()
    await one.run(one.deletions.resume())
    assert not one.deletions.intents.pending
    assert await dump(metadata) == whole
    await one.run(one.partitioned.delete(topic("p"), force=True))
    assert not await other.registry.exists(topic("p"))


async def test_partitioned_topic_that_is_made_anew_before_its_intent_goes_stays() -> None:
    one, other, metadata = await two_brokers()
    metadata.deletes_left = 1 << 30
    intent = Intent(DeletedKind.PARTITIONED, str(topic("p")), 1, 2, marked=True)
    await one.deletions.intents.decide_alone(intent)
    await metadata.close()
    # As after a kill before the last write: the intent is there, the topic is another one.
    await other.run(other.deletions.resume())
    assert await other.registry.partitions.count(topic("p")) == 2
    assert not other.deletions.intents.pending


async def test_owner_that_a_late_answer_made_is_not_used_for_ever() -> None:
    stage = await started(MemoryMetadataStore())
    metadata = stage.environment.metadata
    assert isinstance(metadata, MemoryMetadataStore)
    await stage.deletions.intents.decide_alone(Intent(DeletedKind.TENANT, "a", 1))
    metadata._end_session()
    with pytest.raises(ServiceNotReady):
        await stage.deletions.intents.decide_alone(Intent(DeletedKind.TENANT, "b", 1))
    await stage.deletions.intents.decide_alone(Intent(DeletedKind.TENANT, "b", 1))


class LosesAnswers(MemoryMetadataStore):
    """Carries a decision, which changes a node, out, and fails as a store does whose answer was lost."""

    lost = False

    async def put_all(self, puts: Sequence[Write]) -> list[int]:
        versions = await super().put_all(puts)
        if self.lost and any(put.expected != ABSENT for put in puts):
            self.lost = False
            raise MetadataError("the answer was lost")
        return versions


async def test_decision_whose_answer_was_lost_is_carried_out_by_the_broker_that_made_it() -> None:
    metadata = LosesAnswers()
    stage = await started(metadata)
    await stage.run(stage.partitioned.create(topic("p"), 2))
    metadata.lost = True
    with pytest.raises(MetadataError):
        await stage.run(stage.partitioned.delete(topic("p"), force=True))
    await stage.run(stage.deletions.resume())
    assert stage.deletions.resumed == 1
    assert not await stage.registry.exists(topic("p"))


async def test_partition_is_not_used_while_its_deletion_is_perhaps_decided() -> None:
    """The creation of a partition fails, the undo of the topic is stored, and the answer to it is lost."""
    metadata = LosesAnswers()
    stage = await started(metadata)
    made = stage.registry.make
    partition = topic("p").with_partition(0)

    async def fails_at_the_second(
        name: TopicName, store: Callable[[], Coroutine[object, object, None]]
    ) -> None:
        if name.partition == 1:
            metadata.lost = True
            raise MetadataError("the store is away")
        await made(name, store)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(stage.registry, "make", fails_at_the_second)
        with pytest.raises(MetadataError):
            await stage.run(stage.partitioned.create(topic("p"), 2))
    with pytest.raises(ServiceNotReady, match="is being deleted"):
        await stage.run(stage.registry.get(partition, create=True))
    await stage.run(stage.deletions.resume())
    assert not await stage.registry.exists(topic("p"))
    assert not stage.deletions.intents.pending


class RefusesDecisions(MemoryMetadataStore):
    """Makes no transaction, and fails as a store does that is away."""

    refuses = False

    async def put_all(self, puts: Sequence[Write]) -> list[int]:
        if self.refuses:
            raise MetadataError("the store is away")
        return await super().put_all(puts)


@pytest.mark.parametrize("resumed", [False, True])
async def test_deletion_that_was_not_decided_is_forgotten_or_decided_by_the_next_request(
    resumed: bool,
) -> None:
    metadata = RefusesDecisions()
    stage = await started(metadata)
    await stage.run(stage.partitioned.create(topic("p"), 2))
    metadata.refuses = True
    with pytest.raises(MetadataError):
        await stage.run(stage.partitioned.delete(topic("p"), force=True))
    metadata.refuses = False
    if resumed:
        await stage.run(stage.deletions.resume())
        assert stage.deletions.resumed == 0
        assert await stage.run(stage.registry.get(topic("p").with_partition(0), create=False))
    await stage.run(stage.partitioned.delete(topic("p"), force=True))
    assert not await stage.registry.exists(topic("p"))
    assert not stage.deletions.intents.pending


async def test_deletion_that_is_asked_again_after_its_topic_was_made_anew_has_a_mark_of_its_own() -> None:
    """The former deletion lacks its last write alone; the intent is still this broker's."""
    one, other, metadata = await two_brokers()
    metadata.deletes_left = 3  # Two lists and the metadata go, the intent stays.
    with pytest.raises(MetadataError):
        await one.run(one.partitioned.delete(topic("p"), force=True))
    await other.run(other.partitioned.create(topic("p"), 2))
    metadata.deletes_left = 1  # The intent of the former deletion, and then nothing more.
    with pytest.raises(MetadataError):
        await one.run(one.partitioned.delete(topic("p"), force=True))
    with pytest.raises(ServiceNotReady, match="is being deleted"):
        await other.run(other.partitioned.count_or_create(topic("p"), create=False))
    metadata.deletes_left = 1 << 30
    await one.run(one.deletions.resume())
    assert not await other.registry.exists(topic("p"))
    assert not await metadata.children("/admin/deletions")


async def test_deletion_of_a_partitioned_topic_that_another_broker_has_deleted_stores_no_intent() -> None:
    one, other, metadata = await two_brokers()
    await one.run(one.partitioned.delete(topic("p"), force=True))
    with pytest.raises(TopicNotFound):
        await other.run(other.deletions.partitioned(topic("p"), 2))
    assert not await metadata.children("/admin/deletions")
    assert not other.deletions.intents.pending


async def test_intent_under_an_own_name_that_lives_on_in_a_later_session_is_finished() -> None:
    """The answer to the decision was lost, and the session in which it was asked has ended."""
    metadata = LosesAnswers()
    stage = await started(metadata)
    await stage.run(stage.partitioned.create(topic("p"), 2))
    metadata.lost = True
    with pytest.raises(MetadataError):
        await stage.run(stage.partitioned.delete(topic("p"), force=True))
    # The owner's key was made in the new session; the news of the end of the former one come now.
    stage.deletions.intents._session_changed(SessionState.LOST)
    await stage.run(stage.deletions.resume())
    assert stage.deletions.resumed == 1
    assert not await stage.registry.exists(topic("p"))
