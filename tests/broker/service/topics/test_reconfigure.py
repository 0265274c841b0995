"""Settings changed at run time reach open topics, connected clients, and topics that are being opened."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from broker.service.subscriptions.dispatch.key_shared import sticky_hash_of
from foundation.loop.slices import ITEMS_MAX
from foundation.model.errors import NotAllowed, SubscriptionNotFound, TopicNotFound
from foundation.model.topic_name import parse_topic_name
from tests.fakes.stage import KEY_SHARED, TOPIC, Stage


def reconfigure(stage: Stage, *, backlog_cursors: int = 0, **settings: object) -> None:
    registry = stage.registry
    ledgers = replace(registry._ledger_settings, backlog_cursors_min_for_caching=backlog_cursors)
    registry.reconfigure(ledgers, replace(registry.settings, **settings))  # type: ignore[arg-type]


async def test_round_robin_size_changes_for_connected_consumers() -> None:
    stage = Stage(round_robin_entries_max=1)
    topic = await stage.open()
    _, _, first = await stage.consume(topic, permits=100)
    _, _, second = await stage.consume(topic, permits=100)
    await stage.publish(topic, 4)
    assert [entry_id for _, entry_id in first.keys] in ([0, 2], [1, 3])
    reconfigure(stage, round_robin_entries_max=2)
    first.got.clear()
    second.got.clear()
    await stage.publish(topic, 4)
    assert [entry_id for _, entry_id in first.keys] in ([4, 5], [6, 7])


async def test_raised_look_ahead_limit_wakes_the_dispatcher() -> None:
    stage = Stage(look_ahead_per_consumer=0, look_ahead_per_subscription=2, read_entries_max=2)
    topic = await stage.open()
    _, _, asleep = await stage.consume(topic, KEY_SHARED, ranges=((0, 32767),))
    _, _, awake = await stage.consume(topic, KEY_SHARED, permits=50, ranges=((32768, 65535),))
    keys = [f"k{number}" for number in range(20)]
    held_back = [key for key in keys if sticky_hash_of(key.encode()) <= 32767]
    free = [key for key in keys if key not in held_back]
    await stage.publish(topic, keys=[*held_back, *free])
    assert (asleep.got, awake.got) == ([], [])
    reconfigure(stage, look_ahead_per_subscription=100)
    await stage.settle()
    assert (len(asleep.got), len(awake.got)) == (0, len(free))


async def test_redelivery_tracker_shows_counts_once_it_is_switched_on() -> None:
    stage = Stage(redelivery_tracker=False)
    topic = await stage.open()
    subscription, consumer, port = await stage.consume(topic, permits=10)
    await stage.publish(topic, 1)
    subscription.redeliver(consumer, None, None)
    await stage.settle()
    assert port.counts == [0, 0]
    reconfigure(stage, redelivery_tracker=True)
    subscription.redeliver(consumer, None, None)
    await stage.settle()
    assert port.counts[2] == 2


async def test_rules_for_creating_topics_and_partitions_change_at_run_time() -> None:
    stage = Stage()
    await stage.open()
    reconfigure(stage, auto_topic_creation=False, partitions_max=2)
    other = parse_topic_name("persistent://public/default/other")
    with pytest.raises(TopicNotFound):
        await stage.run(stage.registry.get(other, create=True))
    with pytest.raises(NotAllowed, match="from 1 to 2"):
        await stage.run(stage.partitioned.create(other, 3))


async def test_rule_for_creating_subscriptions_changes_for_an_open_topic() -> None:
    stage = Stage()
    topic = await stage.open()
    reconfigure(stage, auto_subscription_creation=False)
    with pytest.raises(SubscriptionNotFound):
        await stage.consume(topic)


async def test_topic_in_opening_gets_settings_changed_meanwhile() -> None:
    stage = Stage()
    await stage.namespaces.open()
    stage.metadata.gate = asyncio.Event()
    opening = asyncio.ensure_future(stage.open())
    await stage.settle()
    assert not opening.done()
    reconfigure(stage, backlog_cursors=2, round_robin_entries_max=3)
    stage.metadata.gate.set()
    topic = await stage.run(asyncio.wait_for(opening, 60))
    assert topic is stage.registry.topics[TOPIC]
    assert topic.settings.round_robin_entries_max == 3
    assert topic.ledger.context.settings.backlog_cursors_min_for_caching == 2


async def test_ledger_settings_change_for_an_open_topic() -> None:
    stage = Stage()
    topic = await stage.open()
    reconfigure(stage, backlog_cursors=2)
    assert topic.ledger.context.settings.backlog_cursors_min_for_caching == 2


async def test_settings_reach_many_open_topics_in_slices() -> None:
    stage = Stage(round_robin_entries_max=1)
    names = [f"{TOPIC}-{number}" for number in range(ITEMS_MAX + 1)]
    topics = [await stage.open(name) for name in names]
    stage.timers.clear()
    reconfigure(stage, round_robin_entries_max=2)
    assert [topic.settings.round_robin_entries_max for topic in topics] == [2] * ITEMS_MAX + [1]
    # A second change while the first one goes on: the last topic takes the newest settings from either.
    reconfigure(stage, round_robin_entries_max=3)
    first, second = stage.timers
    first[1]()
    assert topics[-1].settings.round_robin_entries_max == 3
    second[1]()
    assert {topic.settings.round_robin_entries_max for topic in topics} == {3}
    assert stage.timers == [first, second]
