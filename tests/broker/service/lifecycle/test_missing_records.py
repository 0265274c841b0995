"""A topic that is closed without a record, or cannot be opened, gets its record all the same."""

from __future__ import annotations

import asyncio

import pytest

from broker.service.lifecycle import dormant_filling, namespace_topics
from broker.service.topics.dormant_topics import RETRY_NS
from foundation.model.errors import MetadataError
from foundation.model.topic_name import parse_topic_name
from tests.broker.service.lifecycle.test_dormant_filling import MINUTE_MS, NAMESPACE, Scene, with_backlog
from tests.broker.service.topics.test_reconfigure import reconfigure
from tests.fakes.stage import TOPIC

pytestmark = pytest.mark.usefixtures("no_wait")


@pytest.fixture
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dormant_filling, "QUIET_S", 0)


async def filled(**settings: object) -> Scene:
    """A broker whose topic is open, and whose start has filled all."""
    scene = await with_backlog(**settings)
    await scene.run(scene.filling.run())
    assert not scene.registry.dormant.filling
    return scene


def refuse_ids(scene: Scene) -> None:
    """No topic can be opened from now on."""

    async def refused(above: int = -1) -> int:
        raise MetadataError("no id")

    scene.environment.ids.next = refused  # type: ignore[method-assign]


def allow_ids(scene: Scene) -> None:
    del scene.environment.ids.next


async def test_topic_that_was_left_open_and_cannot_be_opened_is_tried_again() -> None:
    earlier = await with_backlog()
    scene = Scene(earlier, ttl_s=600)
    await scene.run(scene.namespaces.open())
    refuse_ids(scene)
    await scene.run(scene.filling.run())
    assert (scene.registry.dormant.count, scene.registry.dormant.filling) == (0, True)
    loads = scene.registry.load_times_ms
    allow_ids(scene)
    await scene.run(scene.filling.run())
    assert not loads, "not before a minute is over"
    scene.now_ns += RETRY_NS
    await scene.run(scene.filling.run())
    assert scene.record().backlog == 4
    assert not scene.registry.dormant.filling
    await scene.later(20 * MINUTE_MS)
    assert scene.record().backlog == 0


async def test_record_of_an_unloaded_topic_is_made_without_a_list_of_all_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = await filled()
    await scene.run(scene.registry.unload(parse_topic_name(TOPIC)))
    listed = list[str]()
    children = scene.metadata.children

    async def noted(key: str) -> list[str]:
        listed.append(key)
        return await children(key)

    monkeypatch.setattr(scene.metadata, "children", noted)
    await scene.run(scene.filling.run())
    assert scene.record().backlog == 4
    assert [key for key in listed if key.endswith("/persistent")] == []


@pytest.mark.parametrize("of", ["topic", "namespace"])
async def test_unloaded_topic_is_dormant_and_its_messages_expire(of: str) -> None:
    scene = await filled(ttl_s=600)
    if of == "topic":
        await scene.run(scene.registry.unload(parse_topic_name(TOPIC)))
    else:
        await scene.run(namespace_topics.unload(scene.registry, NAMESPACE))
    assert scene.registry.dormant.filling
    loads = scene.registry.loads
    await scene.run(scene.filling.run())
    assert scene.record().backlog == 4
    assert (scene.registry.loads, scene.registry.dormant.filling) == (loads, False)
    await scene.later(20 * MINUTE_MS)
    assert scene.record().backlog == 0


async def test_topic_whose_close_fails_when_it_falls_asleep_gets_its_record_later() -> None:
    scene = await filled()
    await scene.later(0)
    scene.metadata.refusing = True
    await scene.later(10_000)
    scene.metadata.refusing = False
    assert TOPIC not in scene.registry.topics
    assert scene.registry.dormant.filling
    scene.now_ns += RETRY_NS
    await scene.run(scene.filling.run())
    assert scene.record().backlog == 4


async def test_topic_whose_nodes_cannot_be_read_is_tried_again() -> None:
    scene = await filled()
    await scene.run(scene.registry.unload(parse_topic_name(TOPIC)))
    get = scene.metadata.get

    async def refused(key: str) -> None:
        raise MetadataError("no answer")

    scene.metadata.get = refused  # type: ignore[method-assign]
    await scene.run(scene.filling.run())
    assert scene.registry.dormant.filling
    scene.metadata.get = get  # type: ignore[method-assign]
    scene.now_ns += RETRY_NS
    await scene.run(scene.filling.run())
    assert scene.record().backlog == 4


async def test_reads_of_a_run_end_with_it_when_one_of_them_fails() -> None:
    scene = await filled()
    other = "persistent://public/default/u"
    await scene.open(other)
    for name in (TOPIC, other):
        await scene.run(scene.registry.unload(parse_topic_name(name)))
    get, gate = scene.metadata.get, asyncio.Event()

    async def late_or_refused(key: str) -> object:
        if key.endswith("/u"):
            raise MetadataError("no answer")
        await gate.wait()
        return await get(key)

    scene.metadata.get = late_or_refused  # type: ignore[assignment]
    run = asyncio.ensure_future(scene.filling.run())
    await scene.settle()
    assert scene.filling.running
    gate.set()
    await scene.run(run)
    assert scene.record().backlog == 4


async def test_topic_that_is_opened_or_deleted_after_its_unload_is_not_missing() -> None:
    scene = await filled()
    other = "persistent://public/default/u"
    await scene.open(other)
    for name in (TOPIC, other):
        await scene.run(scene.registry.unload(parse_topic_name(name)))
    await scene.open()
    await scene.run(scene.deletions.topic(parse_topic_name(other), force=False))
    assert not scene.registry.dormant.filling
    await scene.run(scene.deletions.topic(parse_topic_name(TOPIC), force=False))
    assert not scene.registry.dormant.filling, "an open one that is deleted is not closed without a record"


async def test_topic_whose_opening_fails_while_it_is_filled_gets_its_record() -> None:
    earlier = await with_backlog()
    await earlier.run(earlier.registry.close())
    scene = Scene(earlier)
    await scene.run(scene.namespaces.open())
    gate = asyncio.Event()

    async def late(above: int = -1) -> int:
        await gate.wait()
        raise MetadataError("no id")

    scene.environment.ids.next = late  # type: ignore[method-assign]
    opening = asyncio.ensure_future(scene.registry.get(parse_topic_name(TOPIC), create=False))
    await scene.settle()
    await scene.run(scene.filling.run())
    assert (scene.registry.dormant.count, scene.registry.dormant.filling) == (0, True)
    gate.set()
    with pytest.raises(MetadataError):
        await scene.run(opening)
    await scene.run(scene.filling.run())
    assert scene.record().backlog == 4


async def test_topics_that_closed_while_none_fell_asleep_get_records_once_they_do() -> None:
    scene = await filled(dormant_after_s=0)
    scene.registry.dormant.filled_parts.add("")
    await scene.run(scene.registry.unload(parse_topic_name(TOPIC)))
    await scene.run(scene.filling.run())
    assert scene.registry.dormant.count == 0
    reconfigure(scene, dormant_after_s=10)
    await scene.run(scene.filling.run())
    assert scene.record().backlog == 4
