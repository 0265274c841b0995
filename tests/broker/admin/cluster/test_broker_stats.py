"""Broker statistics, resource quotas and resource groups over REST."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import ClientSession

from broker.compose.broker_service import BrokerService
from broker.service.namespaces.bundles import bundles_of
from tests.broker.admin.test_rest import call, refusal

QUOTAS = "/admin/v2/resource-quotas"
BUNDLE = "0x00000000_0x40000000"


async def test_topics_are_listed_by_namespace_bundle_and_domain(
    admin: ClientSession, broker: BrokerService
) -> None:
    assert await call(admin, "GET /admin/v2/broker-stats/topics") == (200, {})
    await call(admin, "PUT /admin/v2/persistent/public/default/t")
    await call(admin, "PUT /admin/v2/persistent/public/default/t/subscription/s")
    await call(admin, "PUT /admin/v2/non-persistent/public/default/n")
    status, found = await call(admin, "GET /admin/v2/broker-stats/topics")
    assert isinstance(found, dict)
    for domain, local in (("persistent", "t"), ("non-persistent", "n")):
        name = f"{domain}://public/default/{local}"
        bundle = str(bundles_of(broker.namespaces, "public/default").of(name))
        shown = found["public/default"][bundle][domain][name]
        assert (shown["producerCount"], shown["msgInCount"], shown["storageSize"]) == (0, 0, 0)
        assert list(shown["subscriptions"]) == (["s"] if local == "t" else [])
    status, metrics = await call(admin, "GET /admin/v2/broker-stats/metrics")
    assert isinstance(metrics, list)
    counts = metrics[-1]["metrics"]
    assert (status, metrics[-1]["dimensions"]) == (200, {"namespace": "public/default"})
    assert (counts["brk_no_of_subscriptions"], counts["brk_msg_backlog"]) == (1, 0)
    assert metrics[0]["metrics"]["brk_ml_count"] == 1


@pytest.mark.parametrize("more_settings", [["loadBalancerEnabled=true", "dormantTopicsAfterSeconds=1"]])
async def test_load_report_counts_open_and_dormant_topics(
    admin: ClientSession, broker: BrokerService
) -> None:
    for name in ("t", "u"):
        await call(admin, f"PUT /admin/v2/persistent/public/default/{name}")
        await call(admin, f"PUT /admin/v2/persistent/public/default/{name}/subscription/s")
    async with asyncio.timeout(60):
        while len(list(broker.registry.dormant)) < 2:  # noqa: ASYNC110 - nobody waits for it
            await asyncio.sleep(0.02)
    await call(admin, "GET /admin/v2/persistent/public/default/t/subscription/s/position/1")
    status, report = await call(admin, "GET /admin/v2/broker-stats/load-report")
    assert isinstance(report, dict)
    assert (status, report["numTopics"], report["loadReportType"]) == (200, 2, "LocalBrokerData")
    bundles = bundles_of(broker.namespaces, "public/default")
    found = {f"public/default/{bundles.of(f'persistent://public/default/{name}')}" for name in ("t", "u")}
    assert set(report["bundles"]) == report["lastStats"].keys() == found
    assert report["memory"]["usage"] > 0
    assert report["cpu"]["limit"] == 100.0


@pytest.mark.parametrize("more_settings", [["dormantTopicsAfterSeconds=1"]])
async def test_dormant_topic_is_listed_beside_open_ones(admin: ClientSession, broker: BrokerService) -> None:
    await call(admin, "PUT /admin/v2/persistent/public/default/t")
    await call(admin, "PUT /admin/v2/persistent/public/default/t/subscription/s")
    name = "persistent://public/default/t"
    async with asyncio.timeout(60):
        while broker.registry.dormant.get(name) is None:  # noqa: ASYNC110 - nobody waits for it
            await asyncio.sleep(0.02)
    await call(admin, "PUT /admin/v2/persistent/public/default/u")
    status, found = await call(admin, "GET /admin/v2/broker-stats/topics")
    assert isinstance(found, dict)
    shown = {
        each: stats
        for bundle in found["public/default"].values()
        for each, stats in bundle["persistent"].items()
    }
    assert (status, sorted(shown)) == (200, [name, "persistent://public/default/u"])
    assert shown[name].keys() == shown["persistent://public/default/u"].keys()
    assert shown[name]["subscriptions"]["s"]["msgBacklog"] == 0
    assert name not in broker.registry.topics, "the list opens nothing"
    status, lines = await call(admin, "GET /admin/v2/persistent/public/default")
    assert lines == [name, "persistent://public/default/u"]
    async with admin.get("/metrics/") as answer:
        text = await answer.text()
    assert 'magnetar_dormant_topics{cluster="standalone"} 1.0' in text
    assert 'magnetar_dormant_topics_filling{cluster="standalone"} 0.0' in text


@pytest.mark.parametrize("more_settings", [["loadBalancerEnabled=false"]])
async def test_java_numbers_are_absent(admin: ClientSession) -> None:
    stats = "GET /admin/v2/broker-stats"
    assert await call(admin, f"{stats}/mbeans") == (200, [])
    assert await call(admin, f"{stats}/load-report") == (204, ""), "as Pulsar without load balance"
    assert (await refusal(admin, f"{stats}/broker-resource-availability/public/default"))[0] == 409
    assert await call(admin, f"{stats}/bookieops") == (200, {})
    for name, used in (("default", -1), ("ml-cache", 0)):
        shown = (await call(admin, f"{stats}/allocator-stats/{name}"))[1]
        assert isinstance(shown, dict)
        assert (shown["usedHeapMemory"], shown["heapArenas"]) == (used, [])
    invalid = (406, "Invalid allocator name : nosuch")
    assert await refusal(admin, f"{stats}/allocator-stats/nosuch") == invalid
