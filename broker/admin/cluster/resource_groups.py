"""`/admin/v2/resourcegroups`, and the group of a namespace: rates that the topics of several namespaces share."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from broker.admin.http.answers import BadRequest, answer, body_of, done, empty, namespace_of
from broker.admin.policy_owner import existing_namespace
from broker.admin.service_view import BROKER, may_be_newer_in_store
from broker.service.limits.resource_groups import ResourceGroups
from broker.service.policies.effective_policies import RESOURCE_GROUP
from broker.service.policies.values import RESOURCE_GROUP_RATES

_GROUPS: Final = "/admin/v2/resourcegroups"
_OF_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}/resourcegroup"


async def names(request: web.Request) -> web.Response:
    """Returns the names of all groups."""
    return answer(list(_groups(request).names()))


async def get(request: web.Request) -> web.Response:
    """Returns the rates of a group; -1 = no limit. 404 if it does not exist."""
    groups, name = _groups(request), request.match_info["resourcegroup"]
    if may_be_newer_in_store(request):
        await groups.read_newest(name)
    return answer(RESOURCE_GROUP_RATES.write(groups.get(name)))


async def put(request: web.Request) -> web.Response:
    """Creates a group, or changes the rates that the body names."""
    body = await body_of(request)
    if not isinstance(body, dict):
        raise BadRequest('Give the rates as a JSON object: {"publishRateInMsgs": 1000}')
    await _groups(request).put(request.match_info["resourcegroup"], body)
    return done()


async def delete(request: web.Request) -> web.Response:
    """Deletes a group; 412 while a namespace is in it."""
    await _groups(request).delete(request.match_info["resourcegroup"])
    return done()


async def of_namespace(request: web.Request) -> web.Response:
    """Returns the name of a namespace's group, as text; 200 without a body if it is in none."""
    found = request.app[BROKER].namespaces.policy(existing_namespace(request), RESOURCE_GROUP)
    # The bare name, which Pulsar calls JSON.
    return web.Response(text=found, content_type="application/json") if isinstance(found, str) else empty()


async def assign(request: web.Request) -> web.Response:
    """Puts a namespace into a group, out of any other one; 412 for a missing group."""
    await _groups(request).assign(namespace_of(request), request.match_info["resourcegroup"])
    return done()


async def withdraw(request: web.Request) -> web.Response:
    """Takes a namespace out of its group; one that is in none is no error."""
    namespace = existing_namespace(request)
    await request.app[BROKER].namespaces.set_policy(namespace, RESOURCE_GROUP, None)
    return done()


def _groups(request: web.Request) -> ResourceGroups:
    return request.app[BROKER].registry.resource_groups


RESOURCE_GROUP_ROUTES = (
    web.get(_GROUPS, names),
    web.get(_GROUPS + "/{resourcegroup}", get),
    web.put(_GROUPS + "/{resourcegroup}", put),
    web.delete(_GROUPS + "/{resourcegroup}", delete),
    web.get(_OF_NAMESPACE, of_namespace),
    web.post(_OF_NAMESPACE + "/{resourcegroup}", assign),
    web.delete(_OF_NAMESPACE, withdraw),
)
"""The routes."""
