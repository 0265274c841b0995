"""PolicyEvents: the first read of a namespace's events, once for all topics that open, beside other brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import Versioned, Write
from broker.service.policies.event_locks import EventLocks
from broker.service.topics.event_log import EventLog
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.model.errors import NoSuchLedger
from foundation.model.topic_name import parse_topic_name
from tests.fakes.policy_brokers import EVENTS, EVENTS_NAME, Broker, one_broker, two_brokers
from tests.fakes.stage import TOPIC

NAME = parse_topic_name(TOPIC)


async def another(broker: Broker) -> Broker:
    """Another broker on the store, which has read no events yet."""
    store = cast("MemoryMetadataStore", broker.stage.environment.metadata)
    return await Broker(store.another(), broker).open()


def counted(monkeypatch: pytest.MonkeyPatch, broker: Broker) -> list[str]:
    """The keys of events and locks that the broker reads and writes from now on."""
    store, keys = broker.stage.environment.metadata, list[str]()
    get, put_all = store.get, store.put_all

    def note(*asked: str) -> None:
        keys.extend(key for key in asked if "__change_events" in key or "policy-locks" in key)

    async def noted_get(key: str) -> Versioned | None:
        note(key)
        return await get(key)

    async def noted_put_all(puts: Sequence[Write]) -> list[int]:
        note(*(put.key for put in puts))
        return await put_all(puts)

    monkeypatch.setattr(store, "get", noted_get)
    monkeypatch.setattr(store, "put_all", noted_put_all)
    return keys


async def test_topics_that_open_at_once_read_the_events_once_and_take_no_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = await one_broker()
    await broker.set("maxMessageSize", 50)
    # Or the first of the next ones would end the ledger too.
    await broker.stage.run(broker.stage.registry.unload(EVENTS_NAME))
    requests = []
    for count in (1, 50):
        later = await another(broker)
        keys = counted(monkeypatch, later)
        names = [parse_topic_name(f"{TOPIC}-{count}-{number}") for number in range(count)]
        await later.stage.run(
            asyncio.gather(*(later.stage.registry.get(name, create=True) for name in names))
        )
        await later.stage.settle()
        requests.append(sorted(keys))
        assert await later.policies() == {"maxMessageSize": 50}
    assert requests[0] == requests[1]
    assert not [key for key in requests[0] if "policy-locks" in key]


async def test_error_of_a_load_is_told_to_all_topics_that_open_and_the_next_one_loads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = await one_broker()
    await broker.set("maxMessageSize", 50)
    later, attempts = await another(broker), list[bool]()

    async def fail(*_: object) -> set[str]:
        attempts.append(True)
        raise NoSuchLedger("gone")

    with monkeypatch.context() as patched:
        patched.setattr(EventLog, "catch_up", fail)
        loads = [later.events.load(NAME) for _ in range(20)]
        found = await later.stage.run(asyncio.gather(*loads, return_exceptions=True))
        assert [str(error) for error in found] == ["gone"] * 20
        assert len(attempts) == 1
    assert await later.policies() == {"maxMessageSize": 50}


async def test_events_are_read_while_another_broker_holds_the_lock_for_ever() -> None:
    broker = await one_broker()
    await broker.set("maxMessageSize", 50)
    hanging = cast("MemoryMetadataStore", broker.stage.environment.metadata).another()
    async with EventLocks(hanging, lambda: "hanging").hold("public/default", bounded=False):
        assert await (await another(broker)).policies() == {"maxMessageSize": 50}


async def test_brokers_that_read_the_events_at_once_all_succeed() -> None:
    broker = await one_broker()
    await broker.set("maxMessageSize", 50)
    later = [await another(broker) for _ in range(8)]
    await broker.stage.run(asyncio.gather(*(one.events.load(NAME) for one in later)))
    assert [await one.policies() for one in later] == [{"maxMessageSize": 50}] * 8


async def test_change_during_a_load_is_made_and_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = await two_brokers()
    await one.set("maxMessageSize", 50)
    catch_up, changed = EventLog.catch_up, list[bool]()

    async def catch_up_beside_a_change(log: EventLog, topic: PersistentTopic) -> set[str]:
        found = await catch_up(log, topic)
        if not changed:
            # The other broker opens the topic, which this one has just read.
            changed.append(True)
            await one.stage.namespaces.set_topic_policy(TOPIC, "maxMessageSize", 60)
            while other.events._follower is None:  # noqa: ASYNC110  # Nothing tells of it.
                await asyncio.sleep(0)
        return found

    monkeypatch.setattr(EventLog, "catch_up", catch_up_beside_a_change)
    assert EVENTS not in other.stage.registry.topics
    await other.stage.run(other.events.load(NAME))
    await other.stage.settle()
    assert dict(other.stage.namespaces.topic_policies(TOPIC)) == {"maxMessageSize": 60}
