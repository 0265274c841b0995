"""What a whole broker counts while an official client works with it comes out of its `/metrics`."""

from __future__ import annotations

import asyncio
from typing import Any

import pulsar
import pytest
from aiohttp import ClientSession

from broker.compose.broker_service import BrokerService
from broker.compose.metrics_source import MetricsSource
from broker.numbers.ended_sums import Walk
from broker.numbers.readings import CONSUMERS, PRODUCERS
from foundation.model.topic_name import parse_topic_name
from tests.metrics_check import core_names, names_in

TOPIC = "persistent://public/default/counted"
MESSAGES = 50
ACKED = 20


def work(url: str) -> pulsar.Client:
    """Produces, consumes, acknowledges a part; the client stays connected."""
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe(TOPIC, "s", consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(TOPIC)
    for _ in range(MESSAGES):
        producer.send(b"x" * 100)
    for number in range(MESSAGES):
        message = consumer.receive(timeout_millis=60_000)
        if number < ACKED:
            consumer.acknowledge(message)
    return client


async def scraped(admin: ClientSession) -> dict[str, float]:
    async with admin.get("/metrics") as answer:
        text = await answer.text()
    assert [name for name in core_names("broker") if name not in names_in(text)] == []
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {series: float(value) for series, _, value in lines}


async def test_scrape_counts_the_work_of_a_client(broker: BrokerService, admin: ClientSession) -> None:
    client = await asyncio.to_thread(work, broker.addresses.service_url)
    topic = f'cluster="standalone",namespace="public/default",topic="{TOPIC}"'
    unacked = f'pulsar_subscription_unacked_messages{{{topic},subscription="s"}}'
    async with asyncio.timeout(60):
        while (values := await scraped(admin))[unacked] != MESSAGES - ACKED:  # noqa: ASYNC110 - acks need no answer
            await asyncio.sleep(0.01)
    assert values[f"pulsar_in_messages_total{{{topic}}}"] == MESSAGES
    assert values[f'pulsar_out_messages_total{{{topic},subscription="s"}}'] == MESSAGES
    assert values[f"pulsar_producers_count{{{topic}}}"] == 1
    assert values[f"pulsar_consumers_count{{{topic}}}"] == 1
    assert values[f"pulsar_msg_backlog{{{topic}}}"] == MESSAGES - ACKED
    assert values[f"pulsar_storage_size{{{topic}}}"] > MESSAGES * 100
    assert values[f"pulsar_storage_backlog_size{{{topic}}}"] > (MESSAGES - ACKED) * 100
    assert values[f"pulsar_ml_cache_x_topic_hits_total{{{topic}}}"] == MESSAGES
    assert values[f"pulsar_ml_cache_x_topic_misses_total{{{topic}}}"] == 0
    assert values['pulsar_ml_cache_x_insertions_total{cluster="standalone"}'] == MESSAGES
    assert values['pulsar_active_connections{cluster="standalone"}'] == 1
    assert values['pulsar_broker_topics_count{cluster="standalone"}'] == 1
    await asyncio.to_thread(client.close)


async def test_windows_have_latencies_and_sizes(broker: BrokerService, admin: ClientSession) -> None:
    client = await asyncio.to_thread(work, broker.addresses.service_url)
    of_topic: dict[str, float] = {}
    async with asyncio.timeout(60):
        while not of_topic.get("pulsar_rate_in"):
            values = await scraped(admin)
            of_topic = {n.partition("{")[0]: v for n, v in values.items() if f'topic="{TOPIC}"}}' in n}
            await asyncio.sleep(0.02)
    latencies = [v for n, v in of_topic.items() if n.startswith("pulsar_storage_write_latency_le_")]
    assert sum(latencies) == of_topic["pulsar_storage_write_latency_count"] > 0
    assert of_topic["pulsar_storage_write_latency_sum"] > 0
    assert of_topic["pulsar_entry_size_le_512"] == of_topic["pulsar_entry_size_count"] > 0
    assert of_topic["pulsar_average_msg_size"] >= 100
    latencies = [v for n, v in values.items() if n.startswith("pulsar_broker_publish_latency_count")]
    assert sum(latencies) >= MESSAGES
    await asyncio.to_thread(client.close)


async def test_producers_and_consumers_are_read_only_when_asked_for(broker: BrokerService) -> None:
    client = await asyncio.to_thread(work, broker.addresses.service_url)
    (without,) = MetricsSource(broker, consumers=False, producers=False).topics(Walk({}))
    assert (without.producers, without.subscriptions[0].parts) == ((), ())
    (with_them,) = MetricsSource(broker, consumers=True, producers=True).topics(Walk({}))
    assert with_them.producers[0].row[PRODUCERS.names.index("messages_in")] == MESSAGES
    assert with_them.subscriptions[0].parts[0].row[CONSUMERS.names.index("messages_out")] == MESSAGES
    await asyncio.to_thread(client.close)


async def test_reading_keeps_its_numbers_when_the_counters_move_on(broker: BrokerService) -> None:
    client = await asyncio.to_thread(work, broker.addresses.service_url)
    source = MetricsSource(broker, consumers=False, producers=False)
    (before,) = source.topics(Walk({}))
    counted = (sum(before.write_latency), sum(before.entry_size))
    producer = await asyncio.to_thread(client.create_producer, TOPIC)
    await asyncio.to_thread(producer.send, b"one more")
    (after,) = source.topics(Walk({}))
    assert (sum(before.write_latency), sum(before.entry_size)) == counted == (MESSAGES, MESSAGES)
    assert (sum(after.write_latency), sum(after.entry_size)) == (MESSAGES + 1, MESSAGES + 1)
    await asyncio.to_thread(client.close)


async def test_stats_route_shows_the_rates_of_the_window(broker: BrokerService, admin: ClientSession) -> None:
    client = await asyncio.to_thread(work, broker.addresses.service_url)
    stats: dict[str, Any] = {"msgRateIn": 0}
    async with asyncio.timeout(60):
        while not stats["msgRateIn"]:
            async with admin.get("/admin/v2/persistent/public/default/counted/stats") as answer:
                stats = await answer.json()
            await asyncio.sleep(0.02)
    assert stats["msgInCounter"] == stats["msgOutCounter"] == MESSAGES
    (publisher,) = stats["publishers"]
    assert publisher["accessMode"] == "Shared"
    assert stats["subscriptions"]["s"]["consumers"][0]["msgOutCounter"] == MESSAGES
    async with admin.delete("/admin/v2/persistent/public/default/counted") as answer:
        assert answer.status == 412
        reason = (await answer.json())["reason"]
    assert reason.startswith("Topic has 2 client connected Including 1 consumers, 1 producers")
    await asyncio.to_thread(client.close)


def acknowledge_beyond_the_limits(url: str) -> pulsar.Client:
    """Acknowledges every second message, and a part of each of three batches; the client stays connected."""
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe(
        TOPIC, "s", consumer_type=pulsar.ConsumerType.Shared, batch_index_ack_enabled=True
    )
    single = client.create_producer(TOPIC, batching_enabled=False)
    for _ in range(6):
        single.send(b"single")
    batched = client.create_producer(TOPIC, batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for _ in range(3):
        for _ in range(2):
            batched.send_async(b"batched", lambda result, message_id: None)
        batched.flush()
    for number in range(12):
        message = consumer.receive(timeout_millis=60_000)
        if number % 2:
            consumer.acknowledge(message)
    return client


@pytest.mark.parametrize(
    "more_settings",
    [
        [
            "managedLedgerMaxUnackedRangesToPersist=1",
            "managedLedgerMaxBatchDeletedIndexToPersist=1",
            "acknowledgmentAtBatchIndexLevelEnabled=true",
            "managedLedgerDefaultMarkDeleteRateLimit=0",
        ]
    ],
)
async def test_acknowledgements_that_were_not_stored_are_counted(
    broker: BrokerService, admin: ClientSession
) -> None:
    client = await asyncio.to_thread(acknowledge_beyond_the_limits, broker.addresses.service_url)
    cuts = [
        f'pulsar_broker_managed_ledger_cursor_persist_{one}_truncated_total{{cluster="standalone"}}'
        for one in ("unacked_ranges", "batch_deleted_indexes")
    ]
    async with asyncio.timeout(60):
        values = await scraped(admin)
        while not all(values[one] for one in cuts):
            await asyncio.sleep(0.01)
            values = await scraped(admin)
    written = broker.environment.ack_cuts
    assert [values[one] for one in cuts] == [written.ranges, written.batches]
    await asyncio.to_thread(client.close)


@pytest.mark.parametrize(
    "more_settings",
    [
        [
            "exposeSubscriptionBacklogAgeInPrometheus=true",
            "backlogQuotaCheckIntervalInSeconds=1",
            # Otherwise an age counts from the end of the message's ledger, which is still open here.
            "preciseTimeBasedBacklogQuotaCheck=true",
        ]
    ],
)
async def test_age_of_a_backlog_grows_while_nobody_reads_it(
    broker: BrokerService, admin: ClientSession
) -> None:
    client = await asyncio.to_thread(work, broker.addresses.service_url)
    await asyncio.to_thread(client.close)
    labels = f'cluster="standalone",namespace="public/default",topic="{TOPIC}",subscription="s"'
    age = f"pulsar_subscription_storage_backlog_age_seconds{{{labels}}}"
    ages = [-1.0]
    async with asyncio.timeout(60):
        while ages[-1] < 2:
            values = await scraped(admin)
            ages.append(values.get(age, -1.0))
            await asyncio.sleep(0.02)
    assert ages == sorted(ages)


NOBODY = "persistent://public/default/nobody"
"""A topic without clients."""


async def text_with(admin: ClientSession, query: str = "") -> list[str]:
    async with admin.get(f"/metrics{query}") as answer:
        return (await answer.text()).splitlines()


@pytest.mark.parametrize("more_settings", [["exposeIdleTopicsInPrometheus=false"]])
async def test_idle_topics_have_no_series_and_are_counted(
    broker: BrokerService, admin: ClientSession
) -> None:
    client = await asyncio.to_thread(work, broker.addresses.service_url)
    await broker.registry.get(parse_topic_name(NOBODY), create=True)
    # A window of its own ends the time in which a topic counts as busy because it was opened.
    lines = await text_with(admin)
    async with asyncio.timeout(60):
        while f'topic="{NOBODY}"' in "".join(lines):
            await asyncio.sleep(0.02)
            lines = await text_with(admin)
    assert any(line.startswith("pulsar_producers_count") and TOPIC in line for line in lines)
    assert 'pulsar_topics_count{cluster="standalone",namespace="public/default"} 2' in lines
    assert 'pulsar_broker_topics_count{cluster="standalone"} 2' in lines
    assert any(NOBODY in line for line in await text_with(admin, f"?topic={NOBODY}"))
    await asyncio.to_thread(client.close)


@pytest.mark.parametrize("more_settings", [["exposeTopicLevelMetricsInPrometheus=false"]])
async def test_namespaces_have_their_sums_and_a_chosen_one_its_topics(
    broker: BrokerService, admin: ClientSession
) -> None:
    client = await asyncio.to_thread(work, broker.addresses.service_url)
    of_namespace = 'cluster="standalone",namespace="public/default"'
    lines = await text_with(admin)
    assert f"pulsar_in_messages_total{{{of_namespace}}} {MESSAGES}" in lines
    assert f"pulsar_out_messages_total{{{of_namespace}}} {MESSAGES}" in lines
    assert f"pulsar_producers_count{{{of_namespace}}} 1" in lines
    assert [line for line in lines if "topic=" in line] == []
    series = [
        line for line in await text_with(admin, "?namespace=public/default") if not line.startswith("#")
    ]
    assert f'pulsar_in_messages_total{{{of_namespace},topic="{TOPIC}"}} {MESSAGES}' in series
    assert [line for line in series if TOPIC not in line] == []
    assert await text_with(admin, "?namespace=public/functions") == []
    await asyncio.to_thread(client.close)


@pytest.mark.parametrize(
    "more_settings", [["exposeTopicLevelMetricsInPrometheus=false", "dormantTopicsAfterSeconds=1"]]
)
async def test_sums_of_a_namespace_keep_the_levels_of_a_dormant_topic(
    broker: BrokerService, admin: ClientSession
) -> None:
    client = await asyncio.to_thread(work, broker.addresses.service_url)
    backlog = f'pulsar_msg_backlog{{cluster="standalone",namespace="public/default"}} {MESSAGES - ACKED}'
    async with asyncio.timeout(60):
        while backlog not in await text_with(admin):  # noqa: ASYNC110 - a scrape has no event
            await asyncio.sleep(0.02)
        await asyncio.to_thread(client.close)
        while broker.registry.dormant.get(TOPIC) is None:  # noqa: ASYNC110 - nobody waits for it
            await asyncio.sleep(0.02)
    lines = await text_with(admin)
    assert backlog in lines
    assert 'pulsar_topics_count{cluster="standalone",namespace="public/default"} 1' in lines
    assert any(TOPIC in line for line in await text_with(admin, "?namespace=public/default"))
