"""Due topics that take long, because a bookie does not answer, hold up no others."""

from __future__ import annotations

import asyncio

import pytest

from broker.service.lifecycle import dormancy
from broker.service.topics.topic import Topic
from foundation.model.position import EARLIEST
from foundation.model.topic_name import TopicName
from tests.broker.service.lifecycle.test_dormancy import Scene
from tests.fakes.stage import TOPIC


@pytest.mark.parametrize("per_run", [2 * dormancy.AT_ONCE, dormancy.AT_ONCE])
async def test_topics_whose_bookie_does_not_answer_hold_up_no_others_and_no_later_run(
    per_run: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dormancy, "SLOW_S", 0)
    monkeypatch.setattr(dormancy, "DUE_PER_RUN", per_run)
    scene, answers, waiting = Scene(ttl_s=600), asyncio.Event(), list[TopicName]()
    for number in range(2 * dormancy.AT_ONCE):
        topic = await scene.open(f"{TOPIC}-{number}")
        await scene.run(topic.subscribing.create("s", EARLIEST))
        await scene.publish(topic, 3)
    for _ in range(2):
        await scene.later(10_000)
    assert scene.registry.dormant.count == 2 * dormancy.AT_ONCE
    scene.wall_ms += 600_000
    scene.now_ns += 600 * 10**9
    get = scene.registry.get

    async def late(name: TopicName, *, create: bool, by_admin: bool = False) -> Topic:
        if len(waiting) < dormancy.AT_ONCE:
            waiting.append(name)
            await answers.wait()
        return await get(name, create=create, by_admin=by_admin)

    scene.registry.get = late  # type: ignore[method-assign]
    runs = []
    for _ in range(2):
        runs.append(asyncio.ensure_future(scene.dormancy.run()))
        await scene.settle()
    assert scene.registry.dormant.backlog == 3 * dormancy.AT_ONCE
    answers.set()
    for run in runs:
        await scene.run(run)
    assert scene.registry.dormant.backlog == 0


async def test_no_more_topics_are_opened_while_many_wait_and_a_stop_ends_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dormancy, "SLOW_S", 0)
    monkeypatch.setattr(dormancy, "SLOW_MAX", 2 * dormancy.AT_ONCE)
    scene, asked, ended = Scene(), list[str](), list[str]()

    async def never(name: TopicName, **options: bool) -> None:
        asked.append(str(name))
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(str(name))

    scene.registry.get = never  # type: ignore[method-assign, assignment]
    names = [f"{TOPIC}-{number}" for number in range(5 * dormancy.AT_ONCE)]
    due = asyncio.ensure_future(scene.dormancy.do_due(names))
    await scene.settle()
    assert asked == names[: 2 * dormancy.AT_ONCE]
    due.cancel()
    await scene.settle()
    assert due.cancelled()
    assert sorted(ended) == sorted(asked)
