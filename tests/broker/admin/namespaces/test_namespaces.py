"""Tenants and namespaces over REST: policies at creation, clusters, bundles, and work on all topics of a namespace."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from itertools import pairwise
from typing import Any

import pytest
from aiohttp import ClientSession

from broker.compose.broker_service import BrokerService
from broker.service.lifecycle import namespace_topics
from broker.service.namespaces.bundles import bundles_of
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.loop import slices
from foundation.model.errors import TopicNotFound
from foundation.model.position import EARLIEST
from foundation.model.topic_name import parse_topic_name
from tests.broker.admin.publishing import publish_plain
from tests.broker.admin.test_rest import call, refusal

NAMESPACES = "/admin/v2/namespaces/public"
TENANTS = "/admin/v2/tenants"
INFO = {"adminRoles": ["a"], "allowedClusters": ["standalone"]}


async def with_subscriptions(broker: BrokerService, local: str, *subscriptions: str) -> PersistentTopic:
    """Returns a topic of public/n with these subscriptions."""
    topic = await broker.registry.get(parse_topic_name(f"persistent://public/n/{local}"), create=True)
    assert isinstance(topic, PersistentTopic)
    for name in subscriptions:
        await topic.subscribing.create(name, EARLIEST)
    return topic


@pytest.mark.parametrize(
    ("info", "reason"),
    [
        ({"adminRoles": ["a"]}, "Clusters cannot be null"),
        ({"allowedClusters": []}, "Clusters cannot be empty or blank"),
        ({"allowedClusters": [" "]}, "Clusters cannot be empty or blank"),
        ({"allowedClusters": ["nope"]}, "Clusters do not exist"),
        (
            {"adminRoles": [" a"], "allowedClusters": ["standalone"]},
            "AdminRoles contains whitespace in the beginning or end.",
        ),
        (None, "TenantInfo is null"),
    ],
)
async def test_tenant_is_refused_when_its_description_is_wrong(
    admin: ClientSession, info: object, reason: str
) -> None:
    assert await refusal(admin, f"PUT {TENANTS}/t", info) == (412, reason)
    assert await refusal(admin, f"POST {TENANTS}/public", info) == (412, reason)
    assert await call(admin, f"GET {TENANTS}") == (200, ["public", "pulsar"])


async def test_tenant_has_each_role_once(admin: ClientSession) -> None:
    twice = {"adminRoles": ["b", "a", "b"], "allowedClusters": ["standalone", "standalone"], "x": 1}
    assert (await call(admin, f"PUT {TENANTS}/t", twice))[0] == 204
    shown = {"adminRoles": ["b", "a"], "allowedClusters": ["standalone"]}
    assert await call(admin, f"GET {TENANTS}/t") == (200, shown)
    assert (await call(admin, f"PUT {TENANTS}/t2", {**INFO, "allowedClusters": 1}))[0] == 400
    assert await refusal(admin, f"POST {TENANTS}/nope", INFO) == (404, "Tenant nope not found")


async def test_tenant_keeps_a_cluster_that_a_namespace_is_on(admin: ClientSession) -> None:
    await call(admin, "PUT /admin/v2/clusters/west", {"serviceUrl": "http://w"})
    west = {"adminRoles": [], "allowedClusters": ["west"]}
    status, reason = await refusal(admin, f"POST {TENANTS}/public", west)
    assert (status, "Cannot remove cluster standalone" in reason) == (412, True)
    assert (await call(admin, f"PUT {TENANTS}/t", INFO))[0] == 204
    assert (await call(admin, f"POST {TENANTS}/t", west))[0] == 204


async def test_limits_of_tenants_and_namespaces_hold(admin: ClientSession) -> None:
    settings = "/admin/v2/brokers/configuration"
    await call(admin, f"POST {settings}/maxTenants/2")
    await call(admin, f"POST {settings}/maxNamespacesPerTenant/1")
    assert await refusal(admin, f"PUT {TENANTS}/t", INFO) == (412, "Exceed the maximum number of tenants")
    assert (await refusal(admin, f"PUT {NAMESPACES}/n"))[0] == 412
    await call(admin, f"DELETE {settings}/maxTenants")
    await call(admin, f"DELETE {settings}/maxNamespacesPerTenant")
    assert (await call(admin, f"PUT {TENANTS}/t", INFO))[0] == 204
    assert (await call(admin, f"PUT {NAMESPACES}/n"))[0] == 204


async def test_namespace_is_created_with_the_policies_of_the_body(admin: ClientSession) -> None:
    body = {
        "replication_clusters": ["standalone"],
        "deduplicationEnabled": True,
        "max_producers_per_topic": 3,
        "publishMaxMessageRate": {"standalone": {"publishThrottlingRateInMsg": 10}},
        "properties": {"a": "b"},
        "bundles": {"boundaries": ["0x00000000", "0x10000000", "0xffffffff"], "numBundles": 2},
        # As Pulsar's tools send them when nothing was chosen.
        "offload_threshold": -1,
        "subscription_auth_mode": "None",
        "encryption_required": False,
        "topicDispatchRate": {},
        "offload_threshold_in_seconds": 7,
    }
    assert await call(admin, f"PUT {NAMESPACES}/n", body) == (204, "")
    assert await call(admin, f"GET {NAMESPACES}/n/deduplication") == (200, True)
    assert await call(admin, f"GET {NAMESPACES}/n/maxProducersPerTopic") == (200, 3)
    assert await call(admin, f"GET {NAMESPACES}/n/properties") == (200, {"a": "b"})
    assert await call(admin, f"GET {NAMESPACES}/n/offloadThresholdInSeconds") == (200, 7)
    rate = await call(admin, f"GET {NAMESPACES}/n/publishRate")
    assert rate == (200, {"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": -1})
    assert await call(admin, f"GET {NAMESPACES}/n/bundles") == (200, body["bundles"])


REPLICATORS = "is_allow_auto_update_schema_with_replicator"


@pytest.mark.parametrize("more_settings", [[], ["pulsarDefaults=5.0"]], ids=["4.2", "5.0"])
@pytest.mark.parametrize("given", [True, False, "false"])
async def test_new_namespace_keeps_what_it_says_of_replicators(admin: ClientSession, given: object) -> None:
    assert await call(admin, f"PUT {NAMESPACES}/n", {REPLICATORS: given}) == (204, "")
    assert await shown_of_schemas(admin, "n") == (True, given is True)


async def test_schemas_by_replicators_are_shown_where_tools_of_5_0_would_show_something_else(
    admin: ClientSession,
) -> None:
    """They show true where the member is missing, which 4.2 lacks."""
    assert await call(admin, f"PUT {NAMESPACES}/n") == (204, "")
    assert await shown_of_schemas(admin, "n") == (True, None), (
        "every producer may add schemas, a replicator too"
    )
    assert await call(admin, f"POST {NAMESPACES}/n/isAllowAutoUpdateSchema", False) == (204, "")
    assert await shown_of_schemas(admin, "n") == (False, False)


@pytest.mark.parametrize("more_settings", [["isAllowAutoUpdateSchemaEnabled=false"]])
async def test_schemas_by_replicators_are_shown_where_the_broker_forbids_schemas(
    admin: ClientSession,
) -> None:
    assert await call(admin, f"PUT {NAMESPACES}/n") == (204, "")
    assert (await shown_of_schemas(admin, "n"))[1] is False


@pytest.mark.parametrize("more_settings", [["pulsarDefaults=5.0", "isAllowAutoUpdateSchemaEnabled=false"]])
async def test_release_5_0_lets_replicators_add_schemas_and_shows_it(
    admin: ClientSession, broker: BrokerService
) -> None:
    """As seen with Apache Pulsar 5.0.0-M1."""
    assert await call(admin, f"PUT {NAMESPACES}/n") == (204, "")
    assert (await shown_of_schemas(admin, "n"))[1] is True
    name = parse_topic_name("persistent://public/n/t")
    policies = broker.registry.policies
    assert policies.allows_schema_updates(name, by_replicator=True)
    assert not policies.allows_schema_updates(name)
    assert await call(
        admin, f"POST {NAMESPACES}/n/isAllowAutoUpdateSchema?allowAutoUpdateSchemaWithReplicator=false", False
    ) == (204, "")
    assert await shown_of_schemas(admin, "n") == (False, False)
    assert not policies.allows_schema_updates(name, by_replicator=True)


async def shown_of_schemas(admin: ClientSession, namespace: str) -> tuple[object, object]:
    """Returns two members of the policies: may producers, and may replicators, add schemas; None for a missing one."""
    _, policies = await call(admin, f"GET {NAMESPACES}/{namespace}")
    assert isinstance(policies, dict)
    return policies["is_allow_auto_update_schema"], policies.get(REPLICATORS)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"deduplicationEnabled": 5}, 400),
        ({"is_allow_auto_update_schema_with_replicator": 5}, 400),
        ({"max_producers_per_topic": -1}, 412),
        ({"offload_threshold": "x"}, 400),
        ({"offload_policies": {"managedLedgerOffloadDriver": "nosuch"}}, 412),
        ({"backlog_quota_map": {"other": {"limitSize": 1, "policy": "producer_exception"}}}, 400),
        ({"backlog_quota_map": {"message_age": {"limitTime": 1, "policy": "other"}}}, 400),
        ({"replication_clusters": ["nope"]}, 403),
        ({"replication_clusters": "standalone"}, 400),
        ({"bundles": {"boundaries": ["0x10000000", "0xffffffff"]}}, 400),
        ({"bundles": {"numBundles": 10_001}}, 400),
        ([], 400),
    ],
    ids=str,
)
async def test_namespace_is_not_created_when_a_policy_is_refused(
    admin: ClientSession, body: object, status: int
) -> None:
    assert (await call(admin, f"PUT {NAMESPACES}/n", body))[0] == status
    assert (await call(admin, f"GET {NAMESPACES}/n"))[0] == 404


async def test_namespace_is_on_the_own_cluster_alone(admin: ClientSession) -> None:
    await call(admin, "PUT /admin/v2/clusters/west", {"serviceUrl": "http://w"})
    replication, allowed = f"{NAMESPACES}/default/replication", f"{NAMESPACES}/default/allowedClusters"
    reason = "Cluster [west] is not in the list of allowed clusters list for tenant [public]"
    assert await refusal(admin, f"POST {replication}", ["west"]) == (403, reason)
    both = {"adminRoles": [], "allowedClusters": ["standalone", "west"]}
    await call(admin, f"POST {TENANTS}/public", both)
    assert (await refusal(admin, f"POST {replication}", ["standalone", "west"]))[0] == 501
    reason = "ClusterIds should not be null or empty"
    assert await refusal(admin, f"POST {replication}", []) == (412, reason)
    assert await refusal(admin, f"POST {replication}", ["global"]) == (403, "Invalid cluster id: global")
    assert await call(admin, f"POST {replication}", ["standalone"]) == (200, "")
    assert await call(admin, f"GET {replication}") == (200, ["standalone"])
    assert (await refusal(admin, f"POST {allowed}", ["west"]))[0] == 400
    assert await call(admin, f"POST {allowed}", ["west", "standalone"]) == (200, "")
    assert await call(admin, f"GET {allowed}") == (200, ["west", "standalone"])
    missing = (404, "Namespace does not exist")
    assert await refusal(admin, f"POST {NAMESPACES}/nope/replication", ["standalone"]) == missing


async def test_properties_are_added_and_removed(admin: ClientSession) -> None:
    line = f"{NAMESPACES}/default/properties"
    await call(admin, f"PUT {line}", {"a": "b", "c": "d"})
    await call(admin, f"PUT {line}", {"e": "f"})
    assert await call(admin, f"GET {line}") == (200, {"a": "b", "c": "d", "e": "f"})
    assert await call(admin, f"DELETE {line}") == (204, "")
    assert await call(admin, f"GET {line}") == (200, {})


async def test_changes_made_at_once_are_all_kept(admin: ClientSession) -> None:
    """Each request changes one member of a policy, and the others are waiting for the store meanwhile."""
    default = f"{NAMESPACES}/default"
    names = [f"k{number}" for number in range(8)]
    await asyncio.gather(*(call(admin, f"PUT {default}/property/{name}/v") for name in names))
    assert await call(admin, f"GET {default}/properties") == (200, dict.fromkeys(names, "v"))
    policies: Any = (await call(admin, f"GET {default}"))[1]
    quota = dict.fromkeys(("msgRateIn", "msgRateOut", "bandwidthIn", "bandwidthOut", "memory"), 7.0)
    lines = [
        f"/admin/v2/resource-quotas/public/default/{low}_{high}"
        for low, high in pairwise(policies["bundles"]["boundaries"])
    ]
    await asyncio.gather(*(call(admin, f"POST {line}", {**quota, "dynamic": False}) for line in lines))
    shown: list[Any] = [(await call(admin, f"GET {line}"))[1] for line in lines]
    assert [one["msgRateIn"] for one in shown] == [7.0] * len(lines)
    await asyncio.gather(*(call(admin, f"DELETE {default}/property/{name}") for name in names[:7]))
    assert await call(admin, f"GET {default}/properties") == (200, {"k7": "v"})


async def test_offload_numbers_set_at_once_are_all_kept(admin: ClientSession) -> None:
    """The three numbers are members of one stored value."""
    default = f"{NAMESPACES}/default"
    numbers = {"offloadThreshold": 5, "offloadThresholdInSeconds": 6, "offloadDeletionLagMs": 7}
    await asyncio.gather(*(call(admin, f"PUT {default}/{word}", value) for word, value in numbers.items()))
    assert {word: (await call(admin, f"GET {default}/{word}"))[1] for word in numbers} == numbers


async def test_bundles_split_at_once_are_all_split(admin: ClientSession) -> None:
    default = f"{NAMESPACES}/default"
    before: Any = (await call(admin, f"GET {default}"))[1]
    edges = before["bundles"]["boundaries"]
    splits = (f"PUT {default}/{low}_{high}/split" for low, high in pairwise(edges))
    assert {status for status, _ in await asyncio.gather(*(call(admin, one) for one in splits))} == {204}
    after: Any = (await call(admin, f"GET {default}/bundles"))[1]
    assert after["numBundles"] == 2 * (len(edges) - 1)
    # Of two splits of one bundle the later one finds it no more.
    again = f"PUT {default}/{edges[0]}_{after['boundaries'][1]}/split"
    answers = await asyncio.gather(call(admin, again), call(admin, again))
    assert sorted(status for status, _ in answers) == [204, 412]


async def test_empty_body_removes_the_interval_of_snapshots(admin: ClientSession) -> None:
    line = f"{NAMESPACES}/default/deduplicationSnapshotInterval"
    await call(admin, f"POST {line}", 100)
    assert await call(admin, f"POST {line}") == (204, "")
    assert await call(admin, f"GET {line}") == (200, "")


async def test_anti_affinity_group_lists_its_namespaces(admin: ClientSession) -> None:
    await call(admin, f"POST {NAMESPACES}/default/antiAffinity", "g")
    group = "/admin/v2/namespaces/standalone/antiAffinity/g"
    assert await call(admin, f"GET {group}?tenant=public") == (200, ["public/default"])
    assert await call(admin, f"GET {group}?tenant=pulsar") == (200, [])
    assert await refusal(admin, f"GET {group}") == (400, "Tenant should not be null")
    # Java clients send the text as it is, without quotes.
    line = f"{NAMESPACES}/default/antiAffinity"
    async with admin.post(line, data=b"h") as sent:
        assert sent.status == 204
    assert await call(admin, f"GET {line}") == (200, "h")
    for wrong, status in ((b"", 412), (b"x" * 1001, 412), (b"\xff", 400), (b'"x', 400)):
        async with admin.post(line, data=wrong) as sent:
            assert sent.status == status
    assert await call(admin, f"GET {line}") == (200, "h")


async def test_bundles_are_split_and_kept(admin: ClientSession, broker: BrokerService) -> None:
    await call(admin, f"PUT {NAMESPACES}/n", {"bundles": {"numBundles": 3}})
    line = f"{NAMESPACES}/n/0x00000000_0x55555555/split"
    assert await call(admin, f"PUT {line}") == (204, "")
    _status, bundles = await call(admin, f"GET {NAMESPACES}/n/bundles")
    assert isinstance(bundles, dict)
    assert bundles["boundaries"][:3] == ["0x00000000", "0x2aaaaaaa", "0x55555555"]
    assert (await refusal(admin, f"PUT {line}"))[0] == 412
    assert (await refusal(admin, f"PUT {NAMESPACES}/n/xyz/split?splitAlgorithmName=x"))[0] == 412
    positions = f"{NAMESPACES}/n/0x00000000_0x2aaaaaaa/split?splitAlgorithmName=specified_positions_divide"
    assert (await refusal(admin, f"PUT {positions}"))[0] == 412
    assert (await call(admin, f"PUT {positions}", ["5"]))[0] == 400
    assert await call(admin, f"PUT {positions}", [5]) == (204, "")
    assert bundles_of(broker.namespaces, "public/n").boundaries[:3] == (0, 5, 0x2AAAAAAA)
    assert await call(admin, f"PUT {NAMESPACES}/n/LARGEST/split") == (204, "")


async def test_unload_of_a_bundle_closes_its_topics_alone(
    admin: ClientSession, broker: BrokerService
) -> None:
    await call(admin, f"PUT {NAMESPACES}/n")
    names = {f"persistent://public/n/t{index}" for index in range(8)}
    for name in names:
        await call(admin, f"PUT /admin/v2/persistent/public/n/{name.rpartition('/')[2]}")
    bundle = bundles_of(broker.namespaces, "public/n").of(min(names))
    inside = {name for name in names if bundle.has(name)}
    status, found = await call(admin, f"GET {NAMESPACES}/n/{bundle}/topicHashPositions")
    assert isinstance(found, dict)
    assert set(found["topicHashPositions"]) == inside
    reason = "Not allowed unload namespace bundle to inactive destination broker"
    refused = await refusal(admin, f"PUT {NAMESPACES}/n/{bundle}/unload?destinationBroker=x:1")
    assert refused == (409, reason)
    assert await call(admin, f"PUT {NAMESPACES}/n/{bundle}/unload") == (204, "")
    assert {name for name in names if name in broker.registry.topics} == names - inside
    owned = f"/admin/v2/brokers/standalone/{broker.addresses.admin_url.partition('://')[2]}/ownedNamespaces"
    status, namespaces = await call(admin, f"GET {owned}")
    assert isinstance(namespaces, dict)
    assert status == 200
    assert f"public/n/{bundle}" not in namespaces
    assert await call(admin, f"PUT {NAMESPACES}/n/unload") == (204, "")
    assert not names & broker.registry.topics.keys()
    assert await refusal(admin, f"DELETE {NAMESPACES}/n/{bundle}") == (409, "Cannot delete non empty bundle")
    empty = "DELETE /admin/v2/namespaces/pulsar/system/0x00000000_0x40000000"
    unowned = "Failed to find ownership for ServiceUnit:pulsar/system/0x00000000_0x40000000"
    assert await refusal(admin, empty) == (412, unowned)


async def test_subscription_is_deleted_from_all_topics_of_a_namespace(
    admin: ClientSession, broker: BrokerService
) -> None:
    await call(admin, f"PUT {NAMESPACES}/n")
    for local in ("a", "b", "c"):
        await with_subscriptions(broker, local, "s", "kept")
    # Closed topics count too: nothing would be left to do for them when they are opened again.
    await call(admin, f"PUT {NAMESPACES}/n/unload")
    assert await call(admin, f"POST {NAMESPACES}/n/unsubscribe/s") == (204, "")
    for local in ("a", "b", "c"):
        subscriptions = await call(admin, f"GET /admin/v2/persistent/public/n/{local}/subscriptions")
        assert subscriptions == (200, ["kept"])
    assert await refusal(admin, f"POST {NAMESPACES}/nope/unsubscribe/s") == (404, "Namespace not found")


async def test_backlogs_of_a_namespace_are_cleared_after_a_compaction_of_one_of_its_topics(
    admin: ClientSession, broker: BrokerService
) -> None:
    await call(admin, f"PUT {NAMESPACES}/n")
    for local in ("a", "b"):
        topic = await with_subscriptions(broker, local, "s")
        await publish_plain(broker, str(topic.name), 3)
        await call(admin, f"PUT /admin/v2/persistent/public/n/{local}/compaction")
        await topic.compaction.wait()
    for _ in range(2):
        assert await call(admin, f"POST {NAMESPACES}/n/clearBacklog") == (204, "")
    for local in ("a", "b"):
        found: Any = (await call(admin, f"GET /admin/v2/persistent/public/n/{local}/stats"))[1]
        backlogs = {name: one["msgBacklog"] for name, one in found["subscriptions"].items()}
        assert backlogs == {"s": 0, "__compaction": 0}


async def test_topics_of_a_namespace_are_listed_without_those_of_brokers(
    admin: ClientSession, broker: BrokerService
) -> None:
    await call(admin, f"PUT {NAMESPACES}/n")
    for local in ("t", "__change_events"):
        await call(admin, f"PUT /admin/v2/persistent/public/n/{local}")
    await broker.registry.get(parse_topic_name("non-persistent://public/n/v"), create=True)
    own, volatile = "persistent://public/n/t", "non-persistent://public/n/v"
    system = "persistent://public/n/__change_events"
    for mode, listed in (
        ("", [own]),
        ("?mode=PERSISTENT", [own]),
        ("?mode=NON_PERSISTENT", [volatile]),
        ("?mode=ALL", [own, volatile]),
        ("?mode=ALL&includeSystemTopic=false", [own, volatile]),
        ("?includeSystemTopic=true", [system, own]),
        ("?mode=ALL&includeSystemTopic=true", [system, own, volatile]),
    ):
        assert await call(admin, f"GET {NAMESPACES}/n/topics{mode}") == (200, listed), mode


async def test_namespace_is_deleted_by_force_when_it_is_allowed(
    admin: ClientSession, broker: BrokerService
) -> None:
    await call(admin, f"PUT {NAMESPACES}/n")
    await call(admin, "PUT /admin/v2/persistent/public/n/t")
    await call(admin, "PUT /admin/v2/persistent/public/n/p/partitions", 3)
    await call(admin, "POST /admin/v2/persistent/public/n/t/maxProducers", 3)
    refused = (405, "Broker doesn't allow forced deletion of namespaces")
    assert await refusal(admin, f"DELETE {NAMESPACES}/n?force=true") == refused
    await call(admin, "POST /admin/v2/brokers/configuration/forceDeleteNamespaceAllowed/true")
    assert await call(admin, f"DELETE {NAMESPACES}/n?force=true") == (204, "")
    assert (await call(admin, f"GET {NAMESPACES}/n"))[0] == 404
    await call(admin, f"PUT {NAMESPACES}/n")
    assert await call(admin, f"GET {NAMESPACES}/n/topics") == (200, [])
    assert await call(admin, "GET /admin/v2/persistent/public/n/partitioned") == (200, [])
    assert broker.namespaces.topic_policy("persistent://public/n/t", "maxProducerPerTopic") is None


async def test_no_topic_is_created_in_a_namespace_that_is_being_deleted(
    admin: ClientSession, broker: BrokerService
) -> None:
    await call(admin, f"PUT {NAMESPACES}/n")
    await broker.namespaces.set_policy("public/n", "deleted", True)
    with pytest.raises(TopicNotFound):
        await broker.registry.get(parse_topic_name("persistent://public/n/t"), create=True)
    _status, shown = await call(admin, f"GET {NAMESPACES}/n")
    assert isinstance(shown, dict)
    assert shown["deleted"] is True


async def test_tenant_is_deleted_by_force_when_it_is_allowed(admin: ClientSession) -> None:
    await call(admin, f"PUT {TENANTS}/t", INFO)
    await call(admin, "PUT /admin/v2/namespaces/t/n")
    await call(admin, "PUT /admin/v2/persistent/t/n/topic")
    refused = (405, "Broker doesn't allow forced deletion of tenants")
    assert await refusal(admin, f"DELETE {TENANTS}/t?force=true") == refused
    assert (await refusal(admin, f"DELETE {TENANTS}/t"))[0] == 409
    await call(admin, "POST /admin/v2/brokers/configuration/forceDeleteTenantAllowed/true")
    assert await call(admin, f"DELETE {TENANTS}/t?force=true") == (204, "")
    assert (await refusal(admin, f"DELETE {TENANTS}/t?force=true")) == (404, "Tenant doesn't exist")


async def test_health_knows_this_broker_alone(admin: ClientSession, broker: BrokerService) -> None:
    health, name = "GET /admin/v2/brokers/health", broker.addresses.admin_url.partition("://")[2]
    assert await call(admin, f"{health}?topicVersion=V2&brokerId={name}") == (200, "ok")
    reason = "Broker id 'x:1' not found in available brokers."
    assert await refusal(admin, f"{health}?brokerId=x:1") == (404, reason)
    assert (await call(admin, "GET /admin/v2/bookies/all"))[0] == 200


async def test_shutdown_is_refused_inside_of_another_program(
    admin: ClientSession, broker: BrokerService
) -> None:
    assert (await refusal(admin, "POST /admin/v2/brokers/shutdown"))[0] == 501
    asked: list[int] = []
    broker.stop_process = lambda: asked.append(1)
    assert await call(admin, "POST /admin/v2/brokers/shutdown") == (204, "")
    assert asked == [1]


async def turns_beside(work: Awaitable[object]) -> int:
    """Returns the turns of the loop that others got while the work ran."""
    done = False
    turns = 0

    async def count() -> None:
        nonlocal turns
        while not done:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.ensure_future(count())
    await work
    done = True
    await counting
    return turns


async def test_work_on_many_topics_lets_clients_run_between_slices(
    admin: ClientSession, broker: BrokerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "ITEMS_MAX", 20)
    await call(admin, f"PUT {NAMESPACES}/n")
    for index in range(100):
        await with_subscriptions(broker, f"t{index}")
    registry = broker.registry
    # Each step lets the loop run once per topic or per slice; without slices it is a handful in all.
    assert await turns_beside(registry.namespace_changed("public/n")) >= 5
    assert await turns_beside(namespace_topics.clear_backlog(registry, "public/n")) >= 5
    assert await turns_beside(namespace_topics.unload(registry, "public/n")) >= 5
    assert await turns_beside(broker.deletions.namespace("public/n", force=True)) >= 30
    assert not broker.namespaces.exists("public/n")
    assert not await registry.names("public/n")
