"""Subscriptions: creating, seeking, unsubscribing, the end of a topic, and readers."""

from __future__ import annotations

import logging

import pytest

from broker.service.consumer import SubscriptionType
from broker.service.subscriptions.subscription import END_TOLD_AFTER_SECONDS
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.model.errors import (
    ConsumerBusy,
    MetadataError,
    NotAllowed,
    PersistenceError,
    SubscriptionNotFound,
)
from foundation.model.position import EARLIEST, LATEST, Position
from foundation.model.topic_name import parse_topic_name
from tests.fakes.messages import SENT_AT_MS, message
from tests.fakes.sends import send
from tests.fakes.stage import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED, TOPIC, Stage, port_of

ALL_KINDS = [EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED]


async def test_subscription_starts_at_the_requested_end_and_keeps_its_position() -> None:
    stage = Stage()
    topic = await stage.open()
    await stage.publish(topic, 2)
    _, _, early = await stage.consume(topic, permits=9, subscription="early")
    subscription, consumer, late = await stage.consume(topic, permits=9, subscription="late", earliest=False)
    await stage.publish(topic, 1)
    assert (len(early.got), late.keys) == (3, [(0, 2)])
    subscription.remove_consumer(consumer)
    _, _, again = await stage.consume(topic, permits=9, subscription="late", earliest=True)
    assert again.keys == [(0, 2)]


async def test_subscription_is_refused_by_each_rule_about_creating_one() -> None:
    stage = Stage(auto_subscription_creation=False, subscriptions_max=1)
    topic = await stage.open()
    with pytest.raises(SubscriptionNotFound):
        await stage.consume(topic)
    await stage.run(topic.subscribing.create("s", EARLIEST))
    with pytest.raises(NotAllowed, match="Durable"):
        await stage.consume(topic, durable=False)
    with pytest.raises(NotAllowed, match="maximum number"):
        await stage.consume(topic, subscription="reader", durable=False)
    with pytest.raises(NotAllowed, match="readCompacted"):
        await stage.consume(topic, read_compacted=True)


@pytest.mark.parametrize("kind", ALL_KINDS)
async def test_seek_disconnects_consumers_and_delivers_from_the_position(kind: SubscriptionType) -> None:
    stage = Stage()
    topic = await stage.open()
    await stage.publish(topic, 5)
    subscription, consumer, port = await stage.consume(topic, kind, permits=100)
    await stage.fire()
    subscription.acknowledge(consumer, port.keys)
    for target, expected in [
        (Position(0, 3), [3, 4]),
        (EARLIEST, [0, 1, 2, 3, 4]),
        (LATEST, []),
        (Position(99, 0), []),
    ]:
        await stage.run(subscription.seek(target))
        assert port.events[-1] == "closed"
        assert subscription.consumers == []
        _, _, port = await stage.consume(topic, kind, permits=100)
        await stage.fire()  # Failover starts after its delay.
        assert [entry_id for _, entry_id in port.keys] == expected


async def test_seek_into_a_batch_delivers_its_remaining_messages() -> None:
    stage = Stage()
    topic = await stage.open()
    await stage.publish(topic, 1, batch=3)
    subscription, _, _ = await stage.consume(topic)
    await stage.run(subscription.seek(Position(0, 0), (0b100,)))
    _, _, port = await stage.consume(topic, permits=10)
    assert port.ack_sets == [(0b100,)]


async def test_seek_by_time_starts_at_the_first_entry_that_is_not_older(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage()
    topic = await stage.open()
    for _ in range(4):
        await stage.publish(topic)
        stage.wall_ms += 1000
    subscription, _, _ = await stage.consume(topic)
    for time_ms, first in [(0, 0), (SENT_AT_MS + 1000, 1), (SENT_AT_MS + 1001, 2), (SENT_AT_MS + 9999, 4)]:
        searches = stage.environment.time_searches
        before = (searches.count, searches.reads)
        with caplog.at_level(logging.INFO):
            await stage.run(subscription.seek(await stage.run(topic.positions.first_since(time_ms))))
        assert subscription.cursor.read_position == (0, first)
        reads = searches.reads - before[1]
        assert (searches.count - before[0], reads) in [(1, 2), (1, 3)]
        assert f"time {time_ms} is at" in caplog.messages[-1]
        assert f"found by {reads} reads" in caplog.messages[-1]


async def test_seek_and_subscribe_are_refused_while_a_seek_is_running() -> None:
    stage = Stage()
    topic = await stage.open()
    subscription, _, _ = await stage.consume(topic)
    subscription.resetting = True
    with pytest.raises(MetadataError):
        await stage.run(subscription.seek(EARLIEST))
    with pytest.raises(ConsumerBusy):
        await stage.consume(topic)


async def test_reader_cursor_is_dropped_when_the_reader_leaves() -> None:
    stage = Stage()
    topic = await stage.open()
    await stage.publish(topic, 3)
    subscription, consumer, port = await stage.consume(
        topic, EXCLUSIVE, permits=9, durable=False, start=Position(0, 1)
    )
    assert port.keys == [(0, 1), (0, 2)]
    await stage.run(subscription.seek(EARLIEST))
    assert "s" in topic.subscriptions, "it will be back in a moment"
    _, consumer, port = await stage.consume(topic, EXCLUSIVE, permits=9, durable=False)
    assert len(port.got) == 3
    subscription.remove_consumer(consumer)
    assert (topic.subscriptions, topic.ledger.cursors.by_name) == ({}, {})
    await stage.fire()


async def test_reader_cursor_is_dropped_when_the_reader_stays_away_after_a_seek() -> None:
    stage = Stage()
    topic = await stage.open()
    subscription, _, _ = await stage.consume(topic, EXCLUSIVE, durable=False)
    await stage.run(subscription.seek(EARLIEST))
    await stage.fire()
    assert (topic.subscriptions, topic.ledger.cursors.by_name) == ({}, {})


async def test_unsubscribe_is_refused_when_other_consumers_are_connected_unless_forced() -> None:
    stage = Stage()
    topic = await stage.open()
    subscription, first, _ = await stage.consume(topic)
    _, _, other = await stage.consume(topic)
    with pytest.raises(MetadataError):
        await stage.run(topic.subscribing.delete(subscription, first, force=False))
    assert len(subscription.consumers) == 2
    await stage.run(topic.subscribing.delete(subscription, first, force=True))
    assert other.events == ["closed"]
    assert (topic.subscriptions, topic.ledger.cursors.by_name) == ({}, {})


async def test_subscribe_creates_a_new_subscription_when_the_old_one_is_being_deleted() -> None:
    stage = Stage()
    topic = await stage.open()
    await stage.publish(topic, 1)
    subscription, first, _ = await stage.consume(topic)
    import asyncio

    stage.metadata.gate = asyncio.Event()
    deleting = asyncio.ensure_future(topic.subscribing.delete(subscription, first, force=False))
    joining = asyncio.ensure_future(stage.consume(topic, permits=5))
    await stage.settle()
    stage.metadata.gate.set()
    await stage.run(deleting)
    found, _, port = await stage.run(joining)
    assert found is not subscription
    assert topic.subscriptions == {"s": found}
    assert len(port.got) == 1


async def test_end_of_topic_is_sent_once_per_consumer_when_all_is_acknowledged() -> None:
    stage = Stage()
    topic = await stage.open()
    await stage.publish(topic, 1)
    subscription, first, port = await stage.consume(topic, permits=9)
    await stage.run(topic.terminate())
    await stage.settle()
    assert port.events == []
    subscription.acknowledge(first, port.keys)
    await stage.settle()
    assert port.events == ["end"]
    _, _, late = await stage.consume(topic, permits=1)
    # A client that closes its connection at this command and comes back must not spin.
    assert (port.events, late.events) == (["end"], [])
    assert [seconds for seconds, _ in stage.timers] == [END_TOLD_AFTER_SECONDS]
    await stage.fire()
    assert (port.events, late.events) == (["end"], ["end"])


async def test_failed_add_closes_all_producers_of_the_topic() -> None:
    stage = Stage()
    topic = await stage.open()
    await stage.publish(topic, 1)
    producer = await stage.producer(topic)
    await stage.ledgers.close()
    send(producer, 1, message())
    await stage.settle()
    [(_, error)] = port_of(producer).refusals
    assert isinstance(error, PersistenceError)
    assert port_of(producer).events == ["closed"], "what it sent behind the failed one must not pass it"
    assert topic.access.producers == {}


async def test_read_entries_are_dropped_when_the_last_consumer_leaves() -> None:
    stage = Stage(cache_bytes=0)
    topic = await stage.open()
    await stage.run(topic.subscribing.create("s", EARLIEST))
    await stage.publish(topic, 4, batch=2)
    subscription, consumer, _ = await stage.consume(topic, EXCLUSIVE, permits=3)
    assert subscription.cursor._ready is not None
    assert subscription.cursor._ready.entries
    subscription.remove_consumer(consumer)
    assert not subscription.cursor._ready.entries
    assert not subscription.cursor.active


async def reopened(stage: Stage) -> PersistentTopic:
    await stage.run(stage.registry.unload(parse_topic_name(TOPIC)))
    return await stage.open()


async def test_subscription_keeps_its_properties_and_the_replicated_flag() -> None:
    stage = Stage()
    topic = await stage.open()
    first, *_ = await stage.consume(topic, subscription="first", properties={"team": "a"}, replicated=True)
    later, *_ = await stage.consume(topic, subscription="later")
    assert (dict(first.properties), first.replicated) == ({"team": "a"}, True)
    assert (dict(later.properties), later.replicated) == ({}, False)
    # A consumer may set what is missing; it changes nothing that is there.
    await stage.consume(topic, subscription="later", properties={"team": "b"}, replicated=True)
    await stage.consume(topic, subscription="first", properties={"team": "c"})
    await stage.publish(topic, 3)
    first.cursor.acknowledge_cumulative(Position(0, 1))
    found = (await reopened(stage)).subscriptions
    assert {name: (dict(one.properties), one.replicated) for name, one in found.items()} == {
        "first": ({"team": "a"}, True),
        "later": ({"team": "b"}, True),
    }
    assert found["first"].cursor.mark_delete_position == (0, 1)
    await stage.run(found["first"].keep_properties({}))
    assert dict((await reopened(stage)).subscriptions["first"].properties) == {}
