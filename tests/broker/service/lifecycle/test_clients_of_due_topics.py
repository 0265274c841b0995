"""A client that comes while something is done at a dormant topic keeps its topic."""

from __future__ import annotations

import asyncio

import pytest

from foundation.model.topic_name import parse_topic_name
from tests.broker.service.lifecycle.test_dormancy import MINUTE_MS, Scene
from tests.fakes.stage import TOPIC

NAME = parse_topic_name(TOPIC)


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
    topic = await scene.run(scene.registry.get(NAME, create=True))
    await scene.run(run)  # As a schema that the client waits for.
    assert not topic.closed
    await scene.producer(topic)  # type: ignore[arg-type]


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
