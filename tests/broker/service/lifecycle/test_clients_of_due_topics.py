"""A request keeps its topic awake, also one that comes while something is done at a dormant topic."""

from __future__ import annotations

import asyncio

import pytest

from broker.managed_ledger.managed_ledger_info import SHADOW_SOURCE
from broker.service.topics.new_topic import create_shadow
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic import hold
from foundation.model.errors import NotAllowed
from foundation.model.topic_name import parse_topic_name
from tests.broker.service.lifecycle.test_dormancy import MINUTE_MS, SHADOW, Scene
from tests.fakes.stage import TOPIC

NAME = parse_topic_name(TOPIC)


async def test_topic_does_not_fall_asleep_under_a_request_that_takes_longer_than_its_idle_time() -> None:
    scene = Scene()
    await scene.with_backlog()
    answered = asyncio.Event()

    async def clear_backlog() -> None:
        topic = await scene.registry.get(NAME, create=False)
        assert isinstance(topic, PersistentTopic)
        hold(topic)
        await answered.wait()  # As a search for a time in another partition.
        topic.subscriptions["s"].acknowledge_through(topic.ledger.last_confirmed)

    request = asyncio.ensure_future(clear_backlog())
    for _ in range(4):
        await scene.later(10_000)
        assert TOPIC in scene.registry.topics
    answered.set()
    await scene.run(request)
    await scene.later(10_000)
    await scene.sleep()
    assert scene.backlog() == 0


async def test_requests_that_end_by_an_error_hold_their_topic_no_longer() -> None:
    scene = Scene()
    await scene.with_backlog()
    topic = await scene.open()

    async def refused() -> None:
        hold(topic)
        hold(topic)
        raise NotAllowed("refused")

    with pytest.raises(NotAllowed):
        await scene.run(refused())
    waiting = asyncio.ensure_future(hold_for_ever(topic))
    await scene.settle()
    assert topic.requests == 1
    waiting.cancel()
    await scene.settle()
    assert topic.requests == 0
    await scene.sleep()


@pytest.mark.parametrize("comes_after", range(8))
async def test_request_that_has_the_topic_keeps_it_until_its_client_is_there(comes_after: int) -> None:
    """The numbers of turns lie before, during and after the opening of the topic for its expiry."""
    scene = Scene(ttl_s=60)
    await scene.with_backlog()
    await scene.sleep()
    scene.wall_ms += 6 * MINUTE_MS
    scene.now_ns += 6 * MINUTE_MS * 1_000_000
    run = asyncio.ensure_future(scene.dormancy.run())
    for _ in range(comes_after):
        await asyncio.sleep(0)
    answered = asyncio.Event()

    async def produce() -> None:
        topic = await scene.registry.get(NAME, create=True)
        assert isinstance(topic, PersistentTopic)
        hold(topic)
        await answered.wait()  # As for a schema that is written.
        await scene.producer(topic)

    request = asyncio.ensure_future(produce())
    await scene.run(run)
    for _ in range(3):
        await scene.later(10_000)
    answered.set()
    await scene.run(request)


async def test_idle_topic_that_is_asked_for_just_before_it_falls_asleep_stays_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    await scene.with_backlog()
    await scene.later(0)
    ready = scene.dormancy._ready_to_sleep

    async def then_a_request_comes() -> object:
        found = await ready()
        assert found
        await scene.registry.get(NAME, create=False)
        return found

    monkeypatch.setattr(scene.dormancy, "_ready_to_sleep", then_a_request_comes)
    await scene.later(10_000)
    assert TOPIC in scene.registry.topics
    monkeypatch.undo()
    await scene.later(10_000)
    await scene.sleep()


async def test_source_that_is_asked_for_while_its_shadow_falls_asleep_stays_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    await scene.with_backlog()
    await scene.run(create_shadow(scene.registry, parse_topic_name(SHADOW), {SHADOW_SOURCE: TOPIC}))
    fall_asleep, asleep = scene.registry.fall_asleep, list[str]()

    async def then_a_request_comes(topic: PersistentTopic, oldest_ms: int) -> None:
        await fall_asleep(topic, oldest_ms)
        asleep.append(str(topic.name))
        await scene.registry.get(NAME, create=False)

    monkeypatch.setattr(scene.registry, "fall_asleep", then_a_request_comes)
    await scene.later(0)
    await scene.later(10_000)
    await scene.settle()
    assert asleep == [SHADOW]
    assert set(scene.registry.topics) == {TOPIC, SHADOW}
    monkeypatch.undo()
    await scene.later(10_000)
    await scene.sleep()


async def test_source_that_is_unloaded_while_its_shadow_falls_asleep_is_closed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    await scene.with_backlog()
    await scene.run(create_shadow(scene.registry, parse_topic_name(SHADOW), {SHADOW_SOURCE: TOPIC}))
    fall_asleep = scene.registry.fall_asleep

    async def then_the_source_is_unloaded(topic: PersistentTopic, oldest_ms: int) -> None:
        await fall_asleep(topic, oldest_ms)
        await scene.registry.unload(NAME)

    monkeypatch.setattr(scene.registry, "fall_asleep", then_the_source_is_unloaded)
    await scene.later(0)
    await scene.later(10_000)
    await scene.settle()
    assert scene.registry.topics == {}
    assert [name for name, _ in scene.registry.dormant] == [SHADOW]


async def hold_for_ever(topic: PersistentTopic) -> None:
    hold(topic)
    await asyncio.Event().wait()
