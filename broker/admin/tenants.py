"""`/admin/v2/tenants`"""

from __future__ import annotations

from aiohttp import web

from broker.admin.answers import BadRequest, PreconditionFailed, answer, body_of, done
from broker.admin.service_view import BROKER
from broker.service.namespaces import Json


async def names(request: web.Request) -> web.Response:
    return answer(list(request.app[BROKER].namespaces.tenants()))


async def get(request: web.Request) -> web.Response:
    return answer(dict(request.app[BROKER].namespaces.tenant(request.match_info["tenant"])))


async def create(request: web.Request) -> web.Response:
    await request.app[BROKER].namespaces.create_tenant(request.match_info["tenant"], await _info(request))
    return done()


async def update(request: web.Request) -> web.Response:
    await request.app[BROKER].namespaces.update_tenant(request.match_info["tenant"], await _info(request))
    return done()


async def delete(request: web.Request) -> web.Response:
    await request.app[BROKER].namespaces.delete_tenant(request.match_info["tenant"])
    return done()


async def _info(request: web.Request) -> dict[str, Json]:
    body = await body_of(request)
    if body is None:
        raise PreconditionFailed("TenantInfo is null")
    if not isinstance(body, dict):
        raise BadRequest("A tenant is a JSON object with adminRoles and allowedClusters")
    clusters = body.get("allowedClusters")
    if not isinstance(clusters, list) or not clusters:
        raise PreconditionFailed("Clusters cannot be empty or blank")
    roles = body.get("adminRoles")
    return {"adminRoles": roles if isinstance(roles, list) else [], "allowedClusters": clusters}


TENANT_ROUTES = (
    web.get("/admin/v2/tenants", names),
    web.get("/admin/v2/tenants/{tenant}", get),
    web.put("/admin/v2/tenants/{tenant}", create),
    web.post("/admin/v2/tenants/{tenant}", update),
    web.delete("/admin/v2/tenants/{tenant}", delete),
)
