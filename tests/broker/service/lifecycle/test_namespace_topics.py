"""Work on all topics of a namespace reaches each of them, whatever one of them keeps for the broker or refuses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from broker.service.internal_cursors import COMPACTION_CURSOR
from broker.service.lifecycle import namespace_topics
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic import Topic
from foundation.model.errors import NotAllowed, PersistenceError, TopicNotFound
from foundation.model.position import EARLIEST
from foundation.model.topic_name import TopicName
from tests.fakes.stage import TOPIC, Stage

NAMESPACE = "public/default"
WORK: dict[str, Callable[[Stage], Awaitable[None]]] = {
    "clear": lambda stage: namespace_topics.clear_backlog(stage.registry, NAMESPACE),
    "clear one": lambda stage: namespace_topics.clear_backlog(stage.registry, NAMESPACE, None, "s"),
    "unsubscribe": lambda stage: namespace_topics.unsubscribe(stage.registry, NAMESPACE, None, "s"),
}


async def with_backlogs(stage: Stage) -> list[PersistentTopic]:
    """Returns three topics, each with a subscription that has two messages to acknowledge."""
    topics = [await stage.open(f"{TOPIC}-{letter}") for letter in "abc"]
    for topic in topics:
        await stage.run(topic.subscribing.create("s", EARLIEST))
        await stage.publish(topic, 2)
    return topics


def backlog(topic: PersistentTopic) -> int:
    """Returns what is left of the subscription, 0 where it is gone."""
    return topic.subscriptions["s"].cursor.backlog if "s" in topic.subscriptions else 0


async def test_clear_backlog_leaves_the_position_of_compactions_alone() -> None:
    stage = Stage()
    topics = await with_backlogs(stage)
    horizon = await stage.run(topics[0].compaction_cursor())
    before = horizon.mark_delete_position
    await stage.run(namespace_topics.clear_backlog(stage.registry, NAMESPACE))
    assert [backlog(topic) for topic in topics] == [0, 0, 0]
    assert horizon.mark_delete_position == before
    with pytest.raises(NotAllowed, match="the broker's own"):
        await stage.run(namespace_topics.clear_backlog(stage.registry, NAMESPACE, None, COMPACTION_CURSOR))
    assert horizon.mark_delete_position == before


@pytest.mark.parametrize("work", WORK)
async def test_work_reaches_the_topics_after_one_that_cannot_be_opened(
    work: str, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage()
    topics = await with_backlogs(stage)
    get = stage.registry.get

    async def refusing(name: TopicName, *, create: bool, by_admin: bool = False) -> Topic:
        if name == topics[0].name:
            raise PersistenceError("its ledger is damaged")
        if name == topics[1].name:
            raise TopicNotFound("deleted meanwhile")
        return await get(name, create=create, by_admin=by_admin)

    stage.registry.get = refusing  # type: ignore[method-assign]
    with pytest.raises(PersistenceError, match="its ledger is damaged"):
        await stage.run(WORK[work](stage))  # type: ignore[arg-type]
    assert [backlog(topic) for topic in topics] == [2, 2, 0]
    (line,) = [one.message for one in caplog.records if "failed for" in one.message]
    assert f"failed for 1 topics, the first is {topics[0].name}: its ledger is damaged" in line
