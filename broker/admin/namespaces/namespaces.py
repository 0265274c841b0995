"""`/admin/v2/namespaces`: namespaces, their topics, and backlog quotas; other policies are in `policies.py`.

Backlog quotas are stored and shown without effect, because Pulsar's tools set them; a warning in the log says so.
"""

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
    checked_quota,
)
from broker.admin.namespaces.policies import shown_policies
from broker.admin.service_view import BROKER, BrokerView
from broker.model.errors import NotAllowed
from broker.service.namespaces import PERMISSIONS, Json, NamespaceNotFound

log = logging.getLogger("magnetar")

_NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}"
BACKLOG_QUOTAS = "backlog_quota_map"
"""Key of the backlog quotas in the stored policies, and in Pulsar's JSON."""
QUOTA_TYPES = ("destination_storage", "message_age")
"""Types of backlog quotas."""


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
        BACKLOG_QUOTAS: policies.get(BACKLOG_QUOTAS, {}),
    }
    return everything | shown_policies(broker, namespace)


def _bundles(count: int) -> dict[str, Json]:
    boundaries = [f"0x{min(0xFFFFFFFF, (index << 32) // count):08x}" for index in range(count + 1)]
    return {"boundaries": list(boundaries), "numBundles": count}


# Backlog quotas, one per type


async def backlog_quotas(request: web.Request) -> web.Response:
    """Returns the stored backlog quotas by type."""
    return answer(_quotas(request))


async def set_backlog_quota(request: web.Request) -> web.Response:
    """Stores the backlog quota of one type; it has no effect yet."""
    quota = checked_quota(await object_of(request))
    await _store_quotas(request, {**_quotas(request), _quota_type(request): quota})
    log.warning("the backlog quota of %s is stored, but has no effect in this version", namespace_of(request))
    return done()


async def remove_backlog_quota(request: web.Request) -> web.Response:
    """Removes the stored quota of one type; a quota that is not set is no error."""
    quotas = _quotas(request)
    quotas.pop(_quota_type(request), None)
    await _store_quotas(request, quotas)
    return done()


async def _store_quotas(request: web.Request, quotas: dict[str, Json]) -> None:
    namespaces, namespace = request.app[BROKER].namespaces, namespace_of(request)
    if not namespaces.exists(namespace):
        raise NamespaceNotFound("Namespace policies does not exist")
    await namespaces.set_policy(namespace, BACKLOG_QUOTAS, quotas or None)


def _quotas(request: web.Request) -> dict[str, Json]:
    quotas = request.app[BROKER].namespaces.policies(namespace_of(request)).get(BACKLOG_QUOTAS)
    return dict(quotas) if isinstance(quotas, dict) else {}


def _quota_type(request: web.Request) -> str:
    kind = request.query.get("backlogQuotaType", QUOTA_TYPES[0])
    if kind not in QUOTA_TYPES:
        # A page, as Pulsar answers a parameter that is no value of the type.
        raise web.HTTPNotFound()
    return kind


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
    web.get(_NAMESPACE + "/backlogQuotaMap", backlog_quotas),
    web.post(_NAMESPACE + "/backlogQuota", set_backlog_quota),
    web.delete(_NAMESPACE + "/backlogQuota", remove_backlog_quota),
)
