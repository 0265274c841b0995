"""A topic that falls asleep while the broker closes all topics, and many records: how they are frozen and forgotten."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from itertools import chain

import pytest

from broker.service.topics import dormant_topics, topic_registry
from broker.service.topics.dormant_topic import NOT_KNOWN, DormantTopic
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.loop.slices import ITEMS_MAX
from foundation.model.topic_name import parse_topic_name
from foundation.units import NS_PER_SECOND
from tests.fakes.stage import TOPIC, Stage


async def test_topic_that_falls_asleep_during_the_stop_is_closed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_registry, "CLOSINGS_AT_ONCE", 1)
    stage, defects = Stage(), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: defects.append(context))
    first, second = [await stage.open(f"{TOPIC}-{number}") for number in range(2)]
    free = {first: asyncio.Event(), second: asyncio.Event()}
    close = PersistentTopic.close

    async def waits(topic: PersistentTopic) -> None:
        await free[topic].wait()
        await close(topic)

    monkeypatch.setattr(PersistentTopic, "close", waits)
    closing = asyncio.ensure_future(stage.registry.close())
    await stage.settle()
    asleep = asyncio.ensure_future(stage.registry.fall_asleep(second, NOT_KNOWN))
    await stage.settle()
    free[first].set()
    await stage.settle()
    free[second].set()
    await stage.run(closing)
    await stage.run(asleep)
    await stage.settle()
    assert defects == []


async def test_records_are_frozen_so_that_no_later_pass_of_the_collector_looks_at_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage()
    for number in range(3):
        await stage.open(f"{TOPIC}-{number}")
    monkeypatch.setattr(stage.registry.dormant, "_not_frozen", 0)
    monkeypatch.setattr(dormant_topics, "FROZEN_AT_ONCE", 3)
    gc.unfreeze()
    for number, topic in enumerate(list(stage.registry.topics.values())):
        assert gc.get_freeze_count() == 0, number
        assert isinstance(topic, PersistentTopic)
        await stage.run(stage.registry.fall_asleep(topic, NOT_KNOWN))
    assert gc.get_freeze_count() > 0
    gc.unfreeze()


async def test_opened_topics_are_frozen_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dormant_topics, "FROZEN_AT_ONCE", 3 * dormant_topics.OPENED)
    stage = Stage()
    gc.unfreeze()
    for number in range(3):
        assert gc.get_freeze_count() == 0, number
        await stage.open(f"{TOPIC}-{number}")
    assert gc.get_freeze_count() > 0
    gc.unfreeze()


async def test_stop_forgets_many_records_in_slices() -> None:
    stage = Stage()
    dormant = stage.registry.dormant
    for number in range(3 * ITEMS_MAX):
        name = parse_topic_name(f"{TOPIC}-{number}")
        dormant.add(name, DormantTopic(None, (), 0, 0, 0, 0, 0, NOT_KNOWN, NOT_KNOWN, NOT_KNOWN, None))
    forgetting = asyncio.ensure_future(dormant.forget_all())
    turns = 0
    while not forgetting.done():
        turns += 1
        await asyncio.sleep(0)
    await forgetting
    assert turns >= 3
    assert (dormant.count, list(dormant)) == (0, [])


async def test_plans_of_several_namespaces_share_slices_and_survive_a_defect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage, planned = Stage(), list[str]()

    def plan(_: object, name: str, not_before_ns: int = 0) -> None:
        planned.append(name)
        if name == "b-7":
            raise ZeroDivisionError

    monkeypatch.setattr(dormant_topics.DormantTopics, "plan", plan)
    names = [[f"{each}-{number}" for number in range(ITEMS_MAX + 100)] for each in ("a", "b", "c")]
    for each in names:
        stage.registry.dormant.plan_all(each)
    slices = [len(planned)]
    while stage.timers:
        ((seconds, callback),) = stage.timers
        assert seconds == 0
        stage.timers.clear()
        with suppress(ZeroDivisionError):
            callback()
        slices.append(len(planned) - sum(slices))
    assert planned == [*chain.from_iterable(names)]
    assert max(slices) == ITEMS_MAX


async def test_topics_that_are_due_together_are_planned_for_several_seconds_and_each_is_taken_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dormant_topics, "DUE_PER_SECOND", 4)
    stage = Stage(delete_inactive=True, inactive_after_s=60)
    await stage.open()  # Makes the namespace.
    dormant, names = stage.registry.dormant, [f"{TOPIC}-{number}" for number in range(10)]
    for name in names:
        record = DormantTopic(None, (), 0, 0, 0, 0, 0, NOT_KNOWN, NOT_KNOWN, NOT_KNOWN, None)
        dormant.add(parse_topic_name(name), record)
    assert sorted(map(len, dormant._due.values())) == [2, 4, 4]
    dormant.drop(names[0])
    dormant.drop(names[9])
    first = max(dormant._due)
    taken = [dormant.take_due((first + second) * NS_PER_SECOND, 100) for second in (-2, -1, 0)]
    assert [len(some) for some in taken] == [3, 4, 1]
    assert sorted(name for some in taken for name in some) == names[1:9]
