"""`/admin/v2/namespaces`: namespaces and their topics; policies are in `policies.py` and `backlog_quotas.py`."""

from __future__ import annotations

import logging

from aiohttp import web

from broker.admin.http.answers import (
    Conflict,
    PreconditionFailed,
    answer,
    done,
    is_true,
    namespace_of,
    object_of,
)
from broker.admin.namespaces.namespace_values import (
    BUNDLES,
    BUNDLES_MAX,
    checked_bundles,
    checked_clusters,
)
from broker.admin.namespaces.policies import shown_policies
from broker.admin.service_view import BROKER, BrokerView
from broker.model.errors import NotAllowed
from broker.service.namespaces import PERMISSIONS, Json, NamespaceNotFound
from broker.service.policies.table import BACKLOG

log = logging.getLogger("magnetar")

_NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}"


async def names(request: web.Request) -> web.Response:
    """Returns the namespaces of a tenant; 404 if the tenant does not exist."""
    tenant = request.match_info["tenant"]
    namespaces = request.app[BROKER].namespaces
    if not namespaces.tenant_exists(tenant):
        raise NamespaceNotFound("Tenant not found")
    return answer(list(namespaces.names(tenant)))


async def get(request: web.Request) -> web.Response:
    """Returns all policies of a namespace in Pulsar's form; 404 if it does not exist."""
    return answer(_all_policies(request.app[BROKER], namespace_of(request)))


async def create(request: web.Request) -> web.Response:
    """Creates a namespace; 409 if it exists. Of the body only replication clusters and bundles are stored."""
    body = await object_of(request)
    policies: dict[str, Json] = {}
    if "bundles" in body:
        policies["bundles"] = {"numBundles": checked_bundles(body["bundles"])}
    if body.get("replication_clusters"):
        policies["replication_clusters"] = checked_clusters(body["replication_clusters"])
    await request.app[BROKER].namespaces.create(namespace_of(request), policies)
    return done()


async def delete(request: web.Request) -> web.Response:
    """Deletes a namespace without topics; 409 while it has some."""
    broker, namespace = request.app[BROKER], namespace_of(request)
    if not broker.namespaces.exists(namespace):
        raise NamespaceNotFound(f"Namespace {namespace} does not exist.")
    if is_true(request, "force"):
        raise NotAllowed("Broker doesn't allow forced deletion of namespaces")
    if await broker.registry.names(namespace) or await broker.registry.partitions.names(namespace):
        raise Conflict("Cannot delete non empty namespace")
    await broker.namespaces.delete(namespace)
    return done()


async def topics(request: web.Request) -> web.Response:
    """Returns the topics of a namespace, of the kinds that the parameter `mode` names."""
    broker, namespace = request.app[BROKER], namespace_of(request)
    broker.namespaces.policies(namespace)
    mode = request.query.get("mode", "PERSISTENT").upper()
    if mode not in ("PERSISTENT", "NON_PERSISTENT", "ALL"):
        raise PreconditionFailed(f"mode={mode}: PERSISTENT, NON_PERSISTENT or ALL is allowed")
    found = await broker.registry.names(
        namespace, persistent=mode != "NON_PERSISTENT", non_persistent=mode != "PERSISTENT"
    )
    return answer(list(found))


async def unload(request: web.Request) -> web.Response:
    """Closes the open topics of a namespace; clients connect again and so open them again."""
    broker, namespace = request.app[BROKER], namespace_of(request)
    broker.namespaces.policies(namespace)  # Raises NamespaceNotFound for a namespace that does not exist.
    # Over a copy: unloading waits, and topics may come and go meanwhile.
    for topic in [topic.name for topic in broker.registry.topics.values()]:
        if topic.namespace == namespace and str(topic) in broker.registry.topics:
            await broker.registry.unload(topic)
    return done()


def _all_policies(broker: BrokerView, namespace: str) -> dict[str, Json]:
    policies = broker.namespaces.policies(namespace)
    bundles = policies.get("bundles")
    # Stored by an older version perhaps, which kept any number.
    count = bundles.get("numBundles") if isinstance(bundles, dict) else None
    everything: dict[str, Json] = {
        **_ALWAYS,
        "replication_clusters": policies.get("replication_clusters") or [broker.namespaces.cluster],
        "bundles": _bundles(count if isinstance(count, int) and 0 < count <= BUNDLES_MAX else BUNDLES),
        BACKLOG.name: policies.get(BACKLOG.name, {}),
    }
    return everything | shown_policies(broker, namespace)


def _bundles(count: int) -> dict[str, Json]:
    boundaries = [f"0x{min(0xFFFFFFFF, (index << 32) // count):08x}" for index in range(count + 1)]
    return {"boundaries": list(boundaries), "numBundles": count}


_ALWAYS: dict[str, Json] = {
    PERMISSIONS: {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}},
    "allowed_clusters": [],
    "clusterDispatchRate": {},
    "topicDispatchRate": {},
    "subscriptionDispatchRate": {},
    "replicatorDispatchRate": {},
    "clusterSubscribeRate": {},
    "publishMaxMessageRate": {},
    "latency_stats_sample_rate": {},
    "deleted": False,
    "encryption_required": False,
    "subscription_auth_mode": "None",
    "offload_threshold": -1,
    "offload_threshold_in_seconds": -1,
    "schema_compatibility_strategy": "UNDEFINED",
    "is_allow_auto_update_schema": True,
    "schema_validation_enforced": False,
    "subscription_types_enabled": [],
    "properties": {},
    "migrated": False,
}
"""Fields of the JSON of all policies that cannot be set here; the values are Pulsar's defaults."""

NAMESPACE_ROUTES = (
    web.get("/admin/v2/namespaces/{tenant}", names),
    web.get(_NAMESPACE, get),
    web.put(_NAMESPACE, create),
    web.delete(_NAMESPACE, delete),
    web.get(_NAMESPACE + "/topics", topics),
    web.put(_NAMESPACE + "/unload", unload),
)
