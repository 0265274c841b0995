"""Two brokers on one store, and somebody who writes beside them: each change acts without a restart or a request."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest
from aiohttp import ClientSession

from bookkeeper.ensembles.racks import Affinity, affinity_of
from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import MetadataStore
from bookkeeper.metadata.zookeeper_metadata_store import ZookeeperMetadataStore
from broker.compose.broker_service import BrokerService
from broker.compose.confirmed_rights import BOUND_S
from broker.security.authorization.permissions import Action, NamespacePermissions
from broker.security.principal import Principal
from broker.service.namespaces.namespaces import Namespaces
from broker.service.namespaces.stored_policies import PERMISSIONS
from broker.service.policies.effective_policies import RESOURCE_GROUP
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic import Topic
from foundation.model.errors import OwnerUncertain, ServiceNotReady
from foundation.model.topic_name import parse_topic_name
from foundation.value import Json
from foundation.zookeeper.url import ZookeeperUrl
from tests.support.java import ZooKeeper
from tests.support.memory_broker import memory_broker
from tests.support.raw_client import RawConnection
from tests.support.tokens import SECRET_URL, token

TOPIC = parse_topic_name("persistent://public/default/orders")
USER = Principal("user")
SETTINGS = (
    "authenticationEnabled=true",
    "authenticationProviders=org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
    f"tokenSecretKey={SECRET_URL}",
    "authorizationEnabled=true",
    "superUserRoles=admin",
)


class Two:
    def __init__(self, one: BrokerService, other: BrokerService, tool: MetadataStore) -> None:
        self.one, self.other = one, other
        self.tool = tool
        """A session that belongs to no broker."""

    async def write(self, key: str, value: object) -> None:
        await self.tool.put(key, json.dumps(value).encode())


@pytest.fixture(params=["memory", pytest.param("zookeeper", marks=[pytest.mark.peer, pytest.mark.slow])])
async def two(request: pytest.FixtureRequest) -> AsyncIterator[Two]:
    async with AsyncExitStack() as stack:
        stores: list[MetadataStore] = []
        if request.param == "memory":
            first = MemoryMetadataStore()
            stores = [first, first.another(), first.another()]
        else:
            server: ZooKeeper = request.getfixturevalue("zookeeper")
            url = ZookeeperUrl(server.address, f"/{uuid.uuid4().hex[:8]}")
            for _ in range(3):
                stores.append(await ZookeeperMetadataStore.open(url, session_timeout_s=30, timeout_s=60))
        stack.push_async_callback(stores[2].close)
        one, other = [
            await stack.enter_async_context(memory_broker(*SETTINGS, metadata=store)) for store in stores[:2]
        ]
        yield Two(one, other, stores[2])


async def opened(broker: BrokerService) -> Topic:
    """The topic, after a lookup that makes this broker its owner."""
    await broker.registry.ownership.owner_of(TOPIC, authoritative=True)
    return await broker.registry.get(TOPIC, create=True)


async def until(holds: Callable[[], bool]) -> None:
    """Waits for what a watch brings; the test's own limit ends a wait for ever."""
    while not holds():  # noqa: ASYNC110  # The broker alone shows the change, and has no event for it.
        await asyncio.sleep(0.01)


async def test_right_that_one_broker_grants_and_revokes_holds_and_ends_at_the_other(two: Two) -> None:
    def granted(_: NamespacePermissions) -> NamespacePermissions:
        return NamespacePermissions(roles={"user": frozenset((Action.PRODUCE,))})

    assert not two.other.authorizer.may_produce(USER, TOPIC)
    ended: list[bool] = []
    await two.one.namespaces.change_permissions("public/default", granted)
    await until(lambda: two.other.authorizer.may_produce(USER, TOPIC))
    two.other.namespaces.rights_changed = lambda: ended.append(True)
    # By a tool, as with `zkCli`.
    await two.write("/admin/policies/public/default", {PERMISSIONS: {}})
    for broker in (two.one, two.other):
        await until(lambda broker=broker: not broker.authorizer.may_produce(USER, TOPIC))  # type: ignore[misc]
    await until(lambda: bool(ended))


async def test_administrator_of_a_tenant_ends_with_the_change_of_another_broker(two: Two) -> None:
    await two.one.namespaces.create_tenant(
        "shop", {"adminRoles": ["user"], "allowedClusters": ["standalone"]}
    )
    await until(lambda: two.other.authorizer.administers(USER, "shop"))
    await two.one.namespaces.update_tenant("shop", {"adminRoles": [], "allowedClusters": ["standalone"]})
    await until(lambda: not two.other.authorizer.administers(USER, "shop"))


async def test_policy_of_another_broker_reaches_an_open_topic(two: Two) -> None:
    topic = await opened(two.other)
    assert not topic.publish_limits
    rate = {"publishThrottlingRateInMsg": 7, "publishThrottlingRateInByte": -1}
    await two.write("/admin/policies/public/default", {"publishMaxMessageRate": {"standalone": rate}})
    await until(lambda: bool(topic.publish_limits))
    await two.one.namespaces.create("public/fresh", {"message_ttl_in_seconds": 5})
    await until(lambda: two.other.namespaces.exists("public/fresh"))


async def test_namespace_that_another_broker_has_just_made_is_found(two: Two) -> None:
    await two.tool.put("/admin/policies/public/fresh", b"{}")
    assert await two.other.namespaces.stored.has("public/fresh"), "before its watch told of it"
    assert not await two.other.namespaces.stored.has("public/missing")


async def test_resource_group_of_another_broker_limits_its_members(two: Two) -> None:
    await two.write("/admin/resourcegroups/g", {"publishRateInMsgs": 10})
    await until(lambda: list(two.other.registry.resource_groups.names()) == ["g"])
    await two.other.namespaces.set_policy("public/default", RESOURCE_GROUP, "g")
    await two.one.registry.resource_groups.put("g", {"publishRateInMsgs": 20})
    await until(lambda: two.other.registry.resource_groups.get("g").publish_messages == 20)
    await two.tool.delete("/admin/resourcegroups/g")
    await until(lambda: not two.other.registry.resource_groups.names())


async def test_setting_of_another_broker_is_applied_and_a_bad_one_is_not(two: Two) -> None:
    key = "managedLedgerCacheEvictionTimeThresholdMillis"
    await two.one.dynamic_settings.set(key, "123")
    await until(lambda: two.other.settings.int(key) == 123)
    await two.write("/admin/configuration", {key: "-1", "dispatcherMaxReadBatchSize": "7"})
    for broker in (two.one, two.other):
        await until(lambda broker=broker: broker.settings.int("dispatcherMaxReadBatchSize") == 7)  # type: ignore[misc]
        assert broker.settings.int(key) != -1
    await two.tool.put("/admin/configuration", b"{")
    await two.other.dynamic_settings.read_again()
    assert two.other.settings.int("dispatcherMaxReadBatchSize") == 7, "damage undoes nothing"


async def test_partition_count_of_another_broker_is_the_next_answer(two: Two) -> None:
    await two.one.partitioned.create(TOPIC, 2)
    await two.tool.sync()
    assert await two.other.partitioned.count_or_create(TOPIC, create=False) == 2
    await two.write("/admin/partitioned-topics/public/default/persistent/orders", {"partitions": 3})
    await two.tool.sync()
    assert await two.other.partitioned.count_or_create(TOPIC, create=False) == 3


async def test_rights_end_when_the_store_has_not_confirmed_them_for_their_bound(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, admin = two.other, Principal("admin")
    connection = await RawConnection.open(other.addresses.service_url)
    await connection.connect(token=token({"sub": "admin"}))
    await other.registry.ownership.owner_of(TOPIC, authoritative=True)
    connection.send("PRODUCER", request_id=1, topic=str(TOPIC), producer_id=1)
    await connection.receive("PRODUCER_SUCCESS")

    now_ns = other._clock.monotonic_ns()
    rights = other.authorizer.is_confirmed.__self__  # type: ignore[attr-defined]
    monkeypatch.setattr(rights, "_now_ns", lambda: now_ns + int((BOUND_S + 1) * 1e9))
    rights.check()
    await connection.receive("CLOSE_PRODUCER")
    connection.send("PRODUCER", request_id=2, topic=str(TOPIC), producer_id=1)
    refusal = (await connection.receive("ERROR")).command.error
    assert refusal.error == ServiceNotReady.code, "a client asks again, and does not give up"
    path = f"{other.addresses.admin_url}/admin/v2/tenants"
    headers = {"Authorization": f"Bearer {token({'sub': 'admin'})}"}
    async with ClientSession(headers=headers) as session:
        assert (await session.get(path)).status == 503
        rights.begin_round()
        await until(lambda: other.authorizer.is_superuser(admin))
        assert (await session.get(path)).status == 200
    connection.send("PRODUCER", request_id=3, topic=str(TOPIC), producer_id=1)
    await connection.receive("PRODUCER_SUCCESS")
    await connection.close()


async def test_next_ledger_of_a_namespace_names_the_groups_that_another_broker_has_set(two: Two) -> None:
    groups = {"bookkeeperAffinityGroupPrimary": "g1", "bookkeeperAffinityGroupSecondary": "g2"}
    await two.write("/admin/local-policies/public/default", {"bookieAffinityGroup": groups})
    await until(lambda: two.other.namespaces.policy("public/default", "bookieAffinityGroup") == groups)
    topic = await opened(two.other)
    assert isinstance(topic, PersistentTopic)
    assert topic.ledger.context.settings.affinity == Affinity.of("g1", "g2")
    begun = await topic.ledger.context.store.start_current(None)
    assert affinity_of(begun.metadata.custom) == Affinity.of("g1", "g2")


@pytest.mark.parametrize("is_shared", [False, True])
async def test_client_keeps_its_address_with_the_broker_of_an_own_store_alone(is_shared: bool) -> None:
    """Not with the last living broker of a cluster: others come back."""
    store = MemoryMetadataStore()
    store.is_shared = is_shared
    async with memory_broker(metadata=store) as broker:
        assert len(broker.registry.ownership.brokers) == 1
        connection = await RawConnection.open(broker.addresses.service_url)
        await connection.connect()
        connection.send("LOOKUP", request_id=1, topic=str(TOPIC), authoritative=True)
        answer = (await connection.receive("LOOKUP_RESPONSE")).command.lookupTopicResponse
        assert answer.brokerServiceUrl == broker.addresses.service_url
        assert answer.proxy_through_service_url is not is_shared
        await connection.close()


async def test_brokers_that_start_together_on_an_empty_store_both_start() -> None:
    first = MemoryMetadataStore()
    registries = [Namespaces(store, "standalone") for store in (first, first.another())]
    await asyncio.gather(*(registry.open() for registry in registries))
    for registry in registries:
        assert registry.exists("public/default")
        assert registry.exists("pulsar/system")
        await registry.stored.close()


async def test_names_of_producers_are_not_those_of_an_apache_broker(two: Two) -> None:
    names = {broker.net.producer_names.next() for broker in (two.one, two.other)}
    assert len(names) == 2
    assert all(re.fullmatch(r"standalone-m\d+-0", name) for name in names), names


async def test_watcher_of_a_pattern_is_told_of_topics_that_another_broker_makes_and_deletes(two: Two) -> None:
    connection = await RawConnection.open(two.other.addresses.service_url)
    await connection.connect(token=token({"sub": "admin"}))
    connection.send(
        "WATCH_TOPIC_LIST",
        request_id=1,
        watcher_id=1,
        namespace=TOPIC.namespace,
        topics_pattern=f"{TOPIC.domain}://{TOPIC.namespace}/.*",
    )
    await connection.receive("WATCH_TOPIC_LIST_SUCCESS")
    await opened(two.one)
    update = (await connection.receive("WATCH_TOPIC_UPDATE")).command.watchTopicUpdate
    assert list(update.new_topics) == [str(TOPIC)]
    await two.one.deletions.topic(TOPIC, force=True)
    update = (await connection.receive("WATCH_TOPIC_UPDATE")).command.watchTopicUpdate
    assert list(update.deleted_topics) == [str(TOPIC)]
    connection.send("WATCH_TOPIC_LIST_CLOSE", request_id=2, watcher_id=1)
    await connection.receive("SUCCESS")
    assert two.other.registry.events.watchers == {}
    await connection.close()


async def test_isolation_policy_that_no_broker_can_read_ends_no_connection(two: Two) -> None:
    """Apache stores any Java pattern; RE2 reads no look-ahead."""
    policies: dict[str, Json] = {
        "apache": {"namespaces": ["public/.*"], "primary": ["(?!10).*"], "secondary": []},
        "other": {"namespaces": ["secret/(?!public).*"], "primary": ["10.*"], "secondary": []},
    }
    await two.write("/admin/clusters/standalone/namespaceIsolationPolicies", policies)
    connection = await RawConnection.open(two.one.addresses.service_url)
    await connection.connect(token=token({"sub": "admin"}))
    connection.send("LOOKUP", request_id=1, topic=str(TOPIC))
    answer = (await connection.receive("LOOKUP_RESPONSE")).command.lookupTopicResponse
    assert answer.error == OwnerUncertain.code, "a client asks again, on the same connection"
    assert "isolation policy 'apache'" in answer.message
    connection.send("LOOKUP", request_id=2, topic="persistent://pulsar/system/t")
    answer = (await connection.receive("LOOKUP_RESPONSE")).command.lookupTopicResponse
    assert answer.brokerServiceUrl
    await connection.close()


@pytest.mark.parametrize(
    ("policies", "names", "status"),
    [
        ({"apache": {"namespaces": ["(?!x).*", 1], "primary": [1]}, "x": 5}, ("apache", "x"), 200),
        ([], ("missing",), 500),
    ],
    ids=["policies", "no object"],
)
async def test_isolation_policies_that_cannot_be_read_are_shown_and_replaced(
    two: Two, policies: Json, names: tuple[str, ...], status: int
) -> None:
    await opened(two.one)
    await two.write("/admin/clusters/standalone/namespaceIsolationPolicies", policies)
    headers = {"Authorization": f"Bearer {token({'sub': 'admin'})}"}
    async with ClientSession(two.one.addresses.admin_url, headers=headers) as session:
        name, stored = two.one.addresses.broker_id, "/admin/v2/clusters/standalone/namespaceIsolationPolicies"
        answer = await session.get(f"/admin/v2/brokers/standalone/{name}/ownedNamespaces")
        assert answer.status == 200
        for path in (stored, f"{stored}/brokers"):
            answer = await session.get(path)
            assert answer.status == status
            assert status == 200 or "cannot be read: it is no JSON object" in await answer.text()
        for policy in names:
            assert (await session.delete(f"{stored}/{policy}")).status == 204
        assert await (await session.get(stored)).json() == {}
