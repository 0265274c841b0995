"""`/admin/v2/namespaces`: namespaces, their topics, and the policies that this broker obeys.

A policy that would be stored and then ignored has no route here, because a 404 is more honest than a 204. The others
are rows of `POLICIES`; a new one is a row there and code that obeys it. The one exception are backlog quotas: they are
stored and shown without effect, because Pulsar's tools set them; a warning in the log says so.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from aiohttp import web

from broker.admin.answers import (
    BadRequest,
    Conflict,
    PreconditionFailed,
    answer,
    body_of,
    done,
    empty,
    is_true,
    namespace_of,
    object_of,
    whole_number,
)
from broker.admin.namespace_values import (
    BUNDLES,
    BUNDLES_MAX,
    checked_bundles,
    checked_clusters,
    checked_quota,
    checked_subscription_creation,
    checked_topic_creation,
)
from broker.admin.service_view import BROKER, BrokerView
from broker.model.errors import NotAllowed
from broker.service.namespaces import Json, NamespaceNotFound

log = logging.getLogger("magnetar")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
"""A function behind a route."""

_NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}"
BACKLOG_QUOTAS = "backlog_quota_map"
"""Key of the backlog quotas in the stored policies, and in Pulsar's JSON."""


QUOTA_TYPES = ("destination_storage", "message_age")
"""Types of backlog quotas."""
TOPIC_CREATION = "autoTopicCreation"
"""Key of the rules for automatic creation of topics in the stored policies."""
SUBSCRIPTION_CREATION = "autoSubscriptionCreationOverride"
"""Key of the rules for automatic creation of subscriptions in the stored policies."""


class Policy(NamedTuple):
    """A policy of a namespace with routes to read, set and remove it."""

    word: str
    """Its word in the path."""
    key: str
    """Its key in the stored policies."""
    kind: type
    """The type of its JSON value; any other type is refused with 400."""
    name: str
    """Its key in the JSON of all policies."""
    default: Json = None
    """The answer while it is not set; None = an empty answer."""


POLICIES = (
    Policy("deduplication", "deduplication", bool, "deduplicationEnabled"),
    Policy("autoTopicCreation", TOPIC_CREATION, dict, "autoTopicCreationOverride"),
    Policy(
        "autoSubscriptionCreation",
        SUBSCRIPTION_CREATION,
        dict,
        "autoSubscriptionCreationOverride",
    ),
    Policy("encryptionRequired", "encryption_required", bool, "encryption_required", False),
    Policy("maxProducersPerTopic", "max_producers_per_topic", int, "max_producers_per_topic"),
    Policy("maxConsumersPerTopic", "max_consumers_per_topic", int, "max_consumers_per_topic"),
    Policy(
        "maxConsumersPerSubscription",
        "max_consumers_per_subscription",
        int,
        "max_consumers_per_subscription",
    ),
    Policy("maxSubscriptionsPerTopic", "max_subscriptions_per_topic", int, "max_subscriptions_per_topic"),
)
"""The policies that this broker obeys."""


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
    everything.update({policy.name: policies[policy.key] for policy in POLICIES if policy.key in policies})
    return everything


def _bundles(count: int) -> dict[str, Json]:
    boundaries = [f"0x{min(0xFFFFFFFF, (index << 32) // count):08x}" for index in range(count + 1)]
    return {"boundaries": list(boundaries), "numBundles": count}


# One policy


def _getter(policy: Policy) -> Handler:
    async def get_policy(request: web.Request) -> web.Response:
        policies = request.app[BROKER].namespaces.policies(namespace_of(request))
        value = policies.get(policy.key, policy.default)
        return empty() if value is None else answer(value)

    return get_policy


def _setter(policy: Policy) -> Handler:
    async def set_policy(request: web.Request) -> web.Response:
        value = _checked(policy, await body_of(request), request.app[BROKER])
        await _set(request, policy.key, value)
        return done()

    return set_policy


def _checked(policy: Policy, value: Json, broker: BrokerView) -> Json:
    """Returns the value to store. Raises BadRequest or PreconditionFailed for one that is not allowed."""
    # `type(...) is`, not isinstance: in Python True is an int, in a policy it is a mistake.
    if type(value) is not policy.kind:
        raise BadRequest(f"{policy.word} must be given as JSON of type {policy.kind.__name__}")
    if policy.key == TOPIC_CREATION and isinstance(value, dict):
        return checked_topic_creation(value, broker.registry.settings.partitions_max)
    if policy.key == SUBSCRIPTION_CREATION and isinstance(value, dict):
        return checked_subscription_creation(value)
    if type(value) is int and whole_number(value, policy.word) < 0:
        raise PreconditionFailed(f"{policy.word} must be 0 or more")
    return value


def _remover(policy: Policy) -> Handler:
    async def remove_policy(request: web.Request) -> web.Response:
        await _set(request, policy.key, None)
        return done()

    return remove_policy


async def _set(request: web.Request, key: str, value: Json) -> None:
    broker, namespace = request.app[BROKER], namespace_of(request)
    if not broker.namespaces.exists(namespace):
        raise NamespaceNotFound("Namespace policies does not exist")
    await broker.namespaces.set_policy(namespace, key, value)
    await broker.registry.namespace_changed(namespace)


# Backlog quotas, one per type


async def backlog_quotas(request: web.Request) -> web.Response:
    """Returns the stored backlog quotas by type."""
    return answer(_quotas(request))


async def set_backlog_quota(request: web.Request) -> web.Response:
    """Stores the backlog quota of one type; it has no effect yet."""
    quota = checked_quota(await object_of(request))
    await _set(request, BACKLOG_QUOTAS, {**_quotas(request), _quota_type(request): quota})
    log.warning("the backlog quota of %s is stored, but has no effect in this version", namespace_of(request))
    return done()


async def remove_backlog_quota(request: web.Request) -> web.Response:
    """Removes the stored quota of one type; a quota that is not set is no error."""
    quotas = _quotas(request)
    quotas.pop(_quota_type(request), None)
    await _set(request, BACKLOG_QUOTAS, quotas or None)
    return done()


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
    "auth_policies": {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}},
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
    *(web.get(f"{_NAMESPACE}/{policy.word}", _getter(policy)) for policy in POLICIES),
    *(web.post(f"{_NAMESPACE}/{policy.word}", _setter(policy)) for policy in POLICIES),
    *(web.delete(f"{_NAMESPACE}/{policy.word}", _remover(policy)) for policy in POLICIES),
)
