"""Backlog quotas of namespaces and topics, one per type."""

from __future__ import annotations

from aiohttp import web

from broker.admin.http.answers import answer, done, is_true, namespace_of, object_of
from broker.admin.namespaces.policies import existing_topic, topic_key
from broker.admin.namespaces.quota_rules import checked_quota, refuse_quota
from broker.admin.service_view import BROKER
from broker.service.namespaces.namespaces import Json, NamespaceNotFound
from broker.service.policies.backlog_quota import QUOTA, QUOTA_TYPES
from broker.service.policies.table import BACKLOG, RETAINED
from foundation.model.topic_name import TopicName

_NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}"
_TOPIC = "/admin/v2/{domain:persistent|non-persistent}/{tenant}/{namespace}/{topic}"


def _kind(request: web.Request) -> str:
    kind = request.query.get("backlogQuotaType", QUOTA_TYPES[0])
    if kind not in QUOTA_TYPES:
        # A page, as Pulsar answers a parameter that is no value of the type.
        raise web.HTTPNotFound()
    return kind


def _quotas(stored: Json) -> dict[str, Json]:
    return dict(stored) if isinstance(stored, dict) else {}


# Namespaces


async def of_namespace(request: web.Request) -> web.Response:
    """Returns the backlog quotas of a namespace by type."""
    return answer(_of_namespace(request))


async def set_of_namespace(request: web.Request) -> web.Response:
    """Sets the quota of one type; 412 where the retention would end before it."""
    broker, namespace, kind = request.app[BROKER], namespace_of(request), _kind(request)
    quota = checked_quota(await object_of(request), namespace)
    retention = broker.registry.policies.of_namespace(namespace, RETAINED)
    refuse_quota(QUOTA.read(quota), retention, "namespace")
    await _store_of_namespace(request, {**_of_namespace(request), kind: quota})
    return done()


async def remove_of_namespace(request: web.Request) -> web.Response:
    """Removes the quota of one type; a quota that is not set is no error."""
    quotas = _of_namespace(request)
    quotas.pop(_kind(request), None)
    await _store_of_namespace(request, quotas)
    return done()


def _of_namespace(request: web.Request) -> dict[str, Json]:
    return _quotas(request.app[BROKER].namespaces.policies(namespace_of(request)).get(BACKLOG.name))


async def _store_of_namespace(request: web.Request, quotas: dict[str, Json]) -> None:
    namespaces, namespace = request.app[BROKER].namespaces, namespace_of(request)
    if not namespaces.exists(namespace):
        raise NamespaceNotFound("Namespace policies does not exist")
    await namespaces.set_policy(namespace, BACKLOG.name, quotas or None)


# Topics


async def of_topic(request: web.Request) -> web.Response:
    """Returns the quotas of a topic by type; with `applied=true` those in force."""
    broker, name = request.app[BROKER], await existing_topic(request)
    quotas = _of_topic(request, name)
    if is_true(request, "applied"):
        policies = broker.registry.policies
        in_force = {kind: policies.backlog_quota(name, kind) for kind in QUOTA_TYPES}
        for kind, quota in in_force.items():
            shown: dict[str, Json] = {
                "limit": quota.size_max,
                "limitSize": quota.size_max,
                "limitTime": quota.age_max_s,
                "policy": quota.reaction or policies.settings.quota_reaction,
            }
            quotas.setdefault(kind, shown)
    return answer(quotas)


async def set_of_topic(request: web.Request) -> web.Response:
    """Sets the quota of one type; 412 where the retention would end before it."""
    name, kind = await existing_topic(request), _kind(request)
    quota = checked_quota(await object_of(request), namespace_of(request))
    retention = request.app[BROKER].registry.policies.of(name, RETAINED)
    refuse_quota(QUOTA.read(quota), retention, "topic")
    await _store_of_topic(request, name, {**_of_topic(request, name), kind: quota})
    return done()


async def remove_of_topic(request: web.Request) -> web.Response:
    """Removes the quota of one type; a quota that is not set is no error."""
    name = await existing_topic(request)
    quotas = _of_topic(request, name)
    quotas.pop(_kind(request), None)
    await _store_of_topic(request, name, quotas)
    return done()


def _of_topic(request: web.Request, name: TopicName) -> dict[str, Json]:
    namespaces = request.app[BROKER].namespaces
    return _quotas(namespaces.topic_policy(str(name.base), topic_key(request, BACKLOG)))


async def _store_of_topic(request: web.Request, name: TopicName, quotas: dict[str, Json]) -> None:
    namespaces = request.app[BROKER].namespaces
    await namespaces.set_topic_policy(str(name.base), topic_key(request, BACKLOG), quotas or None)


BACKLOG_QUOTA_ROUTES = (
    web.get(_NAMESPACE + "/backlogQuotaMap", of_namespace),
    web.post(_NAMESPACE + "/backlogQuota", set_of_namespace),
    web.delete(_NAMESPACE + "/backlogQuota", remove_of_namespace),
    web.get(_TOPIC + "/backlogQuotaMap", of_topic),
    web.post(_TOPIC + "/backlogQuota", set_of_topic),
    web.delete(_TOPIC + "/backlogQuota", remove_of_topic),
)
