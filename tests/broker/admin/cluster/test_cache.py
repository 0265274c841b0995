"""`/admin/v2/magnetar/cache` of a whole broker: what it answers, and how it refuses."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import Any

import pulsar
import pytest
from aiohttp import ClientSession

from broker.compose.broker_service import BrokerService
from broker.service.topics.persistent_topic import PersistentTopic
from entry_cache.cache_stats import Reason
from foundation.model.position import Position
from foundation.model.topic_name import parse_topic_name

CACHE = "/admin/v2/magnetar/cache"
WHY = f"{CACHE}/why/persistent/public/default"
MESSAGES = 20
HOUR_NS = 3600 * 10**9


async def asked(admin: ClientSession, path: str, status: int = 200) -> Any:
    async with admin.get(path) as answer:
        body = await answer.json()
        assert answer.status == status, body
        return body


def work(url: str) -> tuple[pulsar.Client, list[pulsar.MessageId]]:
    """Topic `busy`: read by the subscription `quick` and not by `slow`; topic `idle`: nothing."""
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    client.subscribe("idle", "s")
    quick = client.subscribe("busy", "quick")
    client.subscribe("busy", "slow", receiver_queue_size=1)
    producer = client.create_producer("busy")
    ids = [producer.send(b"x" * 1000) for _ in range(MESSAGES)]
    for _ in range(MESSAGES):
        quick.receive(timeout_millis=60_000)
    return client, ids


async def test_cache_route_shows_levels_policy_and_settings(
    broker: BrokerService, admin: ClientSession
) -> None:
    client, _ = await asyncio.to_thread(work, broker.addresses.service_url)
    found = await asked(admin, CACHE)
    assert (found["policy"], found["profile"]) == (broker.cache.manager.settings.policy, "4.2")
    assert found["insertedEntries"] == MESSAGES
    assert found["entries"] + sum(found["evictedEntries"].values()) == MESSAGES
    assert found["hits"] >= MESSAGES
    assert found["topics"] == 2
    assert found["maxBytes"] == broker.cache.manager.settings.size_bytes_max
    assert found["settings"]["managedLedgerCacheEvictionTimeThresholdMillis"] == "1000"
    kept = found["decisions"]
    assert (kept["eventsMax"], kept["older"]) == (20_000, "none")
    assert 0 < kept["events"] < 1000
    await asyncio.to_thread(client.close)


async def test_top_sorts_topics_by_their_use_of_the_cache(
    broker: BrokerService, admin: ClientSession
) -> None:
    client, _ = await asyncio.to_thread(work, broker.addresses.service_url)
    found = await asked(admin, f"{CACHE}/top?sort=hits")
    assert (found["sort"], found["topicsOpen"]) == ("hits", 2)
    first, second = found["topics"]
    assert first["topic"] == "persistent://public/default/busy"
    assert first["hits"] >= MESSAGES
    assert first["hitRatio"] == 1.0
    assert set(first["evictions"]) == {reason.value for reason in Reason}
    assert (second["topic"], second["hits"], second["hitRatio"]) == (
        "persistent://public/default/idle",
        0,
        None,
    )
    assert len((await asked(admin, f"{CACHE}/top?limit=1"))["topics"]) == 1
    await asyncio.to_thread(client.close)


def set_time_to_live(broker: BrokerService, ns: int) -> None:
    broker.cache.manager.reconfigure(replace(broker.cache.manager.settings, ttl_ns=ns))


async def test_why_lists_the_events_of_a_cached_entry(broker: BrokerService, admin: ClientSession) -> None:
    set_time_to_live(broker, HOUR_NS)
    client, ids = await asyncio.to_thread(work, broker.addresses.service_url)
    told = await asked(admin, f"{WHY}/busy/{ids[5].ledger_id()}/{ids[5].entry_id()}")
    assert (told["topic"], told["ledgerId"]) == ("persistent://public/default/busy", ids[5].ledger_id())
    inserted = next(event for event in told["events"] if event["event"] == "insert")
    assert inserted["cursors"] == ["quick", "slow"]
    assert inserted["expectedReads"] == 2
    assert inserted["firstEntryId"] <= ids[5].entry_id() <= inserted["lastEntryId"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", inserted["at"])
    assert {"quick"} <= {event.get("cursor") for event in told["events"] if event["event"] == "hit"}
    assert told["kept"]["older"] == "none"
    assert told["verdict"] == "cached"
    assert told["present"]["bytes"] > 1000
    assert told["present"]["cursorsToCome"] == ["slow"]
    assert told["present"]["cursorsToReturn"] == []
    assert (told["present"]["requeues"], told["present"]["secondsSinceRequeue"]) == (
        0,
        told["present"]["seconds"],
    )
    assert told["conclusion"].endswith("slow will still read it.")
    await asyncio.to_thread(client.close)


async def test_why_lists_the_events_of_an_unloaded_topic(broker: BrokerService, admin: ClientSession) -> None:
    """As long as decisions about it are kept."""
    set_time_to_live(broker, HOUR_NS)
    client, ids = await asyncio.to_thread(work, broker.addresses.service_url)
    await asyncio.to_thread(client.close)
    async with admin.put("/admin/v2/persistent/public/default/busy/unload") as answer:
        assert answer.status == 204
    told = await asked(admin, f"{WHY}/busy/{ids[0].ledger_id()}/{ids[0].entry_id()}")
    assert told["verdict"] == "evicted"
    assert told["events"][-1]["reason"] == "invalidate"
    assert {"quick"} <= {event.get("cursor") for event in told["events"]}, "names outlive the topic"


async def test_reading_a_single_entry_does_not_cache_it(broker: BrokerService, admin: ClientSession) -> None:
    client, ids = await asyncio.to_thread(work, broker.addresses.service_url)
    for cache in broker.cache.manager.caches:
        cache.clear()
    topic = await broker.registry.get(parse_topic_name("busy"), create=False)
    assert isinstance(topic, PersistentTopic)
    await topic.ledger.read_entry(Position(ids[3].ledger_id(), ids[3].entry_id()))
    told = await asked(admin, f"{WHY}/busy/{ids[3].ledger_id()}/{ids[3].entry_id()}")
    assert [event["event"] for event in told["events"]][-3:] == ["evict", "miss", "not_cached"]
    assert told["conclusion"].endswith(
        "Since then it was read from storage by __peek, and not cached: no active cursor was known to read it again."
    )
    await asyncio.to_thread(client.close)


@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [
        (f"{CACHE}/top?sort=name", 400, "sort=name: allowed are bytes, hits, misses, evictions"),
        (f"{CACHE}/top?limit=0", 400, "limit=0: allowed is 1 to 10000"),
        (f"{CACHE}/top?limit=-3", 400, "limit '-3' is not a whole number from 0"),
        (f"{WHY}/nope/1/1", 404, "Topic persistent://public/default/nope not found"),
        (f"{WHY}/busy/x1/0", 400, "ledger id 'x1' is not a whole number from 0"),
        (f"{WHY}/busy/1/-1", 400, "entry id '-1' is not a whole number from 0"),
        (f"{WHY}/busy/1/{10**30}", 400, f"entry id '{10**30}' is not a whole number from 0"),
        (
            f"{WHY}/parts/1/0",
            404,
            "name one of persistent://public/default/parts-partition-0 to -partition-2",
        ),
        (
            f"{CACHE}/why/non-persistent/public/default/n/1/0",
            405,
            "non-persistent://public/default/n is not persistent",
        ),
    ],
)
async def test_malformed_requests_are_refused_with_the_allowed_values(
    broker: BrokerService, admin: ClientSession, path: str, status: int, reason: str
) -> None:
    for topic in ("persistent/public/default/busy", "non-persistent/public/default/n"):
        async with admin.put(f"/admin/v2/{topic}") as answer:
            assert answer.status == 204
    async with admin.put("/admin/v2/persistent/public/default/parts/partitions", json=3) as answer:
        assert answer.status == 204
    assert reason in (await asked(admin, path, status))["reason"]


async def test_why_is_404_for_positions_that_do_not_exist(
    broker: BrokerService, admin: ClientSession
) -> None:
    client, ids = await asyncio.to_thread(work, broker.addresses.service_url)
    ledger = ids[0].ledger_id()
    refused = await asked(admin, f"{WHY}/busy/{ledger}/999", 404)
    name = "persistent://public/default/busy"
    assert (
        refused["reason"]
        == f"ledger {ledger} of {name} has no entry 999; its last one is {ledger}:{MESSAGES - 1}"
    )
    refused = await asked(admin, f"{WHY}/busy/999999/0", 404)
    assert refused["reason"] == f"{name} has no ledger 999999; its ledgers are from {ledger} to {ledger}"
    await asyncio.to_thread(client.close)


async def test_why_names_the_limit_when_the_events_are_no_longer_kept(
    broker: BrokerService, admin: ClientSession
) -> None:
    client, ids = await asyncio.to_thread(work, broker.addresses.service_url)
    broker.cache.decisions.keep(0)
    for cache in broker.cache.manager.caches:
        cache.clear()
    where = f"{WHY}/busy/{ids[0].ledger_id()}/0"
    assert "entryCacheDecisionsKept=0" in (await asked(admin, where))["conclusion"]
    broker.cache.decisions.keep(100)
    told = await asked(admin, where)
    assert (told["verdict"], told["events"]) == ("unknown", [])
    assert "before decisions were noted" in told["conclusion"]
    await asyncio.to_thread(client.close)


async def test_scrape_has_the_metrics_of_the_cache(broker: BrokerService, admin: ClientSession) -> None:
    set_time_to_live(broker, 10_000_000)
    client, _ = await asyncio.to_thread(work, broker.addresses.service_url)
    async with asyncio.timeout(60):
        while broker.cache.manager.entries:  # noqa: ASYNC110 - the broker's own passes empty it
            await asyncio.sleep(0.01)
    async with admin.get("/metrics") as answer:
        lines = dict(line.rsplit(" ", 1) for line in (await answer.text()).splitlines() if line[0] != "#")
    cluster = 'cluster="standalone"'
    name = "pulsar_ml_cache_x_evicted_age_seconds_count"
    assert float(lines[f'{name}{{{cluster},reason="ttl"}}']) == MESSAGES
    assert float(lines[f'pulsar_ml_cache_x_evicted_bytes_total{{{cluster},reason="ttl"}}']) > MESSAGES * 1000
    assert float(lines[f'pulsar_ml_cache_x_pass_slice_seconds_count{{{cluster},trigger="periodic"}}']) > 0
    assert float(lines[f'pulsar_ml_cache_x_visits_total{{{cluster},reason="ttl"}}']) >= MESSAGES
    wanted = broker.cache.eviction_stats.evicted_expected_entries[Reason.TTL]
    assert float(lines[f'pulsar_ml_cache_x_evicted_expected_total{{{cluster},reason="ttl"}}']) == wanted
    of = f'{cluster},namespace="public/default",topic="persistent://public/default/busy"'
    assert lines[f'pulsar_ml_cache_x_subscription_hits_total{{{of},subscription="quick"}}'] == str(MESSAGES)
    await asyncio.to_thread(client.close)
