"""Clusters over REST: descriptions, peers, migration and deletion, with Pulsar's answers."""

from __future__ import annotations

import pytest
from aiohttp import ClientSession

from tests.broker.admin.cluster.test_broker_groups import POLICY
from tests.broker.admin.test_rest import call, refusal

CLUSTERS = "/admin/v2/clusters"
WEST = {"serviceUrl": "http://w:8080", "brokerServiceUrl": "pulsar://w:6650,v:6650"}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "cluster data is required"),
        ({"serviceUrl": "w:8080"}, "Illegal service url"),
        ({"serviceUrl": "http://"}, "Illegal service url"),
        ({"serviceUrlTls": "http://w:8443"}, "Illegal service tls url"),
        ({"brokerServiceUrl": "http://w:6650"}, "Illegal broker service url"),
        ({"brokerServiceUrlTls": "pulsar://w:6651"}, "Illegal broker service tls url"),
    ],
)
async def test_description_is_refused_when_an_address_is_wrong(
    admin: ClientSession, data: object, words: str
) -> None:
    status, reason = await refusal(admin, f"PUT {CLUSTERS}/west", data)
    assert (status, words in reason) == (400, True)
    assert await call(admin, f"GET {CLUSTERS}") == (200, ["standalone"])


async def test_description_is_replaced_and_not_merged(admin: ClientSession) -> None:
    assert await call(admin, f"PUT {CLUSTERS}/west", {**WEST, "unknown": 1}) == (200, "")
    assert await refusal(admin, f"PUT {CLUSTERS}/west", WEST) == (409, "Cluster already exists")
    assert await refusal(admin, f"PUT {CLUSTERS}/standalone", WEST) == (409, "Cluster already exists")
    flags = {
        "brokerClientTlsEnabled": False,
        "tlsAllowInsecureConnection": False,
        "brokerClientTlsEnabledWithKeyStore": False,
    }
    assert await call(admin, f"GET {CLUSTERS}/west") == (200, {**WEST, **flags})
    assert await call(admin, f"POST {CLUSTERS}/west", {"serviceUrl": "http://x"}) == (200, "")
    assert await call(admin, f"GET {CLUSTERS}/west") == (200, {"serviceUrl": "http://x", **flags})
    assert (await call(admin, f"POST {CLUSTERS}/west", {"serviceUrl": ["http://x"]}))[0] == 400
    assert await refusal(admin, f"POST {CLUSTERS}/nope", WEST) == (404, "Cluster does not exist")


async def test_peers_are_clusters_that_exist(admin: ClientSession) -> None:
    await call(admin, f"PUT {CLUSTERS}/west", WEST)
    peers = f"{CLUSTERS}/standalone/peers"
    assert await call(admin, f"GET {peers}") == (200, "")
    reason = "standalone itself can't be part of peer-list"
    assert await refusal(admin, f"POST {peers}", ["standalone"]) == (412, reason)
    reason = "Peer cluster nope does not exist"
    assert await refusal(admin, f"POST {peers}", ["west", "nope"]) == (412, reason)
    assert await call(admin, f"GET {peers}") == (200, "")
    assert await call(admin, f"POST {peers}", ["west"]) == (204, "")
    assert await call(admin, f"GET {peers}") == (200, ["west"])
    assert await call(admin, f"POST {peers}", []) == (204, "")
    assert await call(admin, f"GET {peers}") == (200, "")
    assert (await call(admin, f"POST {peers}", [1]))[0] == 400
    assert (await refusal(admin, f"GET {CLUSTERS}/nope/peers"))[0] == 404


async def test_cluster_with_isolation_policies_is_not_deleted(admin: ClientSession) -> None:
    await call(admin, f"PUT {CLUSTERS}/west", WEST)
    await call(admin, f"POST {CLUSTERS}/west/failureDomains/d", {"brokers": []})
    await call(admin, f"POST {CLUSTERS}/west/namespaceIsolationPolicies/p", POLICY)
    assert await refusal(admin, f"DELETE {CLUSTERS}/west") == (412, "Cluster not empty")
    await call(admin, f"DELETE {CLUSTERS}/west/namespaceIsolationPolicies/p")
    assert await call(admin, f"DELETE {CLUSTERS}/west") == (204, "")
    assert await call(admin, f"GET {CLUSTERS}/west/failureDomains") == (200, {})
    assert await call(admin, f"GET {CLUSTERS}") == (200, ["standalone"])
    assert (await refusal(admin, f"DELETE {CLUSTERS}/standalone"))[0] == 412


async def test_migration_of_another_cluster_is_stored_and_shown(admin: ClientSession) -> None:
    await call(admin, f"PUT {CLUSTERS}/west", WEST)
    migrate = f"{CLUSTERS}/west/migrate"
    assert await refusal(admin, f"GET {migrate}") == (404, "Cluster does not exist")
    for flag in (True, False):
        word = str(flag).lower()
        assert await call(admin, f"POST {migrate}?migrated={word}", WEST) == (200, "")
        stored = {"migrated": flag, "migratedClusterUrl": {**WEST, "empty": False}}
        assert await call(admin, f"GET {migrate}") == (200, stored)
    assert (await refusal(admin, f"POST {migrate}", {"serviceUrl": "x"}))[0] == 400
    assert (await refusal(admin, f"POST {migrate}"))[0] == 400
    unknown = f"POST {CLUSTERS}/nope/migrate?migrated=true"
    assert await refusal(admin, unknown, WEST) == (404, "Cluster does not exist")
    assert await call(admin, f"DELETE {CLUSTERS}/west") == (204, "")
    assert (await refusal(admin, f"GET {migrate}"))[0] == 404


async def test_migration_that_would_send_clients_away_is_refused(admin: ClientSession) -> None:
    own = f"{CLUSTERS}/standalone/migrate"
    assert (await refusal(admin, f"POST {own}?migrated=true", WEST))[0] == 501
    assert (await refusal(admin, f"GET {own}"))[0] == 404
    assert await call(admin, f"POST {own}?migrated=false", WEST) == (200, "")
    namespace = "POST /admin/v2/namespaces/public/default/migration"
    assert (await refusal(admin, namespace, True))[0] == 501
    assert await call(admin, namespace, False) == (204, "")
    assert (await call(admin, namespace, "x"))[0] == 400


async def test_metadata_is_not_moved_to_another_store(admin: ClientSession) -> None:
    migration = "/admin/v2/metadata/migration"
    assert await call(admin, f"GET {migration}/status") == (200, {"phase": "NOT_STARTED"})
    assert await refusal(admin, f"POST {migration}/start") == (400, "Target URL is required")
    assert (await refusal(admin, f"POST {migration}/start?target=oxia:x"))[0] == 400
