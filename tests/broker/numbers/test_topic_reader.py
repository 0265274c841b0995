"""TopicReader over the topics of a broker in memory: idle ones are read once, and every count ends that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pulsar
import pytest

from broker.admin.topics.stats import rates_of_topic
from broker.compose.broker_service import BrokerService
from broker.numbers.readings import Chosen, TopicReading
from broker.numbers.topic_reader import TopicReader
from broker.numbers.windows import NOTHING_YET, TopicWindows
from broker.service.subscriptions.backlog.evictions import NONE_EXPIRED
from broker.service.topics import ended_topics
from broker.service.topics.persistent_topic import PersistentTopic
from entry_cache.cache_stats import ReadStats
from foundation.model.position import LATEST
from foundation.model.topic_name import parse_topic_name
from tests.support.memory_broker import memory_broker

TOPIC = "persistent://public/default/t"
S = 10**9


def reader_of(broker: BrokerService) -> TopicReader:
    return TopicReader(broker.registry, 1, consumers=False, producers=False)


def used_and_left(url: str) -> None:
    """A message that `s` has read; no client stays."""
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe(TOPIC, "s")
    client.create_producer(TOPIC).send(b"m")
    consumer.acknowledge(consumer.receive(timeout_millis=60_000))
    client.close()


COUNTS: dict[str, Callable[[Any], None]] = {
    "messages": lambda topic: setattr(topic, "messages_in", topic.messages_in + 1),
    "entries added": lambda topic: _grow(topic.ledger.context.counters(), "entries_added"),
    "failed adds": lambda topic: _grow(topic.ledger.context.counters(), "add_errors"),
    "entries read": lambda topic: _grow(topic.ledger.context.counters(), "entries_read"),
    "failed reads": lambda topic: _grow(topic.ledger.context.counters(), "read_errors"),
    "misses": lambda topic: _grow(_reads_of(topic), "miss_entries"),
    "messages out": lambda topic: _grow(topic.subscriptions["s"], "retired_messages_out"),
    "redelivered": lambda topic: _grow(topic.subscriptions["s"], "retired_redelivered"),
    "expired": lambda topic: setattr(topic.subscriptions["s"], "expired", NONE_EXPIRED.counted(1, 1)),
    "a subscription less": lambda topic: topic.subscriptions.clear(),
}
"""Everything that the rates of a window come from."""


def _reads_of(topic: PersistentTopic) -> ReadStats:
    return topic.ledger.cache.counters(topic.subscriptions["s"].cursor.reader)[0]


def _grow(owner: object, name: str) -> None:
    setattr(owner, name, getattr(owner, name) + 1)


async def idle(broker: BrokerService) -> tuple[PersistentTopic, dict[str, TopicReading]]:
    """Returns a used topic without clients, and its reading."""
    await asyncio.to_thread(used_and_left, broker.addresses.service_url)
    topic = broker.registry.topics[TOPIC]
    assert isinstance(topic, PersistentTopic)
    async with asyncio.timeout(60):
        while topic.subscriptions["s"].consumers or topic.access.producers:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.01)
    [reading] = reader_of(broker).topics()
    return topic, {TOPIC: reading}


@pytest.mark.parametrize("count", COUNTS)
async def test_idle_topic_is_read_again_when_something_has_counted(count: str) -> None:
    async with memory_broker() as broker:
        topic, before = await idle(broker)
        [again] = reader_of(broker).since(before)
        assert again is before[TOPIC], "a topic without traffic costs no new reading"
        COUNTS[count](topic)
        [changed] = reader_of(broker).since(before)
        assert changed is not again


async def test_idle_topic_has_no_window_and_its_next_message_counts() -> None:
    async with memory_broker() as broker:
        topic, _ = await idle(broker)
        windows, reader = TopicWindows(0), reader_of(broker)
        for second in (1, 2):
            list(windows.roll(reader.since(windows.readings), second * S))
            assert (windows.of(TOPIC) is NOTHING_YET) == (second == 2)
        topic.messages_in += 3
        list(windows.roll(reader.since(windows.readings), 3 * S))
        assert rates_of_topic(windows.of(TOPIC).row)["msgRateIn"] == 3


async def silent(broker: BrokerService) -> PersistentTopic:
    topic = await broker.registry.get(parse_topic_name(TOPIC), create=True)
    assert isinstance(topic, PersistentTopic)
    await topic.subscribing.create("s", LATEST)
    return topic


@pytest.mark.parametrize("count", sorted(COUNTS.keys() - {"a subscription less"}))
async def test_silent_topic_keeps_no_reading_until_something_has_counted(count: str) -> None:
    async with memory_broker() as broker:
        topic, windows, reader = await silent(broker), TopicWindows(0), reader_of(broker)
        list(windows.roll(reader.since(windows.readings), S))
        assert windows.readings == {}, "thousands of silent topics would take 4 KB each"
        COUNTS[count](topic)
        list(windows.roll(reader.since(windows.readings), 2 * S))
        assert list(windows.readings) == [TOPIC]


async def test_first_message_of_a_silent_topic_counts_in_its_window() -> None:
    async with memory_broker() as broker:
        topic, windows, reader = await silent(broker), TopicWindows(0), reader_of(broker)
        list(windows.roll(reader.since(windows.readings), S))
        topic.messages_in += 3
        list(windows.roll(reader.since(windows.readings), 2 * S))
        assert rates_of_topic(windows.of(TOPIC).row)["msgRateIn"] == 3


async def asleep_and_open(broker: BrokerService, dormant: int) -> list[str]:
    """Makes an open topic and so many dormant ones; returns their names."""
    names = [f"persistent://public/default/{number}" for number in range(dormant + 1)]
    for name in names:
        topic = await broker.registry.get(parse_topic_name(name), create=True)
        assert isinstance(topic, PersistentTopic)
        if name != names[0]:
            await broker.registry.fall_asleep(topic, -1)
    return names


NAMESPACE = Chosen(frozenset({"public/default"}))


async def test_chosen_namespace_is_read_topic_by_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    async with memory_broker() as broker:
        names = await asleep_and_open(broker, 5)
        taken, all_names = [0], broker.registry.dormant.names

        def counted(namespace: str) -> Iterator[str]:
            for name in all_names(namespace):
                taken[0] += 1
                yield name

        monkeypatch.setattr(broker.registry.dormant, "names", counted)
        steps = []
        found = []
        for reading in reader_of(broker).chosen(NAMESPACE):
            found.append(reading.topic)
            steps.append(taken[0])
        assert sorted(found) == sorted(names)
        assert steps == [0, 1, 2, 3, 4, 5], "a step over all names holds the loop"


async def test_topic_of_a_chosen_namespace_that_falls_asleep_meanwhile_has_one_reading() -> None:
    async with memory_broker() as broker:
        names = await asleep_and_open(broker, 2)
        readings = reader_of(broker).chosen(Chosen(frozenset({"public/default"}), frozenset({names[0]})))
        found = [next(readings).topic]
        topic = broker.registry.topics[names[0]]
        assert isinstance(topic, PersistentTopic)
        await broker.registry.fall_asleep(topic, -1)
        found += [reading.topic for reading in readings]
        assert sorted(found) == sorted(names)


async def test_chosen_topics_are_read_and_unknown_ones_are_left_out() -> None:
    async with memory_broker() as broker:
        names = await asleep_and_open(broker, 2)
        readings = reader_of(broker).chosen(Chosen(topics=frozenset({*names[:2], f"{names[0]}-none"})))
        assert {reading.topic for reading in readings} == set(names[:2])


async def test_walks_pass_a_topic_that_has_fallen_asleep_and_was_taken_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ended_topics, "KEPT_NS", 0)
    async with memory_broker() as broker:
        names = await asleep_and_open(broker, 1)
        other = await broker.registry.get(parse_topic_name(TOPIC), create=True)
        reader, registry = reader_of(broker), broker.registry
        walks = reader.topics(), reader.chosen(NAMESPACE)
        found = [[next(walk).topic] for walk in walks]
        window = reader.since({})
        assert next(window) is None
        assert isinstance(other, PersistentTopic)
        await registry.fall_asleep(other, -1)
        for _ in registry.ended.take_apart():
            pass
        assert not hasattr(other, "ledger")
        for walk, before in zip(walks, found, strict=True):
            assert sorted(before + [reading.topic for reading in walk]) == sorted([*names, TOPIC])
        assert [*window] == []
