"""Unused topics are deleted, those in use stay, and nothing of a deleted one is left."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.managed_ledger.managed_ledger_info import ROOT as LEDGERS_ROOT
from broker.managed_ledger.settings import ManagedLedgerSettings
from broker.service.lifecycle.inactive_topics import InactiveTopicRounds
from broker.service.policies import table
from broker.service.settings import ServiceSettings
from broker.service.topics.ended_topics import KEPT_NS
from foundation.model.topic_name import TopicName, parse_topic_name
from foundation.value import Json
from tests.fakes.stage import SHARED, TOPIC, Stage

S = 1_000_000_000
CAUGHT_UP = "delete_when_subscriptions_caught_up"


class Scene(Stage):
    """A stage whose unused topics are looked for."""

    def __init__(self, *, kept: frozenset[str] = frozenset(), **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self.inactive = InactiveTopicRounds(self.registry, self.deletions, lambda: self.now_ns, kept)

    async def look_after(self, seconds: int) -> set[str]:
        """Returns the open topics once so much time has passed."""
        self.now_ns += seconds * S
        await self.run(self.inactive.look())
        return set(self.registry.topics)


async def test_unused_topic_is_deleted_with_its_messages_policies_and_cursors() -> None:
    scene = Scene()
    topic = await scene.open()
    await scene.publish(topic, 3)
    await scene.run(scene.namespaces.set_topic_policy(TOPIC, table.MAX_PRODUCERS.topic_name, 3))
    subscription, consumer, _ = await scene.consume(topic, SHARED)
    assert await scene.look_after(60) == {TOPIC}
    subscription.remove_consumer(consumer)
    assert await scene.look_after(60) == {TOPIC}, "its subscription keeps it"
    await scene.run(topic.subscribing.delete(subscription, None, force=False))
    assert await scene.look_after(59) == {TOPIC}
    assert await scene.look_after(1) == set()
    assert await scene.run(scene.metadata.children(f"{LEDGERS_ROOT}/public/default/persistent")) == []
    assert scene.namespaces.topic_policy(TOPIC, table.MAX_PRODUCERS.topic_name) is None
    again = await scene.open()
    assert again.ledger.ledgers.entries == 0


async def test_producer_keeps_a_topic() -> None:
    scene = Scene()
    scene.now_ns += 1000 * S
    await scene.open()
    assert await scene.look_after(59) == {TOPIC}, "its time begins when it is opened"
    topic = await scene.open()
    producer = await scene.producer(topic)
    assert await scene.look_after(600) == {TOPIC}
    await topic.remove_producer(producer)
    assert await scene.look_after(59) == {TOPIC}
    assert await scene.look_after(1) == set()


async def test_producer_that_came_and_left_between_two_looks_has_used_the_topic() -> None:
    scene = Scene()
    topic = await scene.open()
    assert await scene.look_after(59) == {TOPIC}
    producer = await scene.producer(topic)
    scene.now_ns += 30 * S
    await topic.remove_producer(producer)
    assert await scene.look_after(59) == {TOPIC}
    assert await scene.look_after(1) == set()


async def test_mode_caught_up_deletes_a_topic_whose_subscriptions_have_read_everything() -> None:
    scene = Scene(inactive_mode=CAUGHT_UP, inactive_after_s=5)
    topic = await scene.open()
    await scene.publish(topic, 1)
    subscription, consumer, port = await scene.consume(topic, SHARED, permits=10)
    await scene.publish(topic, 1)
    subscription.acknowledge(consumer, port.keys[:1])
    assert await scene.look_after(60) == {TOPIC}
    subscription.remove_consumer(consumer)
    assert await scene.look_after(60) == {TOPIC}, "its backlog keeps it"
    subscription.cursor.acknowledge(port.keys)
    await scene.settle()
    assert await scene.look_after(5) == set()


@pytest.mark.parametrize("policy", [None, True])
async def test_unused_topic_is_closed_and_keeps_everything_when_the_setting_asks(policy: bool | None) -> None:
    """A policy that deletes does not outrank it: closing was chosen to keep the messages."""
    scene = Scene(delete_inactive=False, close_inactive=True)
    topic = await scene.open()
    if policy:
        value: Json = {
            "deleteWhileInactive": True,
            "maxInactiveDurationSeconds": 60,
            "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
        }
        await scene.run(scene.namespaces.set_policy("public/default", table.INACTIVE.name, value))
    await scene.publish(topic, 3)
    subscription, consumer, _ = await scene.consume(topic, SHARED)
    subscription.remove_consumer(consumer)
    assert await scene.look_after(600) == {TOPIC}, "its subscription keeps it open"
    await scene.run(topic.subscribing.delete(subscription, None, force=False))
    assert await scene.look_after(59) == {TOPIC}
    assert await scene.look_after(1) == set()
    assert topic.closed
    again = await scene.open()
    assert again is not topic
    assert again.ledger.ledgers.entries == 3


async def test_policy_with_the_other_mode_keeps_its_topics_open() -> None:
    scene = Scene(delete_inactive=False, close_inactive=True)
    value: Json = {
        "deleteWhileInactive": False,
        "maxInactiveDurationSeconds": 1,
        "inactiveTopicDeleteMode": CAUGHT_UP,
    }
    await scene.open()
    await scene.run(scene.namespaces.set_policy("public/default", table.INACTIVE.name, value))
    assert await scene.look_after(600) == {TOPIC}


async def test_topic_without_storage_ends_with_its_last_client() -> None:
    scene = Scene()
    name = "non-persistent://public/default/n"
    topic = await scene.open(name)
    await scene.consume(topic, SHARED)
    assert await scene.look_after(600) == {name}
    for subscription in list(topic.subscriptions.values()):
        subscription.disconnect()
    assert await scene.look_after(60) == set()


@pytest.mark.parametrize(
    ("key", "owner"), [(table.INACTIVE.name, "public/default"), (table.INACTIVE.topic_name, TOPIC)]
)
async def test_policy_of_a_namespace_or_topic_outranks_the_broker(key: str, owner: str) -> None:
    scene = Scene()
    await scene.open()
    await scene.open(TOPIC + "2")
    set_policy: Callable[[str, str, Json], object] = (
        scene.namespaces.set_topic_policy if owner == TOPIC else scene.namespaces.set_policy
    )
    await scene.run(set_policy(owner, key, {"deleteWhileInactive": False}))  # type: ignore[arg-type]
    kept = {TOPIC} if owner == TOPIC else {TOPIC, TOPIC + "2"}
    assert await scene.look_after(6000) == kept
    # A mode that the policy leaves out is the broker's.
    await scene.run(
        set_policy(owner, key, {"deleteWhileInactive": True, "maxInactiveDurationSeconds": 1})  # type: ignore[arg-type]
    )
    assert await scene.look_after(1) == set()


async def test_broker_keeps_its_own_topics_system_topics_and_all_when_switched_off() -> None:
    own, system = TOPIC + "-counts", "persistent://public/default/__change_events"
    scene = Scene(kept=frozenset((own,)))
    for name in (own, system, TOPIC):
        await scene.open(name)
    assert await scene.look_after(600) == {own, system}
    await scene.open()
    scene.registry.reconfigure(ManagedLedgerSettings(), ServiceSettings(delete_inactive=False))
    assert await scene.look_after(600) == {own, system, TOPIC}


@pytest.mark.parametrize("whole", [False, True])
async def test_last_partition_takes_the_partitioned_topic_with_it_when_so_set(whole: bool) -> None:
    scene = Scene(delete_inactive_partitioned_metadata=whole)
    await scene.namespaces.open()
    name = parse_topic_name(TOPIC)
    await scene.run(scene.partitioned.create(name, 2))
    await scene.run(scene.namespaces.set_topic_policy(TOPIC, table.MAX_PRODUCERS.topic_name, 3))
    await scene.open(f"{TOPIC}-partition-0")
    producer = await scene.producer(await scene.open(f"{TOPIC}-partition-1"))
    assert await scene.look_after(60) == {f"{TOPIC}-partition-1"}
    assert await scene.registry.partitions.count(name) == 2
    await producer.topic.remove_producer(producer)
    assert await scene.look_after(60) == set()
    assert await scene.run(scene.registry.partitions.count(name)) == (0 if whole else 2)
    assert (scene.namespaces.topic_policy(TOPIC, table.MAX_PRODUCERS.topic_name) is None) == whole


async def test_looks_come_at_the_frequency_of_the_settings() -> None:
    scene = Scene(inactive_frequency_s=10, inactive_after_s=100)
    due = [scene.inactive.due]
    scene.now_ns += 10 * S
    due.append(scene.inactive.due)
    await scene.look_after(0)
    assert [*due, scene.inactive.due] == [False, True, False]


async def test_topic_that_is_closed_and_taken_apart_during_a_look_does_not_end_it() -> None:
    scene = Scene()
    names = [f"{TOPIC}-{number}" for number in range(4)]
    for name in names:
        await scene.open(name)
    delete = scene.deletions.topic

    async def meanwhile(name: TopicName, *, force: bool) -> None:
        if str(name) == names[0]:
            await scene.registry.unload(parse_topic_name(names[2]))
            scene.now_ns += KEPT_NS
            for _ in scene.registry.ended.take_apart():
                pass
        await delete(name, force=force)

    scene.deletions.topic = meanwhile  # type: ignore[method-assign]
    assert await scene.look_after(60) == set()
    assert await scene.registry.is_stored(parse_topic_name(names[2])), "it was not open any more"
    assert not await scene.registry.is_stored(parse_topic_name(names[3]))
