"""A defect that one topic meets costs this topic its round, and the topics behind it get theirs."""

from __future__ import annotations

import pytest

from broker.service.lifecycle import hole_rounds
from broker.service.lifecycle.hole_rounds import HoleRounds
from broker.service.lifecycle.rounds import TopicRounds
from broker.service.subscriptions.backlog.holes import next_holes, serving_dispatcher
from broker.service.subscriptions.subscription import Subscription
from broker.service.topics.persistent_topic import PersistentTopic
from tests.broker.service.lifecycle.hole_play import PERIOD_S, play
from tests.fakes.stage import SHARED, TOPIC, Stage


def tracebacks(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines of rounds that have a traceback."""
    lines = [line.getMessage() for line in caplog.records if line.exc_info is not None]
    return [line for line in lines if "next round" in line]


async def test_work_goes_on_with_the_next_topic(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    for name in "abc":
        await stage.open(TOPIC + name)
    reached = []

    async def work(topic: PersistentTopic) -> None:
        reached.append(str(topic.name)[-1])
        if reached[-1] in "ab":
            raise ZeroDivisionError("by the test")

    await stage.run(TopicRounds(stage.registry, "tests", work).run())
    assert reached == ["a", "b", "c"]
    (line,) = tracebacks(caplog)
    assert f"tests of {TOPIC}a, and of 1 more failed" in line


async def test_looks_for_lost_entries_go_on_with_the_next_topic(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(hole_period_s=PERIOD_S)
    for name in "ab":
        await stage.consume(await stage.open(TOPIC + name), SHARED)
    reached = []

    def serving(subscription: Subscription) -> object:
        reached.append(str(subscription.topic.name)[-1])
        if reached[-1] == "a":
            raise ZeroDivisionError("by the test")
        return serving_dispatcher(subscription)

    monkeypatch.setattr(hole_rounds, "serving_dispatcher", serving)
    rounds = HoleRounds(stage.registry, lambda: stage.now_ns)
    await stage.run(rounds.run())
    await stage.run(rounds.run())
    assert reached == ["a", "b"], "the second run was not due"
    assert len(tracebacks(caplog)) == 1


async def test_search_that_fails_begins_anew_in_a_later_round(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = await play()
    await one.acknowledge(*one.got())
    failures = [ZeroDivisionError("by the test")]

    def holes(*asked: object) -> object:
        if failures:
            raise failures.pop()
        return next_holes(*asked)  # type: ignore[arg-type]

    monkeypatch.setattr(hole_rounds, "next_holes", holes)
    await one.rounds.after(PERIOD_S + 200)
    assert not failures
    assert one.got()[6:] == [0, 1, 2, 3]
    (line,) = tracebacks(caplog)
    assert "holes of subscription" in line
