"""`/admin/v2/namespaces`: namespaces and their topics; policies are in `policies.py` and `backlog_quotas.py`."""

from __future__ import annotations

import logging

from aiohttp import web

from broker.admin.facades.offload import add_older_members
from broker.admin.http.answers import (
    BadRequest,
    PreconditionFailed,
    answer,
    answer_names,
    done,
    is_true,
    namespace_of,
    object_of,
)
from broker.admin.http.request_path import NAMESPACE
from broker.admin.namespaces.clusters import ALLOWED, checked_clusters
from broker.admin.namespaces.namespace_values import checked_bundles
from broker.admin.namespaces.policies import policies_of_body, shown_policies
from broker.admin.namespaces.quota_rules import checked_quota
from broker.admin.service_view import BROKER, BrokerView
from broker.admin.topics.over_owners import non_persistent_names
from broker.admin.topics.topic_lists import shown_names
from broker.service.namespaces.bundles import bundles_of
from broker.service.namespaces.namespaces import NamespaceNotFound
from broker.service.namespaces.stored_forms import BUNDLES_KEY, DELETED, REPLICATION
from broker.service.namespaces.stored_policies import PERMISSIONS
from broker.service.policies.backlog_quota import QUOTA_TYPES
from broker.service.policies.effective_policies import RESOURCE_GROUP
from broker.service.policies.forms import Names
from broker.service.policies.table import BACKLOG, SCHEMA_UPDATES, SCHEMA_UPDATES_BY_REPLICATORS
from foundation.model.errors import NotAllowed
from foundation.value import Json

log = logging.getLogger("magnetar")


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
    """Creates a namespace with the policies of the body; 409 if it exists, 501 for a cluster that is not its own."""
    broker, body = request.app[BROKER], await object_of(request)
    set_members = {**body, **_unchanged(body)}
    policies = policies_of_body(broker, set_members)
    add_older_members(policies, set_members)
    group = body.get(RESOURCE_GROUP)
    if group is not None and group not in broker.registry.resource_groups.names():
        raise PreconditionFailed("ResourceGroup does not exist")
    policies |= {} if group is None else {RESOURCE_GROUP: group}
    default = broker.registry.settings.bundles
    policies[BUNDLES_KEY] = checked_bundles(body.get(BUNDLES_KEY), default).json()
    if quotas := body.get(BACKLOG.name):
        policies[BACKLOG.name] = _checked_quotas(quotas, namespace_of(request))
    tenant, clusters = request.match_info["tenant"], body.get(REPLICATION)
    if clusters and broker.namespaces.tenant_exists(tenant):
        policies[REPLICATION] = await checked_clusters(request, Names().read(clusters))
    limit = broker.registry.settings.namespaces_max
    if 0 < limit <= len(broker.namespaces.names(tenant)):
        raise PreconditionFailed(f"Exceed the maximum number of namespace in tenant :{tenant}")
    await broker.namespaces.create(namespace_of(request), policies)
    return done()


def _checked_quotas(quotas: Json, namespace: str) -> dict[str, Json]:
    if not isinstance(quotas, dict):
        raise BadRequest(f"{BACKLOG.name} must be a JSON object of quotas by type")
    checked: dict[str, Json] = {}
    for kind, quota in quotas.items():
        if kind not in QUOTA_TYPES or not isinstance(quota, dict):
            raise BadRequest(
                f"{BACKLOG.name}: {kind[:50]} is no quota; the types are {', '.join(QUOTA_TYPES)}"
            )
        checked[kind] = checked_quota(quota, namespace)
    return checked


def _unchanged(body: dict[str, Json]) -> dict[str, Json]:
    """Returns None for members with the value that Pulsar's tools send when nothing was chosen."""
    return {name: None for name, value in _ALWAYS.items() if body.get(name) == value}


async def delete(request: web.Request) -> web.Response:
    """Deletes a namespace; 409 while it has topics, unless `force` is set and allowed (`forceDeleteNamespaceAllowed`)."""
    broker, namespace, force = request.app[BROKER], namespace_of(request), is_true(request, "force")
    if not broker.namespaces.exists(namespace):
        raise NamespaceNotFound(f"Namespace {namespace} does not exist.")
    if force and not broker.registry.settings.force_delete_namespaces:
        raise NotAllowed("Broker doesn't allow forced deletion of namespaces")
    await broker.deletions.namespace(namespace, force=force)
    return done()


async def topics(request: web.Request) -> web.Response:
    """Returns the topics of a namespace, of the kinds that the parameter `mode` names.

    System topics are listed with `includeSystemTopic=true`.
    """
    broker, namespace = request.app[BROKER], namespace_of(request)
    broker.namespaces.policies(namespace)
    mode = request.query.get("mode", "PERSISTENT")
    if mode not in ("PERSISTENT", "NON_PERSISTENT", "ALL"):
        # A page, as Pulsar answers a parameter that is no value of the type.
        raise web.HTTPNotFound()
    asks_owners = mode != "PERSISTENT" and broker.registry.ownership.is_shared
    found = await broker.registry.names(
        namespace,
        persistent=mode != "NON_PERSISTENT",
        non_persistent=mode != "PERSISTENT" and not asks_owners,
    )
    if asks_owners:
        found += await non_persistent_names(request)
    return await answer_names(shown_names(request, found), broker.registry.now_ns)


def _all_policies(broker: BrokerView, namespace: str) -> dict[str, Json]:
    policies = broker.namespaces.policies(namespace)
    everything: dict[str, Json] = {
        **_ALWAYS,
        REPLICATION: policies.get(REPLICATION) or [broker.namespaces.cluster],
        ALLOWED: policies.get(ALLOWED) or [],
        BUNDLES_KEY: bundles_of(broker.namespaces, namespace).json(),
        DELETED: policies.get(DELETED, False),
        PERMISSIONS: policies.get(PERMISSIONS) or _ALWAYS[PERMISSIONS],
        BACKLOG.name: policies.get(BACKLOG.name, {}),
    }
    if (group := policies.get(RESOURCE_GROUP)) is not None:
        everything[RESOURCE_GROUP] = group
    return everything | _replicators(broker, namespace) | shown_policies(broker, namespace)


def _replicators(broker: BrokerView, namespace: str) -> dict[str, Json]:
    """Returns whether replicators may add schemas; nothing where it is false and does not matter.

    Pulsar 4.2 lacks the member. Tools of 5.0 show true without it, which holds while every producer may add schemas.
    """
    policies = broker.registry.policies
    allowed = policies.of_namespace(namespace, SCHEMA_UPDATES_BY_REPLICATORS)
    if not allowed and policies.of_namespace(namespace, SCHEMA_UPDATES):
        return {}
    return {SCHEMA_UPDATES_BY_REPLICATORS.name: allowed}


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
    web.get(NAMESPACE, get),
    web.put(NAMESPACE, create),
    web.delete(NAMESPACE, delete),
    web.get(NAMESPACE + "/topics", topics),
)
