"""Division of bundles over REST: which algorithms a request may name, and which one holds where it names none."""

from __future__ import annotations

import pytest
from aiohttp import ClientSession

from broker.compose.broker_service import BrokerService
from tests.broker.admin.test_rest import call, refusal

NAMESPACES = "/admin/v2/namespaces/public"
SPLIT = f"{NAMESPACES}/n/0x00000000_0xffffffff/split"
WHOLE = ["0x00000000", "0xffffffff"]


async def boundaries(admin: ClientSession) -> object:
    _, found = await call(admin, f"GET {NAMESPACES}/n/bundles")
    assert isinstance(found, dict)
    return found["boundaries"]


async def one_bundle(admin: ClientSession, *topics: str) -> None:
    await call(admin, f"PUT {NAMESPACES}/n", {"bundles": {"numBundles": 1}})
    for topic in topics:
        await call(admin, f"PUT /admin/v2/persistent/public/n/{topic}")


async def test_bundle_is_divided_in_its_middle_where_nothing_else_is_said(admin: ClientSession) -> None:
    await one_bundle(admin)
    assert await call(admin, f"PUT {SPLIT}") == (204, "")
    assert await boundaries(admin) == ["0x00000000", "0x7fffffff", "0xffffffff"]


@pytest.mark.parametrize(
    "more_settings", [["defaultNamespaceBundleSplitAlgorithm=topic_count_equally_divide"]]
)
async def test_default_algorithm_is_a_setting(admin: ClientSession) -> None:
    await one_bundle(admin, "a")
    assert await call(admin, f"PUT {SPLIT}") == (204, "")
    assert await boundaries(admin) == WHOLE, "one topic has no middle"
    await one_bundle(admin, "b", "c")
    assert await call(admin, f"PUT {SPLIT}") == (204, "")
    found = await boundaries(admin)
    assert isinstance(found, list)
    assert len(found) == 3
    assert found != ["0x00000000", "0x7fffffff", "0xffffffff"]


async def test_topics_that_are_not_open_count_in_a_division(
    admin: ClientSession, broker: BrokerService
) -> None:
    await one_bundle(admin, "a", "b")
    assert await call(admin, f"PUT {NAMESPACES}/n/unload") == (204, "")
    assert not list(broker.registry.open_in("public/n"))
    _, found = await call(admin, f"GET {NAMESPACES}/n/0x00000000_0xffffffff/topicHashPositions")
    assert isinstance(found, dict)
    hashes = sorted(found["topicHashPositions"].values())
    assert len(hashes) == 2
    name = "LARGEST/split?splitAlgorithmName=topic_count_equally_divide"
    assert await call(admin, f"PUT {NAMESPACES}/n/{name}") == (204, "")
    middle = hashes[0] + (hashes[1] - hashes[0]) // 2
    assert await boundaries(admin) == ["0x00000000", f"0x{middle:08x}", "0xffffffff"]


@pytest.mark.parametrize("more_settings", [["supportedNamespaceBundleSplitAlgorithms=range_equally_divide"]])
async def test_algorithm_that_is_not_supported_is_refused(admin: ClientSession) -> None:
    await one_bundle(admin)
    reason = "Unsupported namespace bundle split algorithm, supported algorithms are [range_equally_divide]"
    name = "flow_or_qps_equally_divide"
    assert await refusal(admin, f"PUT {SPLIT}?splitAlgorithmName={name}") == (412, reason)
    assert await call(admin, f"PUT {SPLIT}?splitAlgorithmName=range_equally_divide") == (204, "")


async def test_bundle_without_traffic_is_not_divided_by_rates(admin: ClientSession) -> None:
    await one_bundle(admin, "a", "b", "c")
    name = "flow_or_qps_equally_divide"
    assert await call(admin, f"PUT {SPLIT}?splitAlgorithmName={name}&unload=true") == (204, "")
    assert await boundaries(admin) == WHOLE
