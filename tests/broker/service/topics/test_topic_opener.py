"""Openings from what the store has, on a store that other brokers share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial

import pytest

from bookkeeper.metadata.metadata_store import Versioned
from broker.managed_ledger.managed_ledger_info import cursor_key, managed_ledger_key
from broker.service.topics.new_topic import store_topic
from foundation.model.errors import TopicNotFound
from foundation.model.position import EARLIEST
from foundation.model.topic_name import parse_topic_name
from tests.broker.service.lifecycle.test_dormancy import Scene
from tests.fakes.stage import TOPIC

NAME = parse_topic_name(TOPIC)
LIST = managed_ledger_key(NAME.ledger_name)


def cursor(name: str) -> str:
    return cursor_key(NAME.ledger_name, name)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    """A topic with three messages and a subscription fell asleep on a shared store."""
    scene = Scene()
    # As if another broker had it, too.
    scene.metadata.is_shared = True
    await scene.with_backlog()
    record = await scene.sleep()
    assert record.info is None
    yield scene
    await scene.run(scene.registry.close())


async def test_all_that_is_stored_is_asked_in_one_turn(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    get, children = scene.metadata.get, scene.metadata.children
    asked: list[str] = []
    answers = asyncio.Event()

    async def read(key: str) -> Versioned | None:
        asked.append(key)
        await answers.wait()
        return await get(key)

    async def names(key: str) -> list[str]:
        asked.append(f"{key}/*")
        await answers.wait()
        return await children(key)

    monkeypatch.setattr(scene.metadata, "get", read)
    monkeypatch.setattr(scene.metadata, "children", names)
    opening = asyncio.create_task(scene.open())
    for _ in range(10):
        await asyncio.sleep(0)
    assert sorted(asked) == [LIST, f"{LIST}/*", cursor("s")]
    answers.set()
    topic = await opening
    assert len(asked) == 3
    assert topic.subscriptions["s"].cursor.backlog == 3


async def test_cursors_are_as_another_broker_left_them(scene: Scene) -> None:
    stored = await scene.metadata.get(cursor("s"))
    assert stored is not None
    await scene.metadata.put(cursor("new"), stored.value)
    await scene.metadata.delete(cursor("s"))
    topic = await scene.open()
    assert list(topic.subscriptions) == ["new"]


async def test_record_is_dropped_when_another_broker_has_deleted_its_topic(scene: Scene) -> None:
    await scene.metadata.delete(cursor("s"))
    await scene.metadata.delete(LIST)
    with pytest.raises(TopicNotFound):
        await scene.run(scene.registry.get(NAME, create=False))
    assert scene.registry.dormant.get(TOPIC) is None


async def test_record_is_dropped_when_somebody_asks_for_a_topic_whose_nodes_were_removed(
    scene: Scene,
) -> None:
    other = f"{TOPIC}-other"
    await scene.open(other)
    await scene.later(0)
    await scene.later(10_000)
    await scene.metadata.delete(cursor("s"))
    await scene.metadata.delete(LIST)
    assert not await scene.registry.exists(NAME)
    assert await scene.registry.exists(parse_topic_name(other))
    assert [name for name, _ in scene.registry.dormant] == [other]
    assert scene.registry.dormant.backlog == 0


async def test_record_stays_when_a_read_has_missed_the_topic(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    get, sync = scene.metadata.get, scene.metadata.sync
    is_behind = True

    async def read(key: str) -> Versioned | None:
        return None if is_behind and key == LIST else await get(key)

    async def caught_up() -> None:
        nonlocal is_behind
        is_behind = False
        await sync()

    monkeypatch.setattr(scene.metadata, "get", read)
    monkeypatch.setattr(scene.metadata, "sync", caught_up)
    assert await scene.registry.exists(NAME)
    assert scene.registry.dormant.get(TOPIC) is not None


async def test_record_of_a_topic_that_is_made_anew_meanwhile_stays(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    dormant, former = scene.registry.dormant, scene.registry.dormant.get(TOPIC)
    assert former is not None
    made_anew = replace(former)

    async def sync() -> None:
        dormant.drop(TOPIC)
        dormant.add(NAME, made_anew)

    monkeypatch.setattr(scene.metadata, "sync", sync)
    await scene.metadata.delete(LIST)
    assert not await scene.registry.exists(NAME)
    assert dormant.get(TOPIC) is made_anew


async def test_partition_that_is_made_anew_after_its_nodes_were_removed_has_one_record() -> None:
    scene = Scene()
    scene.metadata.is_shared = True
    await scene.namespaces.open()
    await scene.run(scene.partitioned.create(NAME, 1))
    part = NAME.with_partition(0)
    former = scene.registry.dormant.get(str(part))
    await scene.metadata.delete(managed_ledger_key(part.ledger_name))
    await scene.run(scene.registry.make(part, partial(store_topic, scene.registry, part)))
    assert scene.registry.dormant.get(str(part)) is not former
    assert scene.registry.dormant.count == 1


async def test_id_that_was_taken_ahead_is_not_used_when_the_list_has_a_higher_one(scene: Scene) -> None:
    ids = scene.environment.ids
    plain, taken = ids.next, list[int]()

    async def lowest(above: int = -1) -> int:
        taken.append(0 if above < 0 else await plain(above))
        return taken[-1]

    ids.next = lowest  # type: ignore[method-assign]
    topic = await scene.open()
    assert taken[0] == 0
    assert len(taken) == 2
    assert topic.ledger.ledgers.current.ledger_id == taken[1] > topic.ledger.ledgers.infos()[0].ledger_id


async def test_topic_without_a_record_takes_no_id_before_it_is_known_to_exist(scene: Scene) -> None:
    ids = scene.environment.ids

    async def refused(above: int = -1) -> int:
        raise AssertionError

    ids.next = refused  # type: ignore[method-assign]
    with pytest.raises(TopicNotFound):
        await scene.run(scene.registry.get(parse_topic_name(f"{TOPIC}-none"), create=False))


async def test_opened_topic_reads_on_where_its_subscription_stood(scene: Scene) -> None:
    topic = await scene.open()
    await scene.run(topic.subscribing.create("later", EARLIEST))
    await scene.publish(topic, 1)
    await scene.sleep()
    assert {name: one.cursor.backlog for name, one in (await scene.open()).subscriptions.items()} == {
        "later": 4,
        "s": 4,
    }
