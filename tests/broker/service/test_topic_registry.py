"""Topics: opened once however many ask, closed before they are opened again, never half there."""

from __future__ import annotations

import asyncio

import pytest

from broker.model.errors import LedgerFenced, ServiceNotReady, TopicNotFound
from broker.model.position import EARLIEST
from broker.model.topic_name import parse_topic_name
from tests.fakes.messages import message
from tests.fakes.stage import TOPIC, Stage, port_of

NAME = parse_topic_name(TOPIC)


async def test_a_topic_is_opened_once() -> None:
    stage = Stage()
    await stage.namespaces.open()
    asked = [asyncio.ensure_future(stage.registry.get(NAME, create=True)) for _ in range(3)]
    topics = await stage.run(asyncio.wait_for(asyncio.gather(*asked), 5))
    assert len(set(map(id, topics))) == 1
    assert stage.registry._loading == {}


async def test_who_may_create_is_not_refused_because_another_may_not() -> None:
    stage = Stage()
    await stage.namespaces.open()
    shy = asyncio.ensure_future(stage.registry.get(NAME, create=False))
    bold = asyncio.ensure_future(stage.registry.get(NAME, create=True))
    assert await stage.run(asyncio.wait_for(bold, 5)) is stage.registry.topics[TOPIC]
    with pytest.raises(TopicNotFound):
        await shy


async def test_a_topic_that_is_being_closed_is_opened_afterwards() -> None:
    stage = Stage()
    topic = await stage.open()
    await stage.publish(topic, 2)
    stage.metadata.gate = asyncio.Event()
    closing = asyncio.ensure_future(stage.registry.unload(NAME))
    await stage.settle()
    asked = asyncio.ensure_future(stage.registry.get(NAME, create=True))
    await stage.settle()
    assert not asked.done(), "the old one still writes"
    stage.metadata.gate.set()
    await stage.run(closing)
    again = await stage.run(asyncio.wait_for(asked, 5))
    assert again is not topic
    assert again is stage.registry.topics[TOPIC]
    await stage.publish(again, 1)  # type: ignore[arg-type]
    assert again.ledger.ledgers.entries == 3  # type: ignore[attr-defined]
    assert stage.registry._leaving == {}


async def test_a_subscription_that_is_being_made_when_the_topic_closes_is_closed_with_it() -> None:
    stage = Stage()
    topic = await stage.open()
    stage.metadata.gate = asyncio.Event()
    joining = asyncio.ensure_future(stage.consume(topic))
    await stage.settle()
    closing = asyncio.ensure_future(stage.registry.unload(NAME))
    await stage.settle()
    stage.metadata.gate.set()
    await stage.run(closing)
    _, _, port = await stage.run(joining)
    assert port.events == ["closed"]
    with pytest.raises(ServiceNotReady):
        await stage.run(topic.create_subscription("other", EARLIEST))


async def test_a_topic_that_another_broker_took_over_is_closed_and_opened_again() -> None:
    stage = Stage()
    topic = await stage.open()
    await stage.publish(topic, 1)
    producer = await stage.producer(topic)
    for ledger in stage.ledgers._ledgers.values():
        ledger.fenced = True
    producer.publish(1, 0, 1, message(), chunk=False)
    await stage.settle()
    [(_, error)] = port_of(producer).refusals
    assert isinstance(error, LedgerFenced)
    again = await stage.open()
    assert again is not topic
    receipts = (await stage.publish(again, 1)).receipts
    assert len(receipts) == 1


async def test_partitions_that_nobody_made_are_not_remembered() -> None:
    stage = Stage()
    await stage.namespaces.open()
    for number in range(10):
        with pytest.raises(TopicNotFound):
            await stage.registry.partitions_or_create(
                parse_topic_name(f"persistent://public/default/x{number}"), create=False
            )
    assert stage.registry._partitions == {}
    await stage.run(stage.registry.create_partitioned(NAME, 3))
    assert await stage.registry.partitions(NAME) == 3
    assert len(stage.registry.topics) == 3


async def test_closing_everything_waits_for_what_is_being_opened() -> None:
    stage = Stage()
    await stage.namespaces.open()
    opening = asyncio.ensure_future(stage.registry.get(NAME, create=True))
    await asyncio.sleep(0)
    await stage.run(stage.registry.close())
    assert stage.registry.topics == {}
    assert opening.done()
    with pytest.raises(ServiceNotReady):
        await stage.run(stage.registry.get(NAME, create=True))
