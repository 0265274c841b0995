"""Deletions of other brokers: what they have finished refuses nothing, and what they have left takes nothing new."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import Put, Write
from broker.managed_ledger.managed_ledger_info import managed_ledger_key
from broker.service.lifecycle.deletion import steps
from broker.service.lifecycle.deletion.intents import DeletedKind, Intent
from broker.service.policies.topic_events import events_topic
from foundation.model.errors import BrokerError, MetadataError, ServiceNotReady
from tests.broker.service.lifecycle.deletion.test_deletion_races import HoldsDeletes, started, two_brokers
from tests.deletion.kinds import NAMESPACE, topic


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
