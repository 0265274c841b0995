"""`/admin/v2/tenants`: the tenants, each with its admin roles and allowed clusters (stored, not enforced)."""

from __future__ import annotations

from aiohttp import web

from broker.admin.http.answers import BadRequest, PreconditionFailed, answer, body_of, done
from broker.admin.service_view import BROKER
from broker.service.namespaces import Json


async def names(request: web.Request) -> web.Response:
    """Returns the names of all tenants."""
    return answer(list(request.app[BROKER].namespaces.tenants()))


async def get(request: web.Request) -> web.Response:
    """Returns one tenant; 404 if it does not exist."""
    return answer(dict(request.app[BROKER].namespaces.tenant(request.match_info["tenant"])))


async def create(request: web.Request) -> web.Response:
    """Creates a tenant; 409 if it exists."""
    await request.app[BROKER].namespaces.create_tenant(request.match_info["tenant"], await _info(request))
    return done()


async def update(request: web.Request) -> web.Response:
    """Replaces the description of a tenant; 404 if it does not exist."""
    await request.app[BROKER].namespaces.update_tenant(request.match_info["tenant"], await _info(request))
    return done()


async def delete(request: web.Request) -> web.Response:
    """Deletes a tenant; 409 while it has namespaces."""
    await request.app[BROKER].namespaces.delete_tenant(request.match_info["tenant"])
    return done()


async def _info(request: web.Request) -> dict[str, Json]:
    body = await body_of(request)
    # In the order and with the texts of Pulsar's checks.
    if body is None:
        raise PreconditionFailed("TenantInfo is null")
    if not isinstance(body, dict):
        raise BadRequest("A tenant is a JSON object with adminRoles and allowedClusters")
    clusters = body.get("allowedClusters")
    if not isinstance(clusters, list) or not clusters:
        raise PreconditionFailed("Clusters cannot be empty or blank")
    roles = body.get("adminRoles") or []
    if not isinstance(roles, list) or not all(isinstance(name, str) for name in (*roles, *clusters)):
        raise BadRequest("adminRoles and allowedClusters must be JSON lists of names")
    return {"adminRoles": roles, "allowedClusters": clusters}


TENANT_ROUTES = (
    web.get("/admin/v2/tenants", names),
    web.get("/admin/v2/tenants/{tenant}", get),
    web.put("/admin/v2/tenants/{tenant}", create),
    web.post("/admin/v2/tenants/{tenant}", update),
    web.delete("/admin/v2/tenants/{tenant}", delete),
)
