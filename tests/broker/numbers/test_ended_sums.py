"""EndedSums over a broker in memory: counters of sums do not fall when a topic is closed, kept or by a walk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pulsar
import pytest

from broker.compose.broker_service import BrokerService
from broker.metrics.exposition import ExpositionSettings, TopicExposition
from broker.numbers.ended_sums import EndedSums
from broker.numbers.namespace_sums import NamespaceSums
from broker.numbers.topic_reader import TopicReader
from broker.numbers.windows import TopicWindows
from broker.service.policies.backlog_quota import SIZE
from broker.service.subscriptions.backlog.evictions import QuotaEviction, QuotaEvictions
from broker.service.topics.dormant_topic import NOT_KNOWN
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.model.position import EARLIEST
from foundation.model.topic_name import parse_topic_name
from tests.support.memory_broker import memory_broker

NAMESPACE = "public/default"
STAYS, ENDS = f"persistent://{NAMESPACE}/a", f"persistent://{NAMESPACE}/b"
LIVE = f"non-persistent://{NAMESPACE}/live"
WAIT_MS = 60_000
MESSAGE = b"x" * 100
READ = "pulsar_ml_cache_x_topic_hits_total", "pulsar_ml_cache_x_topic_misses_total"


@dataclass(frozen=True, slots=True)
class Fixture:
    broker: BrokerService
    reader: TopicReader
    kept: NamespaceSums
    ended: EndedSums
    client: pulsar.Client

    def counters(self, *, topic_level: bool = False) -> dict[str, float]:
        """Returns the counters of namespaces and of the broker; those of a walk and those of the kept sums are equal."""
        with self.ended.walk() as begun:
            walk = exposition(topic_level=topic_level)
            list(walk.slices(self.reader.topics(begun.passed_over), ended=begun.rows))
        list(self.kept.update())
        kept = exposition(topic_level=topic_level)
        list(kept.slices((), self.kept, self.ended.rows))
        counters = counters_of(walk)
        assert counters == counters_of(kept)
        return counters

    async def publish(self, topic: str, messages: int) -> None:
        producer = await asyncio.to_thread(self.client.create_producer, topic, batching_enabled=False)
        for _ in range(messages):
            await asyncio.to_thread(producer.send, MESSAGE)
        await asyncio.to_thread(producer.close)

    async def receive(self, topic: str, messages: int) -> pulsar.Consumer:
        consumer = await asyncio.to_thread(
            self.client.subscribe,
            topic,
            "s",
            initial_position=pulsar.InitialPosition.Earliest,
        )
        for _ in range(messages):
            await asyncio.to_thread(consumer.receive, timeout_millis=WAIT_MS)
        return consumer

    async def use(self, topic: str, messages: int) -> None:
        """Publishes, and receives everything."""
        await self.publish(topic, messages)
        consumer = await self.receive(topic, messages)
        await asyncio.to_thread(consumer.close)

    async def topic(self, name: str = ENDS) -> PersistentTopic:
        topic = await self.broker.registry.get(parse_topic_name(name), create=True)
        assert isinstance(topic, PersistentTopic)
        return topic


def exposition(*, topic_level: bool) -> TopicExposition:
    return TopicExposition(ExpositionSettings(cluster="c", topic_level=topic_level), TopicWindows(0))


def counters_of(written: TopicExposition) -> dict[str, float]:
    text = b"".join(written.chunks(openmetrics=False)).decode()
    rows = [line.rpartition(" ") for line in text.splitlines() if "_total{" in line]
    return {series: float(value) for series, _, value in rows if 'topic="' not in series}


@asynccontextmanager
async def fixture() -> AsyncIterator[Fixture]:
    async with memory_broker() as broker:
        reader = TopicReader(broker.registry, 1, consumers=False, producers=False)
        client = pulsar.Client(
            broker.addresses.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        )
        kept = NamespaceSums(reader, broker.environment.changed)
        yield Fixture(broker, reader, kept, EndedSums(broker.registry, reader, kept), client)
        await asyncio.to_thread(client.close)


async def asleep(made: Fixture) -> None:
    await made.broker.registry.fall_asleep(await made.topic(), NOT_KNOWN)


async def unloaded(made: Fixture) -> None:
    await made.broker.registry.unload(parse_topic_name(ENDS))


async def deleted(made: Fixture) -> None:
    async def nothing_else() -> None:
        pass

    await made.broker.registry.shut(parse_topic_name(ENDS), nothing_else, force=True)


async def opened_again(made: Fixture) -> None:
    await asleep(made)
    made.counters()
    await made.topic()


ENDINGS: dict[str, Callable[[Fixture], Awaitable[None]]] = {
    each.__name__: each for each in (asleep, unloaded, deleted, opened_again)
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("topic_level", [False, True])
async def test_counters_of_sums_stay_when_a_topic_ends(ending: str, topic_level: bool) -> None:
    async with fixture() as made:
        await made.publish(STAYS, 20)
        await made.use(ENDS, 3)
        (await made.topic()).quotas.evictions = QuotaEvictions()
        position = EARLIEST
        (await made.topic()).quotas.evictions.add(QuotaEviction(1, "s", SIZE, 1, position, position, 5))
        before = made.counters(topic_level=topic_level)
        of_broker = '{cluster="c"}'
        assert before["pulsar_broker_in_bytes_total" + of_broker] >= 23 * len(MESSAGE)
        assert before["pulsar_broker_out_bytes_total" + of_broker] >= 3 * len(MESSAGE)
        evicted = "pulsar_broker_storage_backlog_quota_exceeded_evictions_total"
        assert before[evicted + '{cluster="c",quota_type="size"}'] == 1
        if not topic_level:
            of_namespace = f'{{cluster="c",namespace="{NAMESPACE}"}}'
            assert before["pulsar_in_messages_total" + of_namespace] == 23
            assert before["pulsar_out_messages_total" + of_namespace] == 3
            assert sum(before[name + of_namespace] for name in READ) == 3
        await ENDINGS[ending](made)
        assert made.counters(topic_level=topic_level) == before


async def test_counters_of_sums_grow_from_where_they_were_when_a_topic_is_used_again() -> None:
    async with fixture() as made:
        of_namespace = f'{{cluster="c",namespace="{NAMESPACE}"}}'
        for uses in (1, 2, 3):
            await made.use(ENDS, 3)
            assert made.counters()["pulsar_in_messages_total" + of_namespace] == 3 * uses
            await asleep(made)
            assert made.counters()["pulsar_in_messages_total" + of_namespace] == 3 * uses


async def test_counters_stay_when_the_last_topic_of_a_namespace_ends() -> None:
    async with fixture() as made:
        await made.use(LIVE, 0)
        await made.publish(LIVE, 2)
        before = made.counters()
        await made.broker.registry.unload(parse_topic_name(LIVE))
        assert made.counters() == before
        assert before[f'pulsar_in_messages_total{{cluster="c",namespace="{NAMESPACE}"}}'] == 2


async def test_a_deleted_namespace_leaves_its_counters_to_the_broker() -> None:
    async with fixture() as made:
        namespaces = made.broker.registry.namespaces
        await namespaces.create("public/short")
        await made.publish("persistent://public/short/t", 2)
        before = made.counters()
        await made.broker.registry.unload(parse_topic_name("persistent://public/short/t"))
        await namespaces.delete("public/short")
        after = made.counters()
        assert not [series for series in after if "public/short" in series]
        assert after == {series: value for series, value in before.items() if "public/short" not in series}


async def test_sent_messages_stay_when_a_reader_leaves() -> None:
    async with fixture() as made:
        await made.publish(ENDS, 3)
        reader = await asyncio.to_thread(made.client.create_reader, ENDS, pulsar.MessageId.earliest)
        for _ in range(3):
            await asyncio.to_thread(reader.read_next, timeout_millis=WAIT_MS)
        before = made.counters()
        await asyncio.to_thread(reader.close)
        async with asyncio.timeout(60):
            while (await made.topic()).subscriptions:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.01)
        assert made.counters() == before
        assert before[f'pulsar_out_messages_total{{cluster="c",namespace="{NAMESPACE}"}}'] == 3


@pytest.mark.parametrize("read_before_it_ends", [False, True])
async def test_a_walk_counts_a_topic_once_that_ends_meanwhile(read_before_it_ends: bool) -> None:
    async with fixture() as made:
        await made.publish(STAYS, 2)
        await made.use(ENDS, 3)
        before = made.counters()
        with made.ended.walk() as begun:
            walk = exposition(topic_level=False)
            readings = made.reader.topics(begun.passed_over)
            # Topics are read in the order of their openings.
            known = [next(readings) for _ in range(1 + read_before_it_ends)]
            await asleep(made)
            list(walk.slices([*known, *readings], ended=begun.rows))
        assert counters_of(walk) == before


async def test_kept_sums_count_a_topic_once_that_ends_while_a_scrape_is_written() -> None:
    async with fixture() as made:
        await made.publish(STAYS, 2)
        await made.use(ENDS, 3)
        before = made.counters()
        await asleep(made)
        # As at the end of a scrape whose update of the sums was before.
        kept = exposition(topic_level=False)
        list(kept.slices((), made.kept, made.ended.rows))
        assert counters_of(kept) == before
