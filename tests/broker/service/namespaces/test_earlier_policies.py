"""Policies of namespaces and clusters that versions up to 0.2.0 wrote, taken over to Pulsar's form on every store."""

from __future__ import annotations

import json

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import MetadataStore
from broker.service.namespaces.bundles import bundles_of
from broker.service.namespaces.clusters import Clusters
from broker.service.namespaces.namespaces import Document, Namespaces
from broker.service.policies.effective_policies import EffectivePolicies
from broker.service.policies.table import DISPATCH, PUBLISH
from broker.service.policies.values import DispatchRate, PublishRate
from broker.service.settings import ServiceSettings
from foundation.model.errors import MetadataError
from foundation.value import Json
from tests.fakes.metadata import everything

POLICIES = "/admin/policies/shop/orders"
LOCAL = "/admin/local-policies/shop/orders"
CLUSTER = "/admin/clusters/c1"
DISPATCHED: Document = {
    "dispatchThrottlingRateInMsg": 7,
    "dispatchThrottlingRateInByte": -1,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 2,
}
PUBLISHED: Document = {"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": -1}
SUBSCRIBED: Document = {"subscribeThrottlingRatePerConsumer": 5, "ratePeriodInSecond": 30}
BUNDLES: Document = {"boundaries": ["0x00000000", "0x20000000", "0xffffffff"], "numBundles": 2}
BOOKIES: Document = {"bookkeeperAffinityGroupPrimary": "a", "bookkeeperAffinityGroupSecondary": None}
ISOLATION: Document = {"iso": {"namespaces": ["shop/.*"], "primary": ["a.*"], "secondary": []}}
MIGRATION: Document = {"migrated": True, "migratedClusterUrl": {"serviceUrl": "http://b:8080"}}
EARLIER: dict[str, Json] = {
    "/admin/policies/shop": {"adminRoles": [], "allowedClusters": ["c1"]},
    POLICIES: {
        "bundles": BUNDLES,
        "topicDispatchRate": DISPATCHED,
        "subscriptionDispatchRate": DISPATCHED,
        "replicatorDispatchRate": DISPATCHED,
        "publishMaxMessageRate": PUBLISHED,
        "clusterSubscribeRate": SUBSCRIBED,
        "antiAffinityGroup": "ring",
        "bookieAffinityGroup": BOOKIES,
        "max_producers_per_topic": 3,
    },
    f"{CLUSTER}/namespaceIsolationPolicies/namespaceIsolationPolicies": ISOLATION,
    f"{CLUSTER}/migration/migration": MIGRATION,
}
"""Nodes as version 0.2.0 has written them."""
PRESENT: dict[str, Json] = {
    "/admin/policies/shop": EARLIER["/admin/policies/shop"],
    POLICIES: {
        "bundles": BUNDLES,
        "topicDispatchRate": {"c1": DISPATCHED},
        "clusterDispatchRate": {"c1": DISPATCHED},
        "subscriptionDispatchRate": {"c1": DISPATCHED},
        "replicatorDispatchRate": {"c1": DISPATCHED},
        "publishMaxMessageRate": {"c1": PUBLISHED},
        "clusterSubscribeRate": {"c1": SUBSCRIBED},
        "max_producers_per_topic": 3,
    },
    LOCAL: {
        "bundles": BUNDLES,
        "bookieAffinityGroup": BOOKIES,
        "namespaceAntiAffinityGroup": "ring",
        "migrated": False,
    },
    f"{CLUSTER}/namespaceIsolationPolicies": ISOLATION,
    f"{CLUSTER}/policies": MIGRATION,
}


async def fill(store: MetadataStore, nodes: dict[str, Json]) -> None:
    for key, value in nodes.items():
        await store.put(key, json.dumps(value).encode())


async def opened(store: MetadataStore) -> Namespaces:
    namespaces = Namespaces(store, "c1")
    await namespaces.open()
    return namespaces


async def stored(store: MetadataStore) -> dict[str, Json]:
    """Returns all nodes but those that a start makes."""
    return {
        key: json.loads(found.value)
        for key, found in (await everything(store, "/admin")).items()
        if not key.startswith(("/admin/policies/public", "/admin/policies/pulsar"))
    }


async def test_policies_of_an_earlier_version_are_stored_in_pulsars_form_once(store: MetadataStore) -> None:
    await fill(store, EARLIER)
    await opened(store)
    assert await stored(store) == PRESENT
    before = await everything(store, "/admin")
    await opened(store)
    assert await everything(store, "/admin") == before


async def test_policies_of_an_earlier_version_hold_as_before(store: MetadataStore) -> None:
    await fill(store, EARLIER)
    namespaces = await opened(store)
    policies = EffectivePolicies(namespaces, ServiceSettings())
    assert policies.of_namespace("shop/orders", DISPATCH) == DispatchRate(7, -1, False, 2)
    assert policies.of_namespace("shop/orders", PUBLISH) == PublishRate(5, -1)
    assert namespaces.policy("shop/orders", "namespaceAntiAffinityGroup") == "ring"
    assert namespaces.policy("shop/orders", "bookieAffinityGroup") == BOOKIES
    assert bundles_of(namespaces, "shop/orders").json() == BUNDLES
    clusters = Clusters(store, "c1")
    assert await clusters.isolation_policies("c1") == ISOLATION
    assert await clusters.migration("c1") == MIGRATION


async def test_value_in_pulsars_form_wins_over_that_of_an_earlier_version(store: MetadataStore) -> None:
    newer: dict[str, Json] = {
        LOCAL: {"bundles": BUNDLES, "namespaceAntiAffinityGroup": "newer", "migrated": False},
        f"{CLUSTER}/namespaceIsolationPolicies": {},
    }
    await fill(store, EARLIER | newer)
    await opened(store)
    found = await stored(store)
    assert found[LOCAL] == {
        "bundles": BUNDLES,
        "bookieAffinityGroup": BOOKIES,
        "namespaceAntiAffinityGroup": "newer",
        "migrated": False,
    }
    assert found[f"{CLUSTER}/namespaceIsolationPolicies"] == {}


class CutStore(MemoryMetadataStore):
    """Fails for good after some writes, as a store does whose broker dies."""

    writes_left = 1_000

    async def put_all(self, puts: object) -> list[int]:
        self._count()
        return await super().put_all(puts)  # type: ignore[arg-type]

    async def put(self, key: str, value: bytes, expected: int | None = None) -> int:
        self._count()
        return await super().put(key, value, expected)

    async def delete(self, key: str, expected: int | None = None) -> None:
        self._count()
        await super().delete(key, expected)

    def _count(self) -> None:
        self.writes_left -= 1
        if self.writes_left < 0:
            raise MetadataError("cut")


async def test_start_after_a_crash_goes_on_with_the_rest() -> None:
    for writes in range(5):
        store = CutStore()
        await fill(store, EARLIER)
        store.writes_left = writes
        with pytest.raises(MetadataError):
            await opened(store)
        store.writes_left = 1_000
        await opened(store)
        assert await stored(store) == PRESENT
