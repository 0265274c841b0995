"""A threshold for compaction acts on dormant topics: those that have reached it are opened, and stay open."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from broker.compose.background_tasks import BackgroundTasks
from broker.compose.ledger_upkeep import LedgerUpkeep
from broker.managed_ledger.settings import ManagedLedgerSettings
from broker.service.compaction.topic_compaction import CompactionStatus
from broker.service.policies import table
from broker.service.settings import ServiceSettings
from broker.service.topics.dormant_topic import NEVER
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.model.position import EARLIEST
from tests.broker.service.compaction.test_topic_compaction import compact, publish, values
from tests.broker.service.lifecycle.test_dormant_filling import NAMESPACE, Scene
from tests.fakes.stage import TOPIC

OTHER = TOPIC + "-2"
KEYED = values(*((f"k{number % 3}", b"%d" % number) for number in range(9)))


async def keyed(scene: Scene, name: str = TOPIC, times: int = 1) -> PersistentTopic:
    """Opens a topic with nine messages of three keys, so many times, and a subscription."""
    topic = await scene.open(name)
    await scene.run(topic.subscribing.create("s", EARLIEST))
    for _ in range(times):
        await publish(scene, topic, *KEYED)
    return topic


async def asleep(scene: Scene) -> None:
    """Lets all topics fall asleep."""
    await scene.later(0)
    await scene.later(10_000)
    assert not scene.registry.topics


async def minute(scene: Scene) -> None:
    """Lets so much time pass, in which the broker looks at its topics, for compactions too."""
    await scene.later(60_000)
    upkeep = LedgerUpkeep(scene.registry, scene.environment, BackgroundTasks())
    for topic in list(scene.registry.topics.values()):
        assert isinstance(topic, PersistentTopic)
        upkeep._compact(topic)
        await scene.run(topic.compaction.wait())
    await scene.settle()


def statuses(scene: Scene) -> dict[str, CompactionStatus]:
    """The state of the compaction of each open topic."""
    found = {}
    for name, topic in scene.registry.topics.items():
        assert isinstance(topic, PersistentTopic)
        found[name] = topic.compaction.status
    return found


def size_of(scene: Scene, name: str = TOPIC) -> int:
    """The bytes of a topic, which must be dormant."""
    return scene.record(name).size_bytes


async def of_namespace(scene: Scene, threshold_bytes: int) -> None:
    await scene.run(scene.namespaces.set_policy(NAMESPACE, table.COMPACTION.name, threshold_bytes))
    await scene.run(scene.registry.namespace_changed(NAMESPACE))


async def of_topic(scene: Scene, threshold_bytes: int) -> None:
    key = table.COMPACTION.topic_name
    for name in (TOPIC, OTHER):
        await scene.run(scene.namespaces.set_topic_policy(name, key, threshold_bytes))
        await scene.run(scene.registry.topic_changed(name))


async def of_broker(scene: Scene, threshold_bytes: int) -> None:
    settings = ServiceSettings(
        dormant_after_s=10, delete_inactive=False, compaction_threshold_bytes=threshold_bytes
    )
    scene.registry.reconfigure(ManagedLedgerSettings(), settings)


@pytest.mark.parametrize("set_threshold", [of_namespace, of_topic, of_broker])
async def test_dormant_topic_that_has_reached_a_new_threshold_is_compacted_and_stays_open(
    set_threshold: Callable[[Scene, int], Awaitable[None]],
) -> None:
    scene = Scene()
    await keyed(scene, times=2)
    await keyed(scene, OTHER)
    await asleep(scene)
    await set_threshold(scene, size_of(scene, OTHER))
    for _ in range(3):
        await minute(scene)
    assert statuses(scene) == {TOPIC: CompactionStatus.SUCCESS}
    assert scene.record(OTHER).due_ns == NEVER, "nothing opens a topic that has not reached it"


async def test_topic_falls_asleep_until_it_reaches_its_threshold() -> None:
    scene = Scene()
    await keyed(scene)
    await asleep(scene)
    await of_namespace(scene, size_of(scene))
    await scene.open(TOPIC)
    await asleep(scene)
    assert scene.record().due_ns == NEVER
    topic = await scene.open(TOPIC)
    await publish(scene, topic, *KEYED)
    for _ in range(3):
        await minute(scene)
    assert statuses(scene) == {TOPIC: CompactionStatus.SUCCESS}


async def test_dormant_topic_without_a_threshold_stays_dormant() -> None:
    scene = Scene()
    await keyed(scene)
    await asleep(scene)
    loads = scene.registry.loads
    await of_namespace(scene, 0)
    await minute(scene)
    assert scene.registry.loads == loads
    assert scene.record().due_ns == NEVER


async def test_threshold_acts_on_a_topic_that_nobody_opens_after_a_start() -> None:
    scene = Scene(compaction_threshold_bytes=1)
    await keyed(scene)
    scene = await scene.started(compaction_threshold_bytes=1)
    assert scene.registry.dormant.get(TOPIC) is not None
    await minute(scene)
    assert statuses(scene) == {TOPIC: CompactionStatus.SUCCESS}


async def test_bytes_that_are_compacted_do_not_count_after_a_start() -> None:
    scene = Scene()
    topic = await keyed(scene)
    assert await compact(scene, topic) is CompactionStatus.SUCCESS
    await publish(scene, topic, *KEYED[:3])
    uncompacted, in_all = topic.compaction.backlog_bytes, topic.ledger.ledgers.size_bytes
    assert 0 < uncompacted < in_all
    scene = await scene.started(compaction_threshold_bytes=uncompacted)
    await minute(scene)
    assert scene.registry.loads == 0
    await of_broker(scene, uncompacted - 1)
    await minute(scene)
    assert statuses(scene) == {TOPIC: CompactionStatus.SUCCESS}
