"""`/admin/v2/tenants`: the tenants, each with its admin roles and the clusters that its namespaces may be on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from aiohttp import web

from broker.admin.http.answers import PreconditionFailed, answer, done, is_true
from broker.admin.http.fields import fields_of
from broker.admin.service_view import BROKER, CLUSTERS
from broker.service.namespaces.namespaces import NamespaceNotFound
from broker.service.policies.forms import Form, Names
from foundation.model.errors import NotAllowed
from foundation.value import Json

_ROLES: Final = "adminRoles"
_CLUSTERS: Final = "allowedClusters"
_FIELDS: Final[Mapping[str, Form[Any]]] = {_ROLES: Names(), _CLUSTERS: Names()}


async def names(request: web.Request) -> web.Response:
    """Returns the names of all tenants."""
    return answer(list(request.app[BROKER].namespaces.tenants()))


async def get(request: web.Request) -> web.Response:
    """Returns one tenant; 404 if it does not exist."""
    return answer(dict(request.app[BROKER].namespaces.tenant(request.match_info["tenant"])))


async def create(request: web.Request) -> web.Response:
    """Creates a tenant; 409 if it exists, 412 above `maxTenants`."""
    broker, name, info = request.app[BROKER], request.match_info["tenant"], await _info(request)
    limit = broker.registry.settings.tenants_max
    if 0 < limit <= len(broker.namespaces.tenants()):
        raise PreconditionFailed("Exceed the maximum number of tenants")
    await broker.namespaces.create_tenant(name, info)
    return done()


async def update(request: web.Request) -> web.Response:
    """Replaces the description of a tenant; 404 if it does not exist, 412 if a namespace is on a removed cluster."""
    namespaces, name = request.app[BROKER].namespaces, request.match_info["tenant"]
    info = await _info(request)
    if not namespaces.tenant_exists(name):
        raise NamespaceNotFound(f"Tenant {name} not found")
    kept = cast("list[Json]", info[_CLUSTERS])
    removed = [one for one in cast("list[Json]", namespaces.tenant(name)[_CLUSTERS]) if one not in kept]
    for namespace in namespaces.names(name):
        used = namespaces.policy(namespace, "replication_clusters") or [namespaces.cluster]
        for cluster in removed:
            if cluster in cast("list[Json]", used):
                raise PreconditionFailed(
                    f"Cannot remove cluster {cluster} from tenant {name}: namespace {namespace} still has it as a"
                    " replication cluster"
                )
    await namespaces.update_tenant(name, info)
    return done()


async def delete(request: web.Request) -> web.Response:
    """Deletes a tenant; 409 while it has namespaces, unless `force` is set and allowed (`forceDeleteTenantAllowed`)."""
    broker, name, force = request.app[BROKER], request.match_info["tenant"], is_true(request, "force")
    if force and broker.namespaces.tenant_exists(name) and not broker.registry.settings.force_delete_tenants:
        raise NotAllowed("Broker doesn't allow forced deletion of tenants")
    await broker.deletions.tenant(name, force=force)
    return done()


async def _info(request: web.Request) -> dict[str, Json]:
    """Returns the description in the body, checked in the order and with the texts of Pulsar's checks."""
    info = await fields_of(request, _FIELDS)
    if info is None:
        raise PreconditionFailed("TenantInfo is null")
    clusters = cast("list[str] | None", info.get(_CLUSTERS))
    if clusters is None:
        raise PreconditionFailed("Clusters cannot be null")
    if not clusters or not all(name.strip() for name in clusters):
        raise PreconditionFailed("Clusters cannot be empty or blank")
    roles = cast("list[str]", info.setdefault(_ROLES, []))
    if any(role != role.strip() for role in roles):
        raise PreconditionFailed("AdminRoles contains whitespace in the beginning or end.")
    known = await request.app[CLUSTERS].names()
    if not set(clusters) <= set(known):
        raise PreconditionFailed("Clusters do not exist")
    return info


TENANT_ROUTES = (
    web.get("/admin/v2/tenants", names),
    web.get("/admin/v2/tenants/{tenant}", get),
    web.put("/admin/v2/tenants/{tenant}", create),
    web.post("/admin/v2/tenants/{tenant}", update),
    web.delete("/admin/v2/tenants/{tenant}", delete),
)
"""The routes."""
