"""The memory of topics, producers and consumers that have gone is freed without the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from broker.service.consumer import SubscriptionType
from broker.service.lifecycle.dormancy import Dormancy
from broker.service.lifecycle.inactive_topics import InactiveTopicRounds
from broker.service.topics import ended_topics
from broker.service.topics.ended_topics import KEPT_NS
from foundation.model.position import EARLIEST
from foundation.model.topic_name import parse_topic_name
from tests.broker.service.lifecycle.test_dormancy import MINUTE_MS, Scene
from tests.fakes.stage import EXCLUSIVE, KEY_SHARED, SHARED, TOPIC, Stage

ROOMS = ("broker.service.topics", "broker.service.subscriptions", "broker.managed_ledger")


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def use(stage: Stage, kind: SubscriptionType) -> None:
    """Uses a topic, with a consumer that comes twice."""
    topic = await stage.open()
    await stage.run(topic.subscribing.create("s", EARLIEST))
    await stage.publish(topic, 3)
    for _ in range(2):
        subscription, consumer, _ = await stage.consume(topic, kind, permits=10)
        subscription.remove_consumer(consumer)
        await stage.settle()


def counts() -> dict[str, int]:
    """Counts the objects of the rooms that a topic has parts of, by class."""
    found: dict[str, int] = {}
    for each in gc.get_objects():
        kind = type(each)
        # Classes written in C may have something else there.
        if str(kind.__module__).startswith(ROOMS):
            found[kind.__name__] = found.get(kind.__name__, 0) + 1
    return found


@pytest.mark.parametrize("kind", [SHARED, EXCLUSIVE, KEY_SHARED])
@pytest.mark.parametrize("end", ["unload", "sleep", "delete"])
async def test_closed_topic_is_freed_after_a_while(end: str, kind: SubscriptionType) -> None:
    stage = Stage()
    await stage.run(stage.registry.unload((await stage.open("persistent://public/default/other")).name))
    before = counts()
    await use(stage, kind)
    name = parse_topic_name(TOPIC)
    if end == "unload":
        await stage.run(stage.registry.unload(name))
    elif end == "delete":
        await stage.run(stage.deletions.topic(name, force=True))
    else:
        await stage.run(stage.registry.fall_asleep(await stage.open(), -1))
        stage.registry.dormant.drop(TOPIC)
    await stage.settle()
    assert counts().get("PersistentTopic", 0) == before["PersistentTopic"] + 1
    stage.now_ns += KEPT_NS
    assert len([*stage.registry.ended.take_apart()]) == 2
    await stage.fire()
    after = counts()
    assert {name: number for name, number in after.items() if number > before.get(name, 0)} == {}


async def test_memory_of_closed_topics_is_freed_although_no_other_topic_closes() -> None:
    stage = Stage()
    dormancy = Dormancy(
        stage.registry, InactiveTopicRounds(stage.registry, stage.deletions, lambda: stage.now_ns)
    )
    topic = await stage.open()
    await stage.run(stage.registry.unload(topic.name))
    stage.now_ns += KEPT_NS - 1
    await stage.run(dormancy.run())
    assert hasattr(topic, "ledger"), "work that began before may go on with it"
    stage.now_ns += 1
    await stage.run(dormancy.run())
    assert not hasattr(topic, "ledger")


async def expire_dormant(scene: Scene, count: int, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Lets messages of so many dormant topics expire; returns the topics that were open for that."""
    for number in range(count):
        topic = await scene.open(f"{TOPIC}-{number}")
        await scene.run(topic.subscribing.create("s", EARLIEST))
        await scene.publish(topic, 3)
    await scene.later(0)
    await scene.later(10_000)
    assert scene.registry.dormant.count == count
    await scene.later(KEPT_NS // 1_000_000)
    opened: list[object] = []
    had_no_user = scene.registry.ended.had_no_user

    def noted(topic: object) -> None:
        opened.append(topic)
        had_no_user(topic)  # type: ignore[arg-type]

    monkeypatch.setattr(scene.registry.ended, "had_no_user", noted)
    await scene.later(10 * MINUTE_MS)
    return opened


async def test_topics_that_were_opened_for_what_is_due_alone_are_kept_by_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Thousands in a second come by, each with 4.7 KB: by time alone they would take half a GiB."""
    monkeypatch.setattr(ended_topics, "UNUSED_MAX", 2)
    scene = Scene(ttl_s=60)
    opened = await expire_dormant(scene, 5, monkeypatch)
    assert scene.registry.dormant.backlog == 0
    assert [hasattr(topic, "ledger") for topic in opened] == [False, False, False, True, True]
    await scene.later(KEPT_NS // 1_000_000)
    assert not any(hasattr(topic, "ledger") for topic in opened)


async def test_topic_that_a_client_has_had_stays_whole_for_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ended_topics, "UNUSED_MAX", 0)
    scene = Scene(ttl_s=60)
    await scene.with_backlog()
    topic = await scene.open()
    await scene.sleep()
    await scene.later(KEPT_NS // 1_000_000 - 1)
    assert hasattr(topic, "ledger")
    await scene.later(1)
    assert not hasattr(topic, "ledger")
