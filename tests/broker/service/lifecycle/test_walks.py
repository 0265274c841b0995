"""Walks over many topics: the loop serves others after ITEMS_MAX topics at most, or after some of a policy's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from broker.service.lifecycle import namespace_topics
from broker.service.lifecycle.hole_rounds import HoleRounds
from broker.service.lifecycle.inactive_topics import InactiveTopicRounds
from broker.service.lifecycle.rounds import TopicRounds
from broker.service.successor import Successor
from broker.service.topics.topic_registry import CLOSINGS_AT_ONCE
from foundation.loop.slices import ITEMS_MAX
from foundation.model.errors import MetadataError
from foundation.model.topic_name import TopicName, parse_topic_name
from tests.fakes.stage import TOPIC, Stage

TOPICS = 3 * ITEMS_MAX
NAMESPACE = "public/default"


async def look_for_inactive(stage: Stage) -> None:
    await InactiveTopicRounds(stage.registry, stage.deletions, lambda: stage.now_ns).look()


WALKS: dict[str, Callable[[Stage], Awaitable[object]]] = {
    "a policy of the namespace": lambda stage: stage.registry.namespace_changed(NAMESPACE),
    "the names of the namespace": lambda stage: stage.registry.names(NAMESPACE),
    "the names that are open": lambda stage: stage.registry.names(NAMESPACE, persistent=False),
    "unsubscribe": lambda stage: namespace_topics.unsubscribe(stage.registry, NAMESPACE, None, "s"),
    "rounds": lambda stage: TopicRounds(stage.registry, "work", lambda topic: None).run(),
    "rounds for lost entries": lambda stage: HoleRounds(stage.registry, lambda: 2 * stage.now_ns).run(),
    "rounds for unused topics": look_for_inactive,
}


async def turns_of(work: Awaitable[object]) -> int:
    """Returns how many turns the loop has got during the work."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.ensure_future(count())
    await work
    counting.cancel()
    return turns


@pytest.mark.parametrize("walk", WALKS)
async def test_walk_over_many_topics_lets_the_loop_serve_others(walk: str) -> None:
    stage = Stage()
    await stage.open()
    for number in range(TOPICS):
        # Not stored, so that they cost nothing besides the walk.
        name = parse_topic_name(f"non-persistent://{NAMESPACE}/n{number}")
        await stage.registry.get(name, create=True)
    turns = await turns_of(stage.run(WALKS[walk](stage)))  # type: ignore[arg-type]
    assert turns >= TOPICS // ITEMS_MAX


async def test_stop_closes_some_topics_at_a_time() -> None:
    stage = Stage()
    topics = [await stage.open(f"{TOPIC}-{number}") for number in range(2 * CLOSINGS_AT_ONCE + 1)]
    most, close = 0, stage.registry._close_topic

    def closed(topic: object) -> asyncio.Task[None]:
        nonlocal most
        task = close(topic)  # type: ignore[arg-type]
        most = max(most, len(stage.registry._closing))
        return task

    stage.registry._close_topic = closed  # type: ignore[method-assign]
    await stage.run(stage.registry.close())
    assert all(topic.closed for topic in topics)
    assert most == CLOSINGS_AT_ONCE


async def test_unload_closes_all_topics_although_some_cannot_be_stored() -> None:
    stage = Stage()
    topics = [await stage.open(f"{TOPIC}-{number}") for number in range(CLOSINGS_AT_ONCE + 1)]
    unload = stage.registry.unload

    async def unloaded(name: TopicName, successor: Successor | None = None) -> None:
        await unload(name, successor)
        if name == topics[0].name:
            raise MetadataError("no lease")

    stage.registry.unload = unloaded  # type: ignore[method-assign]
    with pytest.raises(MetadataError, match="no lease"):
        await stage.run(namespace_topics.unload(stage.registry, NAMESPACE))
    assert all(topic.closed for topic in topics)
