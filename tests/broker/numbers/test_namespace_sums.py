"""Sums over a broker in memory, NamespaceSums and the console's: those of a walk after every change, without one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pulsar
import pytest

from broker.compose.broker_service import BrokerService
from broker.console.traffic import Traffic, counts_of
from broker.managed_ledger import stats
from broker.managed_ledger.stats import ChangedLedgers
from broker.metrics.exposition import ExpositionSettings, TopicExposition
from broker.numbers.ended_sums import EndedSums
from broker.numbers.namespace_sums import SHELVES, NamespaceSums
from broker.numbers.readings import TopicReading
from broker.numbers.topic_reader import TopicReader
from broker.numbers.windows import TopicWindows
from broker.service.subscriptions.subscription import Subscription
from broker.service.topics.dormant_topic import NOT_KNOWN
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.model.position import EARLIEST, LATEST
from foundation.model.topic_name import parse_topic_name
from tests.support.memory_broker import memory_broker

TOPIC = "persistent://public/default/t"
OTHER = "persistent://public/default/other"
LIVE = "non-persistent://public/default/live"
WAIT_MS = 60_000
SETTINGS = ExpositionSettings(cluster="c", topic_level=False)


class CountingReader(TopicReader):
    """Knows which topics were read one by one."""

    def __init__(self, broker: BrokerService) -> None:
        super().__init__(broker.registry, 1, consumers=False, producers=False)
        self.read_names: list[str] = []

    def read(self, name: str) -> TopicReading | None:
        self.read_names.append(name)
        return super().read(name)


@dataclass(frozen=True, slots=True)
class Fixture:
    broker: BrokerService
    reader: CountingReader
    sums: NamespaceSums
    ended: EndedSums
    traffic: Traffic
    windows: TopicWindows
    client: pulsar.Client

    def check(self) -> None:
        """Compares the text that the kept sums give with that of a walk, and the console's sums, in one turn of the loop."""
        self._check_console()
        list(self.sums.update())
        walk, kept = TopicExposition(SETTINGS, self.windows), TopicExposition(SETTINGS, self.windows)
        with self.ended.walk() as begun:
            list(walk.slices(self.reader.topics(begun.passed_over), ended=begun.rows))
        list(kept.slices((), self.sums, self.ended.rows))
        assert sorted(text_of(kept).splitlines()) == sorted(text_of(walk).splitlines())

    def _check_console(self) -> None:
        registry = self.broker.registry
        kept, walked = self.traffic, Traffic(registry.topics, registry.dormant, ChangedLedgers())
        for each in (kept, walked):
            list(each.read_changes())
        assert kept.levels == walked.levels
        assert kept.by_namespace() == walked.by_namespace()
        counted = {name: one.counts.numbers for name, one in kept._known.items()}
        assert counted == {one.name.ledger_name: counts_of(one).numbers for one in registry.topics.values()}

    def busy(self) -> set[str]:
        list(self.sums.update())
        return {reading.topic for reading in self.sums.busy(self.windows)}

    async def topic(self, name: str = TOPIC) -> PersistentTopic:
        topic = await self.broker.registry.get(parse_topic_name(name), create=True)
        assert isinstance(topic, PersistentTopic)
        return topic

    async def subscription(self) -> Subscription:
        topic = await self.topic()
        self.check()
        await topic.subscribing.create("s", LATEST)
        self.check()
        return topic.subscriptions["s"]

    async def publish(self, messages: int) -> None:
        producer = await asyncio.to_thread(self.client.create_producer, TOPIC, batching_enabled=False)
        for _ in range(messages):
            self.check()
            await asyncio.to_thread(producer.send, b"x" * 100)
        self.check()
        await asyncio.to_thread(producer.close)
        self.check()

    async def receive(self, messages: int, acked: int) -> pulsar.Consumer:
        consumer = await asyncio.to_thread(
            self.client.subscribe, TOPIC, "s", consumer_type=pulsar.ConsumerType.Shared, receiver_queue_size=1
        )
        self.check()
        for number in range(messages):
            message = await asyncio.to_thread(consumer.receive, timeout_millis=WAIT_MS)
            self.check()
            if number < acked:
                await asyncio.to_thread(consumer.acknowledge, message)
        return consumer


def text_of(exposition: TopicExposition) -> str:
    return b"".join(exposition.chunks(openmetrics=False)).decode()


@asynccontextmanager
async def fixture() -> AsyncIterator[Fixture]:
    async with memory_broker() as broker:
        reader = CountingReader(broker)
        client = pulsar.Client(
            broker.addresses.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        )
        sums = NamespaceSums(reader, broker.environment.changed)
        traffic = Traffic(broker.registry.topics, broker.registry.dormant, broker.environment.changed)
        ended = EndedSums(broker.registry, reader, sums)
        yield Fixture(broker, reader, sums, ended, traffic, TopicWindows(0), client)
        await asyncio.to_thread(client.close)


async def opened(made: Fixture) -> None:
    await made.topic()


async def subscribed(made: Fixture) -> None:
    await made.subscription()


async def published(made: Fixture) -> None:
    await made.publish(3)


async def producer_connected(made: Fixture) -> None:
    await asyncio.to_thread(made.client.create_producer, TOPIC)


async def producer_left(made: Fixture) -> None:
    await producer_connected(made)
    made.check()
    (await made.topic()).disconnect_producers()


async def delivered(made: Fixture) -> None:
    await made.subscription()
    await made.publish(3)
    made.check()
    await made.receive(3, acked=0)


async def delivered_exclusively(made: Fixture) -> None:
    await made.subscription()
    await made.publish(3)
    consumer = await asyncio.to_thread(made.client.subscribe, TOPIC, "s", receiver_queue_size=1)
    for _ in range(3):
        await asyncio.to_thread(consumer.receive, timeout_millis=WAIT_MS)
        made.check()


async def acknowledged(made: Fixture) -> None:
    subscription = await made.subscription()
    await made.publish(3)
    made.check()
    subscription.acknowledge_through((await made.topic()).ledger.last_confirmed)


async def consumer_left(made: Fixture) -> None:
    subscription = await made.subscription()
    await made.receive(0, acked=0)
    made.check()
    subscription.disconnect()
    made.check()


async def sought(made: Fixture) -> None:
    subscription = await made.subscription()
    await made.publish(3)
    subscription.acknowledge_through((await made.topic()).ledger.last_confirmed)
    made.check()
    await subscription.seek(EARLIEST)


async def unsubscribed(made: Fixture) -> None:
    subscription = await made.subscription()
    made.check()
    await (await made.topic()).subscribing.delete(subscription, None, force=True)


async def redelivered(made: Fixture) -> None:
    await made.subscription()
    await made.publish(2)
    consumer = await made.receive(2, acked=0)
    made.check()

    def work() -> None:
        consumer.redeliver_unacknowledged_messages()
        for _ in range(2):
            consumer.receive(timeout_millis=WAIT_MS)

    await asyncio.to_thread(work)


async def trimmed(made: Fixture) -> None:
    await made.publish(3)
    topic = await made.topic()
    made.check()
    topic.ledger.writer._roll_at_ns = 0
    await made.publish(1)
    async with asyncio.timeout(60):
        while len(topic.ledger.ledgers) < 2:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.01)
    made.check()
    assert topic.ledger.trimming.trim(10**15, without_cursors=True)


async def deleted(made: Fixture) -> None:
    await made.publish(3)
    await made.topic(OTHER)
    made.check()
    unload = asyncio.create_task(made.broker.registry.unload(parse_topic_name(TOPIC)))
    while not unload.done():
        made.check()
        await asyncio.sleep(0)


async def without_a_log(made: Fixture) -> None:
    producer = await asyncio.to_thread(made.client.create_producer, LIVE)
    made.check()
    consumer = await asyncio.to_thread(made.client.subscribe, LIVE, "s")
    made.check()
    for _ in range(2):
        await asyncio.to_thread(producer.send, b"x")
        made.check()
    await asyncio.to_thread(consumer.close)
    made.check()
    await asyncio.to_thread(producer.close)


async def looked_at(made: Fixture) -> None:
    await made.publish(1)
    topic = await made.topic()
    for stored in (False, True):
        if stored:
            topic.ledger.cache.invalidate_ledger(topic.ledger.last_confirmed.ledger_id)
        made.check()
        look = asyncio.create_task(topic.ledger.read_entry(topic.ledger.last_confirmed))
        while not look.done():
            made.check()
            await asyncio.sleep(0)


CHANGES: dict[str, Callable[[Fixture], Awaitable[None]]] = {
    each.__name__: each
    for each in (
        opened,
        subscribed,
        published,
        producer_connected,
        producer_left,
        delivered,
        delivered_exclusively,
        acknowledged,
        consumer_left,
        sought,
        unsubscribed,
        redelivered,
        trimmed,
        deleted,
        without_a_log,
        looked_at,
    )
}
"""Everything that changes a number of a sum."""


@pytest.mark.parametrize("change", CHANGES)
async def test_kept_sums_equal_those_of_a_walk_after_a_change(change: str) -> None:
    async with fixture() as made:
        made.check()
        await CHANGES[change](made)
        made.check()


async def test_sums_begin_with_the_topics_that_were_open_before() -> None:
    async with memory_broker() as broker:
        await broker.registry.get(parse_topic_name(TOPIC), create=True)
        reader = CountingReader(broker)
        sums = NamespaceSums(reader, broker.environment.changed)
        list(sums.update())
        assert list(sums.by_namespace(TopicWindows(0))) == ["public/default"]


async def test_silent_topics_are_not_read_again() -> None:
    async with fixture() as made:
        for number in range(100):
            await made.topic(f"persistent://public/default/silent-{number}")
        await asyncio.to_thread(made.client.create_producer, LIVE)
        await made.publish(1)
        list(made.sums.update())
        made.reader.read_names.clear()
        list(made.sums.update())
        assert made.reader.read_names == []
        await made.publish(1)
        list(made.sums.update())
        assert set(made.reader.read_names) == {TOPIC}


async def test_changed_topics_of_several_dicts_are_all_summed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stats, "CHANGED_AT_ONCE", 3)
    async with fixture() as made:
        made.check()
        for number in range(10):
            await made.topic(f"persistent://public/default/new-{number}")
        made.check()
        for number in range(10, 20):
            await made.topic(f"persistent://public/default/new-{number}")
        made.check()


async def test_shares_of_topics_are_spread_over_small_dicts() -> None:
    async with fixture() as made:
        for number in range(4 * SHELVES):
            await made.topic(f"persistent://public/default/{number}")
        list(made.sums.update())
        sizes = [len(shelf) for shelf in made.sums._shelves]
        assert sum(sizes) == 4 * SHELVES
        assert max(sizes) < SHELVES, "one large dict is made anew in one piece"


async def test_rates_of_the_last_window_are_part_of_the_sums() -> None:
    async with fixture() as made:
        await made.topic(OTHER)
        await made.publish(5)
        list(made.windows.roll(made.reader.since(made.windows.readings), 10**9))
        made.check()
        assert 'pulsar_rate_in{cluster="c",namespace="public/default"} 5.0' in _kept_text(made)


async def test_updates_that_run_at_once_read_each_changed_topic_once() -> None:
    async with fixture() as made:
        for number in range(300):
            await made.topic(f"persistent://public/default/silent-{number}")
        made.reader.read_names.clear()
        updates = [made.sums.update(), made.sums.update()]
        while updates:
            updates = [one for one in updates if next(one, updates) is None]
        assert len(made.reader.read_names) == len(set(made.reader.read_names)) == 300
        made.check()


async def test_dormant_topic_is_idle_from_the_moment_it_falls_asleep() -> None:
    async with fixture() as made:
        await made.publish(1)
        assert made.busy() == {TOPIC}
        list(made.sums.update())
        made.sums.begin_window()
        made.sums.window_closed()
        await made.broker.registry.fall_asleep(await made.topic(), NOT_KNOWN)
        made.check()
        assert made.busy() == set()


def _kept_text(made: Fixture) -> str:
    kept = TopicExposition(SETTINGS, made.windows)
    list(kept.slices((), made.sums, made.ended.rows))
    return text_of(kept)


async def test_idle_topic_becomes_busy_by_a_client_or_a_message_until_a_window_without() -> None:
    async with fixture() as made:
        await made.topic(OTHER)

        def close_window(second: int) -> None:
            list(made.sums.update())
            made.sums.begin_window()
            list(made.windows.roll(made.reader.since(made.windows.readings), second * 10**9))
            made.sums.window_closed()

        assert made.busy() == {OTHER}, "opened in this window"
        close_window(1)
        assert made.busy() == set()
        await made.publish(1)
        assert made.busy() == {TOPIC}
        close_window(2)
        assert made.busy() == {TOPIC}, "the last whole window has its rates"
        close_window(3)
        assert made.busy() == set()
        await producer_connected(made)
        close_window(4)
        assert made.busy() == {TOPIC}, "silent, with a producer"
