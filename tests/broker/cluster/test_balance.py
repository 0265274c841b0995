"""Owners of bundles: placement, shedding of busy brokers, division, and the records of the leader."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence

import pytest

from bookkeeper.metadata.metadata_store import Ephemeral, Write
from broker.cluster.balance_settings import BalanceSettings
from broker.cluster.loads import UNSEEN_AVERAGE, BrokerLoad, BundleLoad, ResourceUse, Weights, differs
from broker.cluster.placement import apart
from broker.cluster.records import BROKERS, LoadReport, encode_member
from broker.cluster.splitting import too_large
from broker.service.namespaces.bundles import Bundles
from broker.service.topics.topic_ownership import Addresses, MoveKind
from foundation.model.errors import OwnerUncertain, ServiceNotReady
from tests.broker.cluster.support import Node, cluster, settle

MIB = 1 << 20
FIRST = Bundles.equal(4).all()[0]
BUNDLES = [f"shop/orders/{one}" for one in Bundles.equal(4).all()]
BUSY = BalanceSettings(history=0.0, throughput_least=0.0, shed_ms=0)


def load(cpu: float, *bundles: BundleLoad) -> BrokerLoad:
    return BrokerLoad(cpu=ResourceUse(cpu, 100.0), bundles=dict(zip(BUNDLES, bundles, strict=False)))


async def reported(node: Node, found: BrokerLoad) -> None:
    """Has a broker report a load as its own."""

    async def measure() -> BrokerLoad:
        return found

    node.ownership.reports.measure = measure
    node.now_ms += 1
    await node.ownership.tick()
    await settle(node)


async def own(node: Node, *bundles: str) -> None:
    for bundle in bundles:
        await node.ownership.owner_of_bundle(bundle, authoritative=True)


async def busy_and_idle(settings: BalanceSettings = BUSY) -> list[Node]:
    """Three brokers; the second one has all bundles and much to do. The first one leads, and has read the reports."""
    nodes = await cluster(3)
    nodes[0].settings = settings
    await own(nodes[1], *BUNDLES)
    await reported(nodes[1], load(90.0, *(BundleLoad(throughput_in=size * MIB) for size in (1, 8, 2, 1))))
    await reported(nodes[2], load(10.0))
    await settle(*nodes)
    return nodes


async def test_leader_moves_the_largest_bundles_of_a_busy_broker_to_idle_ones() -> None:
    nodes = await busy_and_idle()
    await reported(nodes[0], load(20.0))
    await settle(*nodes)
    # 50 points above the average of 40, less the threshold, plus the margin: 45 % of 12 MiB.
    (asked,) = nodes[0].peers.asked
    assert asked[0] == nodes[1].addresses.broker_id
    assert asked[1] == f"/admin/v2/namespaces/{BUNDLES[1]}/unload"
    assert nodes[1].told, "the clients of the bundle were told of the next owner"
    owner = await nodes[0].ownership.owner_of_bundle(BUNDLES[1])
    assert owner.addresses.broker_id == asked[2]["destinationBroker"] != nodes[1].addresses.broker_id
    assert nodes[0].ownership.counts.shed_bundles == nodes[0].ownership.counts.shed_brokers == 1
    why = {
        move.kind: move.why for move in (await nodes[0].ownership.seen()).moves if move.bundle == BUNDLES[1]
    }
    assert "used 90 % and the brokers 40 % on average" in why[MoveKind.DECIDED]


async def test_moved_bundle_stays_for_the_grace_period() -> None:
    nodes = await busy_and_idle()
    await reported(nodes[0], load(20.0))
    await settle(*nodes)
    for _ in range(3):
        await reported(nodes[1], load(90.0, *(BundleLoad(throughput_in=MIB) for _ in BUNDLES)))
        await reported(nodes[0], load(20.0))
        await settle(*nodes)
    moved = [path for _, path, _ in nodes[0].peers.asked]
    assert len(moved) == len(set(moved)), "none twice"


@pytest.mark.parametrize(
    "settings",
    [
        BalanceSettings(history=0.0, throughput_least=0.0, shed_ms=0, enabled=False),
        BalanceSettings(history=0.0, throughput_least=0.0, shed_ms=0, sheds=False),
        BalanceSettings(history=0.0, throughput_least=100.0 * MIB, shed_ms=0),
        BalanceSettings(history=0.0, throughput_least=0.0, shed_ms=0, excluded=frozenset({"shop/orders"})),
    ],
    ids=["disabled", "without shedding", "little traffic", "excluded namespace"],
)
async def test_nothing_moves_where_settings_say_so(settings: BalanceSettings) -> None:
    nodes = await busy_and_idle(settings)
    await reported(nodes[0], load(20.0))
    await settle(*nodes)
    assert nodes[0].peers.asked == []


async def test_broker_above_the_average_gets_nothing() -> None:
    nodes = await busy_and_idle()
    await reported(nodes[2], load(80.0))
    await reported(nodes[0], load(10.0))
    await settle(*nodes)
    assert {query["destinationBroker"] for _, _, query in nodes[0].peers.asked} == {
        nodes[0].addresses.broker_id
    }


async def test_bundle_that_has_moved_meanwhile_is_left_alone() -> None:
    nodes = await busy_and_idle()
    await nodes[1].ownership.unload(BUNDLES[1], nodes[2].addresses.broker_id)
    await reported(nodes[0], load(20.0))
    assert all(BUNDLES[1] not in path for _, path, _ in nodes[0].peers.asked)


async def test_lookups_at_the_same_time_get_one_answer() -> None:
    nodes = await cluster(3)
    found = await asyncio.gather(*(nodes[0].ownership.owner_of_bundle(BUNDLES[0]) for _ in range(5)))
    assert len({owner.addresses.broker_id for owner in found}) == 1


async def test_bundles_that_are_looked_up_at_the_same_time_are_spread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = await cluster(2)
    store, put_all = nodes[0].store, nodes[0].store.put_all

    async def later(puts: Sequence[Write]) -> list[int]:
        # As over a network: other lookups go on until the store has answered.
        await asyncio.sleep(0)
        return await put_all(puts)

    monkeypatch.setattr(store, "put_all", later)
    found = await asyncio.gather(*(nodes[0].ownership.owner_of_bundle(bundle) for bundle in BUNDLES))
    counts = Counter(owner.addresses.broker_id for owner in found)
    assert set(counts.values()) == {len(BUNDLES) // 2}, counts


async def test_isolation_policy_decides_who_may_have_a_bundle() -> None:
    nodes = await cluster(3)
    policy = {
        "namespaces": ["shop/.*"],
        "primary": ["host1"],
        "secondary": ["host2"],
        "auto_failover_policy": {
            "policy_type": "min_available",
            "parameters": {"min_limit": "1", "usage_threshold": "80"},
        },
    }
    key = "/admin/clusters/c1/namespaceIsolationPolicies"
    await nodes[0].store.put(key, json.dumps({"p": policy}).encode())
    chosen = await nodes[0].ownership.owner_of_bundle(BUNDLES[0])
    assert chosen.addresses == nodes[1].addresses
    bundles = [f"other/{number}/{FIRST}" for number in range(6)]
    others = [(await nodes[0].ownership.owner_of_bundle(bundle)).addresses for bundle in bundles]
    assert nodes[1].addresses not in others, "a primary broker has its own namespaces alone"
    await nodes[1].kill()
    await settle(*nodes)
    found = await nodes[0].ownership.owner_of_bundle(BUNDLES[0])
    assert found.addresses == nodes[2].addresses
    await nodes[2].kill()
    await settle(nodes[0])
    with pytest.raises(ServiceNotReady, match=f"No broker was available to own {BUNDLES[0]}"):
        await nodes[0].ownership.owner_of_bundle(BUNDLES[0])


async def put_policies(node: Node, policies: object) -> None:
    """As another program stores them."""
    await node.store.put("/admin/clusters/c1/namespaceIsolationPolicies", json.dumps(policies).encode())


@pytest.mark.parametrize(
    "policies",
    [
        {"apache": {"namespaces": ["shop/(?!public).*"], "primary": ["host1"], "secondary": []}},
        {"x": {"namespaces": [1, ["a"], "\ud800"], "primary": "host1", "secondary": {}}},
        {"x": 5},
        [],
    ],
    ids=["pattern", "no texts", "no policy", "no policies"],
)
async def test_policies_that_cannot_be_read_stop_no_bundle_and_are_logged_once(
    policies: object, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = await cluster(2)
    await put_policies(nodes[0], policies)
    for bundle in BUNDLES:
        await nodes[0].ownership.owner_of_bundle(bundle)
    logged = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert logged
    assert len(logged) == len(set(logged))
    assert all("set the polic" in text for text in logged), "the remedy"


async def test_namespace_is_refused_while_the_brokers_of_its_policy_cannot_be_read() -> None:
    nodes = await cluster(2)
    policy = {"namespaces": ["shop/.*"], "primary": ["(?!host0).*"], "secondary": []}
    await put_policies(nodes[0], {"apache": policy})
    wanted = r"isolation policy 'apache': primary has the pattern '\(\?!host0\)\.\*', which cannot be read"
    with pytest.raises(OwnerUncertain, match=wanted):
        await nodes[0].ownership.owner_of_bundle(BUNDLES[0])
    assert (await nodes[0].ownership.owner_of_bundle(f"other/x/{FIRST}")).addresses
    await put_policies(nodes[0], {"apache": {**policy, "primary": ["host[^0]"]}})
    assert (await nodes[0].ownership.owner_of_bundle(BUNDLES[0])).addresses == nodes[1].addresses


async def test_leader_sheds_with_a_policy_that_cannot_be_read() -> None:
    nodes = await busy_and_idle()
    await put_policies(nodes[0], {"apache": {"namespaces": ["(?!x).*"], "primary": ["(?!x).*"]}})
    await reported(nodes[0], load(20.0))
    await settle(*nodes)
    assert len(nodes[0].peers.asked) == 1


async def test_failure_domain_that_cannot_be_read_stops_no_bundle(caplog: pytest.LogCaptureFixture) -> None:
    nodes = await cluster(2)
    nodes[0].settings = BalanceSettings(domains=True)
    await nodes[0].store.put("/admin/clusters/c1/failureDomain/d", b"[]")
    await nodes[0].ownership.owner_of_bundle(BUNDLES[0])
    assert "/admin/clusters/c1/failureDomain/d in the metadata store cannot be read" in caplog.text


async def test_busy_broker_keeps_what_no_other_may_have() -> None:
    nodes = await busy_and_idle()
    policy = {"namespaces": ["shop/.*"], "primary": ["host1"], "secondary": []}
    key = "/admin/clusters/c1/namespaceIsolationPolicies"
    await nodes[0].store.put(key, json.dumps({"p": policy}).encode())
    await reported(nodes[0], load(20.0))
    assert nodes[0].peers.asked == []


async def test_namespaces_of_an_anti_affinity_group_go_to_different_brokers() -> None:
    nodes = await cluster(3)
    for node in nodes:
        node.namespaces.groups = {"a/one": "G", "a/two": "g", "a/three": "G"}
    owners = set()
    for namespace in ("a/one", "a/two", "a/three"):
        found = await nodes[0].ownership.owner_of_bundle(f"{namespace}/{FIRST}")
        owners.add(found.addresses.broker_id)
    assert len(owners) == 3


def test_failure_domains_come_before_brokers() -> None:
    # Apache's own example, in the docstring of filterAntiAffinityGroupOwnedBrokers.
    counts = {"b1": 2, "b2": 1, "b3": 2, "b4": 1, "b5": 2, "b6": 2}
    domains = {"b1": "d1", "b2": "d1", "b3": "d2", "b4": "d2", "b5": "d3", "b6": "d3"}
    assert apart(counts, counts, domains) == {"b2", "b4"}
    assert apart(counts, {"b1": 1}, {}) == {"b2", "b3", "b4", "b5", "b6"}


async def test_bundles_of_a_namespace_are_spread_evenly_or_by_their_rates() -> None:
    for evenly in (True, False):
        nodes = await cluster(2)
        nodes[0].settings = BalanceSettings(evenly=evenly)
        await own(nodes[1], BUNDLES[0])
        await own(nodes[0], f"other/x/{FIRST}")
        busy = BrokerLoad(bundles={f"other/x/{FIRST}": BundleLoad(rate_in=1000.0)})
        await reported(nodes[1], load(1.0))
        await reported(nodes[0], busy)
        found = await nodes[0].ownership.owner_of_bundle(BUNDLES[1])
        assert found.addresses == nodes[not evenly].addresses


def test_bundle_is_divided_for_each_of_its_limits() -> None:
    settings = BalanceSettings(bundle_topics=10, bundle_sessions=20, namespace_bundles=8)

    def why(one: BundleLoad, count: int = 4) -> list[str]:
        averages = {BUNDLES[0]: UNSEEN_AVERAGE.after(one)}
        return list(too_large([load(1.0, one)], averages, {"shop/orders": count}, settings).values())

    assert why(BundleLoad(topics=10)) == []
    assert why(BundleLoad(topics=11)) == ["11 topics"]
    assert why(BundleLoad(topics=2, consumers=11, producers=10)) == ["21 producers and consumers"]
    assert why(BundleLoad(topics=2, rate_in=20_000, rate_out=10_001)) == ["30001 messages a second"]
    assert why(BundleLoad(topics=2, throughput_out=101 * MIB)) == ["101.0 MiB a second"]
    assert why(BundleLoad(topics=1, throughput_out=101 * MIB)) == [], "one topic cannot be divided"
    assert why(BundleLoad(topics=11), count=8) == [], "the namespace has enough bundles"


async def test_leader_has_a_bundle_divided_and_leaves_one_of_an_old_report_alone() -> None:
    nodes = await cluster(2)
    nodes[0].settings = BalanceSettings(bundle_topics=10)
    many = BundleLoad(topics=11)
    await own(nodes[1], BUNDLES[0])
    await reported(
        nodes[1], BrokerLoad(bundles={BUNDLES[0]: many, "shop/orders/0x00000000_0x10000000": many})
    )
    await reported(nodes[0], BrokerLoad())
    path = f"/admin/v2/namespaces/{BUNDLES[0]}/split"
    assert nodes[0].peers.asked == [(nodes[1].addresses.broker_id, path, {"unload": "true"})]
    assert nodes[0].ownership.counts.divided_bundles == 1


def test_report_is_worth_its_write_from_a_change_of_a_tenth() -> None:
    weights = Weights(direct_memory=0.0)
    before = load(50.0, BundleLoad(rate_in=100.0, throughput_in=1000.0))
    assert not differs(before, load(59.0, BundleLoad(rate_in=109.0, throughput_in=1000.0)), weights, 0.1)
    assert differs(before, load(61.0, BundleLoad(rate_in=100.0, throughput_in=1000.0)), weights, 0.1)
    assert differs(before, load(50.0, BundleLoad(rate_in=111.0, throughput_in=1000.0)), weights, 0.1)
    assert differs(before, load(50.0), weights, 0.1)
    assert differs(load(50.0), before, weights, 0.1), "from nothing"
    some = load(50.0, BundleLoad(topics=10, producers=10))
    assert not differs(some, load(50.0, BundleLoad(topics=11, producers=5, consumers=6)), weights, 0.1)
    assert differs(some, load(50.0, BundleLoad(topics=12, producers=10)), weights, 0.1)
    assert differs(some, load(50.0, BundleLoad(topics=10, producers=10, consumers=2)), weights, 0.1)


async def test_report_is_written_when_it_is_due() -> None:
    (node,) = await cluster(1)
    key = f"{BROKERS}/{node.addresses.broker_id}"

    async def version() -> int:
        found = await node.store.get(key)
        assert found is not None
        return found.version

    await own(node, BUNDLES[0])
    await reported(node, load(50.0))
    written = await version()
    await reported(node, load(51.0))
    assert await version() == written
    await reported(node, load(80.0))
    assert await version() == written + 1
    node.now_ms += node.settings.report_most_ms + 1
    await reported(node, load(80.0))
    assert await version() == written + 2
    report = await node.ownership.reports.now()
    assert (report["bundles"], report["maxResourceUsage"]) == ([BUNDLES[0]], 0.8)


async def test_leader_stores_averages_and_removes_those_of_what_has_gone() -> None:
    nodes = await cluster(2)
    nodes[0].settings = BalanceSettings(store_ms=0)
    await own(nodes[1], BUNDLES[0])
    await reported(nodes[1], load(1.0, BundleLoad(rate_in=10.0)))
    await reported(nodes[0], load(1.0))
    found = await nodes[0].store.get(f"/loadbalance/bundle-data/{BUNDLES[0]}")
    assert found is not None
    assert json.loads(found.value)["longTermData"]["msgRateIn"] == 10.0
    assert len(await nodes[0].store.children("/loadbalance/broker-time-average")) == 2
    await nodes[1].kill()
    await settle(nodes[0])
    await reported(nodes[0], load(2.0))
    assert await nodes[0].store.get(f"/loadbalance/bundle-data/{BUNDLES[0]}") is None
    assert await nodes[0].store.children("/loadbalance/broker-time-average") == [nodes[0].addresses.broker_id]


async def test_report_of_an_apache_broker_is_balanced_by() -> None:
    (node,) = await cluster(1)
    other = node.store.another()
    far = Addresses("pulsar://apache:6650", "http://apache:8080")
    value = encode_member(far, "4.2.4", 0, LoadReport(5, load(90.0)))
    await other.put_all([Ephemeral(f"{BROKERS}/apache:8080", value)])
    await settle(node)
    found = await node.ownership.owner_of_bundle(BUNDLES[0])
    assert found.addresses == node.addresses, "the other one is overloaded"
