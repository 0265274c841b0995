"""Namespaces: tenants, namespaces and policies, after a restart and under errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import ABSENT, VALUE_BYTES_MAX, Put, Versioned, Write
from broker.security.authorization.permissions import Action, NamespacePermissions, stored_permissions
from broker.service.namespaces.namespaces import (
    AlreadyExists,
    NamespaceNotFound,
    Namespaces,
    NotEmpty,
)
from broker.service.namespaces.stored_forms import DOCUMENT_BYTES_MAX, DocumentTooLarge
from foundation.model.errors import InvalidTopicName, MetadataError
from foundation.value import Json
from tests.fakes.metadata import Unwatched

CREATED: dict[str, Json] = {"replication_clusters": ["standalone"]}
"""Policies that each namespace is created with."""


class DictStore(Unwatched):
    """The smallest store that keeps the contract, with a turn of the loop in each write."""

    value_bytes_max = VALUE_BYTES_MAX

    def __init__(self) -> None:
        self.values: dict[str, Versioned] = {}

    async def get(self, key: str) -> Versioned | None:
        return self.values.get(key)

    async def put(self, key: str, value: bytes, expected: int | None = None) -> int:
        await asyncio.sleep(0)
        found = self.values.get(key)
        assert expected is None or expected == (ABSENT if found is None else found.version)
        self.values[key] = Versioned(value, 0 if found is None else found.version + 1)
        return self.values[key].version

    async def put_all(self, puts: Sequence[Write]) -> list[int]:
        raise NotImplementedError("what changes here is one key")

    async def delete(self, key: str, expected: int | None = None) -> None:
        self.values.pop(key, None)

    async def children(self, key: str) -> list[str]:
        below = f"{key}/"
        return sorted({k[len(below) :].partition("/")[0] for k in self.values if k.startswith(below)})

    async def close(self) -> None: ...


async def opened(store: DictStore) -> Namespaces:
    namespaces = Namespaces(store, "standalone")
    await namespaces.open()
    return namespaces


async def test_open_creates_public_default_and_pulsar_system_in_an_empty_store() -> None:
    namespaces = await opened(DictStore())
    assert namespaces.tenants() == ["public", "pulsar"]
    assert namespaces.exists("public/default")
    assert namespaces.names("pulsar") == ["pulsar/system"]
    assert dict(namespaces.tenant("public")) == {"adminRoles": [], "allowedClusters": ["standalone"]}


async def test_tenants_and_policies_survive_a_restart() -> None:
    store = DictStore()
    namespaces = await opened(store)
    await namespaces.create_tenant("shop", {"adminRoles": ["a"], "allowedClusters": ["standalone"]})
    await namespaces.create("shop/orders", {"deduplicationEnabled": True})
    await namespaces.set_policy("shop/orders", "max_producers_per_topic", 5)
    await namespaces.set_policy("shop/orders", "deduplicationEnabled", None)
    for registry in (namespaces, await opened(store)):
        assert registry.policy("shop/orders", "max_producers_per_topic") == 5
        assert registry.policy("shop/orders", "deduplicationEnabled") is None
        assert registry.tenants() == ["public", "pulsar", "shop"]


async def test_topic_policies_survive_a_restart_and_end_with_the_topic() -> None:
    store = DictStore()
    namespaces = await opened(store)
    topic = "persistent://public/default/a%2Fb c"
    await namespaces.set_topic_policy(topic, "maxMessageSize", 50)
    for registry in (namespaces, await opened(store)):
        assert registry.topic_policy(topic, "maxMessageSize") == 50
        assert registry.topic_policy("persistent://public/default/a", "maxMessageSize") is None
    await namespaces.forget_topic(topic)
    await namespaces.forget_topic(topic)
    assert namespaces.topic_policy(topic, "maxMessageSize") is None
    assert (await opened(store)).topic_policy(topic, "maxMessageSize") is None


async def test_concurrent_policy_changes_are_all_kept() -> None:
    namespaces = await opened(DictStore())
    await asyncio.gather(*(namespaces.set_policy("public/default", f"p{n}", n) for n in range(5)))
    assert dict(namespaces.policies("public/default")) == CREATED | {f"p{n}": n for n in range(5)}


async def test_delete_tenant_is_refused_while_it_has_namespaces() -> None:
    store = DictStore()
    namespaces = await opened(store)
    await namespaces.create_tenant("shop", {})
    await namespaces.create("shop/orders")
    with pytest.raises(NotEmpty):
        await namespaces.delete_tenant("shop")
    await namespaces.delete("shop/orders")
    await namespaces.delete_tenant("shop")
    assert not (await opened(store)).tenant_exists("shop")


async def test_names_lists_no_namespace_of_a_tenant_with_the_same_prefix() -> None:
    namespaces = await opened(DictStore())
    await namespaces.create_tenant("public2", {})
    await namespaces.create("public2/x")
    assert namespaces.names("public") == ["public/default"]


async def test_changes_are_refused_for_unknown_existing_and_invalid_names() -> None:
    namespaces = await opened(DictStore())
    with pytest.raises(NamespaceNotFound, match="Namespace does not exist"):
        namespaces.policies("public/nope")
    with pytest.raises(NamespaceNotFound, match="Tenant does not exist"):
        await namespaces.create("nope/x")
    with pytest.raises(NamespaceNotFound):
        await namespaces.set_policy("public/nope", "x", 1)
    with pytest.raises(AlreadyExists):
        await namespaces.create("public/default")
    with pytest.raises(AlreadyExists):
        await namespaces.create_tenant("public", {})
    for name in ("public/a b", "public/", "public", "public/a/b"):
        with pytest.raises(InvalidTopicName):
            await namespaces.create(name)
    assert namespaces.policy("public/nope", "x") is None


async def test_document_above_the_limit_is_refused_and_nothing_changes() -> None:
    store = DictStore()
    namespaces = await opened(store)
    roles = [f"role-{number:08}" for number in range(DOCUMENT_BYTES_MAX // 20)]
    await namespaces.change_permissions("public/default", lambda now: now.grant_on_subscription("a", roles))
    before = dict(store.values)
    with pytest.raises(DocumentTooLarge):
        await namespaces.change_permissions(
            "public/default", lambda now: now.grant_on_subscription("b", roles)
        )
    with pytest.raises(DocumentTooLarge):
        await namespaces.create_tenant("t", {"adminRoles": ["x" * DOCUMENT_BYTES_MAX]})
    assert store.values == before
    granted = namespaces.permissions("public/default")
    assert granted is not None
    assert [*granted.subscriptions] == ["a"]
    assert not namespaces.tenant_exists("t")


async def test_document_above_the_limit_may_become_smaller() -> None:
    store = DictStore()
    roles = [f"role-{number:08}" for number in range(DOCUMENT_BYTES_MAX // 14)]
    await opened(store)
    permissions = NamespacePermissions(subscriptions={name: frozenset(roles) for name in "ab"})
    large = {"auth_policies": stored_permissions(permissions)}
    await store.put("/admin/policies/public/default", json.dumps(large).encode())
    namespaces = await opened(store)
    await namespaces.change_permissions(
        "public/default", lambda now: now.revoke_on_subscription("a", roles[0])
    )
    granted = namespaces.permissions("public/default")
    assert granted is not None
    assert roles[0] not in granted.subscriptions["a"]
    with pytest.raises(DocumentTooLarge):
        await namespaces.set_policy("public/default", "properties", {"a": "b"})


async def test_deleted_namespace_announces_the_end_of_its_rights() -> None:
    namespaces = await opened(DictStore())
    await namespaces.create("public/gone")
    announced: list[bool] = []
    namespaces.rights_changed = lambda: announced.append(namespaces.exists("public/gone"))
    await namespaces.delete("public/gone")
    assert announced == [False]


def granting(topic: str) -> Callable[[NamespacePermissions], NamespacePermissions]:
    return lambda now: now.grant_on_topics([topic], "role", [Action.CONSUME])


class TwoBrokers:
    """Two registries on one store, both opened before the first change."""

    def __init__(self, one: Namespaces, other: Namespaces) -> None:
        self.one, self.other = one, other

    @classmethod
    async def opened(cls, store: MemoryMetadataStore | None = None) -> TwoBrokers:
        store = store or MemoryMetadataStore()
        registries = [Namespaces(store, "standalone") for _ in range(2)]
        for registry in registries:
            await registry.open()
        return cls(*registries)


async def test_policies_that_two_brokers_set_are_all_kept() -> None:
    two = await TwoBrokers.opened()
    await two.one.set_policy("public/default", "a", 1)
    await two.other.set_policy("public/default", "b", 2)
    await two.one.set_policy("public/default", "c", 3)
    assert dict(two.one.policies("public/default")) == CREATED | {"a": 1, "b": 2, "c": 3}
    await two.other.set_policy("public/default", "a", None)
    assert dict(two.other.policies("public/default")) == CREATED | {"b": 2, "c": 3}


async def test_revoked_right_stays_revoked_when_another_broker_changes_a_policy() -> None:
    two = await TwoBrokers.opened()
    topic = "persistent://public/default/t"
    await two.one.change_permissions("public/default", granting(topic))
    await two.other.set_policy("public/default", "a", 1)
    granted = two.other.permissions("public/default")
    assert granted is not None
    assert topic in granted.topics
    announced = []
    two.other.rights_changed = lambda: announced.append(True)
    await two.one.change_permissions("public/default", lambda now: now.forget_topics([topic]))
    await two.other.set_policy("public/default", "b", 2)
    for registry in (two.one, two.other):
        assert registry.permissions("public/default") == NamespacePermissions()
    assert announced


async def test_permissions_that_two_brokers_grant_are_all_kept() -> None:
    two = await TwoBrokers.opened()
    topics = [f"persistent://public/default/{n}" for n in range(2)]
    await two.one.change_permissions("public/default", granting(topics[0]))
    await two.other.change_permissions("public/default", granting(topics[1]))
    granted = two.other.permissions("public/default")
    assert granted is not None
    assert sorted(granted.topics) == topics


async def test_topic_policies_that_two_brokers_set_are_all_kept() -> None:
    two, topic = await TwoBrokers.opened(), "persistent://public/default/t"
    await two.one.set_topic_policy(topic, "a", 1)
    await two.other.set_topic_policy(topic, "b", 2)
    assert dict(two.other.topic_policies(topic)) == {"a": 1, "b": 2}
    await two.one.forget_topic(topic)
    await two.other.set_topic_policy(topic, "c", 3)
    assert dict(two.other.topic_policies(topic)) == {"c": 3}


async def test_mark_of_a_deletion_keeps_what_another_broker_set() -> None:
    store = MemoryMetadataStore()
    two = await TwoBrokers.opened(store)
    await two.one.set_policy("public/default", "a", 1)
    await two.other.mark_deleted("public/default", [Put("/intent", b"x", ABSENT)])
    found = await store.get("/admin/policies/public/default")
    assert found is not None
    assert json.loads(found.value) == CREATED | {"a": 1, "deleted": True}


async def test_creation_is_refused_for_what_another_broker_has_created() -> None:
    two = await TwoBrokers.opened()
    await two.one.create_tenant("shop", {"adminRoles": ["a"]})
    with pytest.raises(AlreadyExists):
        await two.other.create_tenant("shop", {})
    await two.one.create("shop/orders", {"a": 1})
    with pytest.raises(AlreadyExists):
        await two.other.create("shop/orders")
    assert dict(two.other.policies("shop/orders")) == CREATED | {"a": 1}


async def test_change_after_a_deletion_by_another_broker_makes_nothing_anew() -> None:
    store = MemoryMetadataStore()
    two = await TwoBrokers.opened(store)
    await two.one.create("public/orders")
    with pytest.raises(AlreadyExists):
        await two.other.create("public/orders")
    await two.one.delete("public/orders")
    with pytest.raises(NamespaceNotFound):
        await two.other.set_policy("public/orders", "a", 1)
    assert not two.other.exists("public/orders")
    assert await store.get("/admin/policies/public/orders") is None


class LostAnswers(MemoryMetadataStore):
    """Writes the next value, and then fails as a store does whose answer was lost."""

    lost = False

    async def put(self, key: str, value: bytes, expected: int | None = None) -> int:
        version = await super().put(key, value, expected)
        if self.lost:
            self.lost = False
            raise MetadataError("the answer was lost")
        return version


async def test_change_after_a_lost_answer_keeps_both() -> None:
    store = LostAnswers()
    namespaces = Namespaces(store, "standalone")
    await namespaces.open()
    store.lost = True
    with pytest.raises(MetadataError):
        await namespaces.set_policy("public/default", "a", 1)
    await namespaces.set_policy("public/default", "b", 2)
    assert dict(namespaces.policies("public/default")) == CREATED | {"a": 1, "b": 2}


async def test_tenant_that_two_brokers_update_has_the_later_values() -> None:
    two = await TwoBrokers.opened()
    for number, registry in enumerate((two.one, two.other, two.one)):
        await registry.update_tenant("public", {"adminRoles": [str(number)]})
    assert two.one.admin_roles("public") == ["2"]


async def test_namespace_of_the_largest_size_can_be_marked_as_deleted() -> None:
    rest = len(json.dumps({**CREATED, "x": ""}, separators=(",", ":")))
    namespaces = await opened_in_memory({"x": "y" * (DOCUMENT_BYTES_MAX - rest)})
    await namespaces.mark_deleted("public/large", [Put("/intent", b"x", ABSENT)])
    assert namespaces.policy("public/large", "deleted") is True


async def opened_in_memory(policies: dict[str, Json]) -> Namespaces:
    namespaces = Namespaces(MemoryMetadataStore(), "standalone")
    await namespaces.open()
    await namespaces.create("public/large", policies)
    return namespaces


async def node(store: MemoryMetadataStore, key: str) -> Json:
    found = await store.get(key)
    value: Json = None if found is None else json.loads(found.value)
    return value


async def test_rate_is_stored_under_the_cluster_and_keeps_those_of_others() -> None:
    store, key = MemoryMetadataStore(), "/admin/policies/public/default"
    await store.put("/admin/policies/public", b'{"adminRoles":[]}')
    await store.put(key, b'{"topicDispatchRate":{"west":{"a":1}},"publishMaxMessageRate":{"west":{"a":2}}}')
    namespaces = Namespaces(store, "standalone")
    await namespaces.open()
    assert namespaces.policy("public/default", "topicDispatchRate") is None
    for rate in ("topicDispatchRate", "publishMaxMessageRate", "clusterSubscribeRate"):
        await namespaces.set_policy("public/default", rate, {"b": 3})
        assert namespaces.policy("public/default", rate) == {"b": 3}
    assert await node(store, key) == {
        "topicDispatchRate": {"west": {"a": 1}, "standalone": {"b": 3}},
        "clusterDispatchRate": {"standalone": {"b": 3}},
        "publishMaxMessageRate": {"west": {"a": 2}, "standalone": {"b": 3}},
        "clusterSubscribeRate": {"standalone": {"b": 3}},
    }
    for rate in ("topicDispatchRate", "publishMaxMessageRate", "clusterSubscribeRate"):
        await namespaces.set_policy("public/default", rate, None)
    assert await node(store, key) == {
        "topicDispatchRate": {"west": {"a": 1}},
        "publishMaxMessageRate": {"west": {"a": 2}},
    }


LOCAL = "/admin/local-policies/public/default"
BUNDLES: Json = {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}
SPLIT: Json = {"boundaries": ["0x00000000", "0x10000000", "0xffffffff"], "numBundles": 2}


async def test_local_policies_begin_with_the_bundles_and_end_with_the_namespace() -> None:
    store = MemoryMetadataStore()
    two = await TwoBrokers.opened(store)
    assert await node(store, LOCAL) is None
    group = "namespaceAntiAffinityGroup"
    await two.one.change_local_policy("public/default", group, lambda _: "g", BUNDLES)
    assert await node(store, LOCAL) == {"bundles": BUNDLES, "migrated": False, group: "g"}
    assert two.one.policy("public/default", group) == "g"
    await two.other.change_local_policy("public/default", "bundles", lambda _: SPLIT, BUNDLES)
    assert await node(store, LOCAL) == {"bundles": SPLIT, "migrated": False, group: "g"}
    assert await node(store, "/admin/policies/public/default") == CREATED | {"bundles": SPLIT}
    await two.one.delete("public/default")
    assert await node(store, LOCAL) is None


async def test_local_policies_of_the_store_win_over_the_policies() -> None:
    store = MemoryMetadataStore()
    await store.put("/admin/policies/public", b'{"adminRoles":[]}')
    await store.put("/admin/policies/public/default", json.dumps({"bundles": BUNDLES}).encode())
    await store.put(LOCAL, json.dumps({"bundles": SPLIT, "migrated": False}).encode())
    namespaces = Namespaces(store, "standalone")
    await namespaces.open()
    assert namespaces.policy("public/default", "bundles") == SPLIT
    assert dict(namespaces.policies("public/default")) == {"bundles": BUNDLES}
    with pytest.raises(NamespaceNotFound):
        await namespaces.change_local_policy("public/gone", "bundles", lambda _: SPLIT, BUNDLES)
    assert await node(store, "/admin/local-policies/public/gone") is None
