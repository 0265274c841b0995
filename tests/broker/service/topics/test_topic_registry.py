"""TopicRegistry: a topic is opened once, closed before it is opened again, and created by the rules."""

from __future__ import annotations

import asyncio

import pytest

from broker.managed_ledger.managed_ledger_info import cursor_key
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.model.errors import LedgerFenced, NotAllowed, ServiceNotReady, TopicNotFound
from foundation.model.position import EARLIEST
from foundation.model.topic_name import parse_topic_name
from tests.fakes.messages import message
from tests.fakes.sends import send
from tests.fakes.stage import TOPIC, Stage, port_of

NAME = parse_topic_name(TOPIC)


async def test_topic_is_opened_once_when_three_requests_come_at_once() -> None:
    stage = Stage()
    await stage.namespaces.open()
    asked = [asyncio.ensure_future(stage.registry.get(NAME, create=True)) for _ in range(3)]
    topics = await stage.run(asyncio.wait_for(asyncio.gather(*asked), 60))
    assert len(set(map(id, topics))) == 1
    assert stage.registry._opening == {}


async def test_request_that_may_create_gets_the_topic_when_an_earlier_one_may_not() -> None:
    stage = Stage()
    await stage.namespaces.open()
    shy = asyncio.ensure_future(stage.registry.get(NAME, create=False))
    bold = asyncio.ensure_future(stage.registry.get(NAME, create=True))
    assert await stage.run(asyncio.wait_for(bold, 60)) is stage.registry.topics[TOPIC]
    with pytest.raises(TopicNotFound):
        await shy


@pytest.mark.timeout(60)
@pytest.mark.parametrize("turns", range(8))
async def test_request_that_may_create_gets_the_topic_when_an_earlier_opening_has_just_failed(
    turns: int,
) -> None:
    """One of these numbers of turns lies between the end of the opening and its callback."""
    stage = Stage()
    await stage.namespaces.open()
    shy = asyncio.ensure_future(stage.registry.get(NAME, create=False))
    for _ in range(turns):
        await asyncio.sleep(0)
    bold = asyncio.ensure_future(stage.registry.get(NAME, create=True))
    assert await stage.run(bold) is stage.registry.topics[TOPIC]
    with pytest.raises(TopicNotFound):
        await shy
    await stage.settle()
    assert stage.registry._opening == {}


async def test_topic_is_opened_again_after_its_closing_has_ended() -> None:
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
    again = await stage.run(asyncio.wait_for(asked, 60))
    assert again is not topic
    assert again is stage.registry.topics[TOPIC]
    await stage.publish(again, 1)  # type: ignore[arg-type]
    assert again.ledger.ledgers.entries == 3  # type: ignore[attr-defined]
    assert stage.registry._closing == {}


async def test_subscription_in_creation_is_closed_when_its_topic_closes() -> None:
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
        await stage.run(topic.subscribing.create("other", EARLIEST))


async def test_fenced_topic_is_closed_and_opened_again_at_the_next_request() -> None:
    stage = Stage()
    topic = await stage.open()
    await stage.publish(topic, 1)
    producer = await stage.producer(topic)
    for ledger in stage.ledgers._ledgers.values():
        ledger.fenced = True
    send(producer, 1, message())
    await stage.settle()
    [(_, error)] = port_of(producer).refusals
    assert isinstance(error, LedgerFenced)
    again = await stage.open()
    assert again is not topic
    receipts = (await stage.publish(again, 1)).receipts
    assert len(receipts) == 1


async def stored_by_another_broker(stage: Stage, cursor: str) -> None:
    """Writes the node of the cursor once more, which changes its version."""
    key = cursor_key(NAME.ledger_name, cursor)
    found = await stage.run(stage.environment.metadata.get(key))
    assert found is not None
    await stage.run(stage.environment.metadata.put(key, found.value, found.version))


async def test_topic_with_a_cursor_that_another_broker_has_stored_is_closed_and_opened_again() -> None:
    stage = Stage()
    topic = await stage.open()
    subscription, consumer, port = await stage.consume(topic, permits=10)
    await stage.publish(topic, 3)
    await stored_by_another_broker(stage, "s")
    subscription.acknowledge(consumer, port.keys[:1])
    await stage.settle()
    assert topic.closed
    assert port.events[-1:] == ["closed"]
    again = await stage.open()
    assert again is not topic
    subscription, consumer, port = await stage.consume(again, permits=10)
    subscription.acknowledge(consumer, port.keys[:1])
    await stage.run(again.ledger.cursors.by_name["s"].store.flush())
    await stage.run(stage.registry.unload(NAME))
    assert (await stage.open()).ledger.cursors.by_name["s"].backlog == 2


async def test_topic_that_is_taken_over_while_it_is_opened_is_not_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage()
    await stage.namespaces.open()

    async def taken_over(topic: PersistentTopic) -> None:
        monkeypatch.undo()
        topic.taken_over()

    monkeypatch.setattr(PersistentTopic, "policies_changed", taken_over)
    with pytest.raises(ServiceNotReady, match="taken over"):
        await stage.open()
    await stage.settle()
    assert (stage.registry.topics, stage.registry._closing) == ({}, {})
    assert not (await stage.open()).closed


async def test_registry_close_waits_for_topics_in_opening() -> None:
    stage = Stage()
    await stage.namespaces.open()
    opening = asyncio.ensure_future(stage.registry.get(NAME, create=True))
    await asyncio.sleep(0)
    await stage.run(stage.registry.close())
    assert stage.registry.topics == {}
    assert opening.done()
    with pytest.raises(ServiceNotReady):
        await stage.run(stage.registry.get(NAME, create=True))


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
async def test_domain_that_is_switched_off_is_refused(domain: str) -> None:
    persistent = domain == "persistent"
    stage = Stage(persistent_topics=not persistent, non_persistent_topics=persistent)
    other = "persistent" if domain == "non-persistent" else "non-persistent"
    await stage.open(f"{other}://public/default/t")
    with pytest.raises(NotAllowed, match=f"unable to load {domain}"):
        await stage.open(f"{domain}://public/default/t")
