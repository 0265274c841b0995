"""Backlog quotas of namespaces and topics, one per type."""

from __future__ import annotations

from aiohttp import web
from aiohttp.typedefs import Handler

from broker.admin.http.answers import answer, done, is_true, namespace_of, object_of
from broker.admin.http.request_path import NAMESPACE, TOPIC
from broker.admin.namespaces.quota_rules import checked_quota, refuse_quota
from broker.admin.policy_owner import FindOwner, PolicyOwner, topic_owner
from broker.admin.service_view import BROKER
from broker.service.policies.backlog_quota import QUOTA, QUOTA_TYPES
from broker.service.policies.table import BACKLOG, RETAINED
from foundation.value import Json


def _kind(request: web.Request) -> str:
    kind = request.query.get("backlogQuotaType", QUOTA_TYPES[0])
    if kind not in QUOTA_TYPES:
        # A page, as Pulsar answers a parameter that is no value of the type.
        raise web.HTTPNotFound()
    return kind


def _quotas(stored: Json) -> dict[str, Json]:
    return dict(stored) if isinstance(stored, dict) else {}


async def _namespace(request: web.Request) -> PolicyOwner:
    # Not checked: as in Pulsar, a wrong quota is refused before a namespace that does not exist.
    return PolicyOwner(request.app[BROKER], namespace_of(request))


def _getter(find: FindOwner) -> Handler:
    async def get_quotas(request: web.Request) -> web.Response:
        """Returns the backlog quotas by type; with `applied=true` those in force for a topic."""
        owner = await find(request)
        quotas = _quotas(owner.get(BACKLOG))
        if owner.topic is not None and is_true(request, "applied"):
            policies = owner.broker.registry.policies
            for kind in QUOTA_TYPES:
                quota = policies.backlog_quota(owner.topic, kind)
                shown: dict[str, Json] = {
                    "limit": quota.size_max,
                    "limitSize": quota.size_max,
                    "limitTime": quota.age_max_s,
                    "policy": quota.reaction or policies.settings.quota_reaction,
                }
                quotas.setdefault(kind, shown)
        return answer(quotas)

    return get_quotas


def _setter(find: FindOwner) -> Handler:
    async def set_quota(request: web.Request) -> web.Response:
        """Sets the quota of one type; 412 where the retention would end before it."""
        owner, kind = await find(request), _kind(request)
        quota = checked_quota(await object_of(request), owner.namespace)
        refuse_quota(QUOTA.read(quota), owner.in_force(RETAINED), owner.word)
        await owner.change(BACKLOG, lambda stored: {**_quotas(stored), kind: quota})
        return done()

    return set_quota


def _remover(find: FindOwner) -> Handler:
    async def remove_quota(request: web.Request) -> web.Response:
        """Removes the quota of one type; a quota that is not set is no error."""
        owner, removed = await find(request), _kind(request)

        def without(stored: Json) -> Json:
            return {kind: quota for kind, quota in _quotas(stored).items() if kind != removed} or None

        await owner.change(BACKLOG, without)
        return done()

    return remove_quota


BACKLOG_QUOTA_ROUTES = tuple(
    route
    for path, find in ((NAMESPACE, _namespace), (TOPIC, topic_owner))
    for route in (
        web.get(path + "/backlogQuotaMap", _getter(find)),
        web.post(path + "/backlogQuota", _setter(find)),
        web.delete(path + "/backlogQuota", _remover(find)),
    )
)
"""The routes."""
