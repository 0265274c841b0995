"""The console's page of the cluster: a broker that is alone, several ones, a store that does not answer."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import ClientSession

from broker.cluster.loads import BrokerLoad, BundleLoad, ResourceUse
from broker.console.cluster_page import BUNDLES_MAX, MOVES_MAX, cluster_page
from broker.service.topics.topic_ownership import (
    Addresses,
    BrokerSeen,
    ClusterSeen,
    Move,
    MoveKind,
    TopicOwnership,
)
from tests.broker.cluster.support import NOW_MS, cluster
from tests.broker.cluster.test_ownership import BUNDLE, owned

PATH = "/admin/v2/magnetar/console/cluster"


async def test_broker_on_a_store_of_its_own_is_alone(admin: ClientSession) -> None:
    async with admin.get(PATH) as answer:
        found = await answer.json()
    assert (found["isShared"], found["isServing"], found["moves"]) == (False, True, [])
    (one,) = found["brokers"]
    assert (one["isSelf"], one["leads"], one["bundleCount"]) == (True, True, 0)
    assert one["adminUrl"] == str(admin._base_url).rstrip("/")


async def test_every_broker_shows_all_with_their_bundles_and_moves() -> None:
    nodes = await cluster(3)
    await owned(nodes[1])
    await nodes[1].ownership.tick()
    for node in nodes:
        found: Any = await cluster_page(node.ownership)
        assert (found["isShared"], found["leader"]) == (True, "host0:8080")
        shown = {one["name"]: one for one in found["brokers"]}
        assert [name for name, one in shown.items() if one["isSelf"]] == [node.addresses.broker_id]
        assert [name for name, one in shown.items() if one["leads"]] == ["host0:8080"]
        assert {name: one["bundles"] for name, one in shown.items()} == {
            "host0:8080": [],
            "host1:8080": [BUNDLE],
            "host2:8080": [],
        }
        assert [(one["bundle"], one["broker"], one["kind"]) for one in found["moves"]] == [
            (BUNDLE, "host1:8080", "taken")
        ]


async def test_load_of_a_broker_is_that_of_its_last_report() -> None:
    async def measure() -> BrokerLoad:
        return BrokerLoad(
            cpu=ResourceUse(30.0, 100.0), bundles={BUNDLE: BundleLoad(rate_in=7.0, rate_out=2.0)}
        )

    nodes = await cluster(2)
    await owned(nodes[1])
    nodes[1].ownership.reports.measure = measure
    await nodes[1].ownership.tick()
    for node in nodes:
        found: Any = await cluster_page(node.ownership)
        shown = {one["name"]: (one["used"], one["messageRate"]) for one in found["brokers"]}
        assert shown == {"host0:8080": (0.0, 0.0), "host1:8080": (0.3, 9.0)}


@pytest.mark.parametrize(("later_ms", "age_ms"), [(660_000, 660_000), (-5_000, 0)], ids=["later", "ahead"])
async def test_report_of_another_broker_has_an_age_and_the_own_load_none(later_ms: int, age_ms: int) -> None:
    """Without a balance by load a broker tells its rate when a bundle comes or goes, and not when its traffic ends."""
    nodes = await cluster(2)
    nodes[0].ownership._wall_ms = lambda: NOW_MS + later_ms
    found: Any = await cluster_page(nodes[0].ownership)
    ages = {one["name"]: one["reportAgeMs"] for one in found["brokers"]}
    assert ages == {"host0:8080": 0, "host1:8080": age_ms}


async def test_many_bundles_and_moves_are_counted_and_not_all_listed() -> None:
    class Many(TopicOwnership):
        async def seen(self) -> ClusterSeen:
            bundles = [f"t/n/{number:05}" for number in range(BUNDLES_MAX + 1)]
            moves = [Move(1, one, "b:1", MoveKind.TAKEN, "w") for one in bundles]
            return ClusterSeen({"b:1": BrokerSeen(Addresses(), bundles)}, None, moves)

    found: Any = await cluster_page(Many())
    (one,) = found["brokers"]
    assert (one["bundleCount"], len(one["bundles"]), len(found["moves"])) == (
        BUNDLES_MAX + 1,
        BUNDLES_MAX,
        MOVES_MAX,
    )
