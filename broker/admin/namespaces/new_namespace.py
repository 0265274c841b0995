"""The middleware that reads a tenant or namespace which another broker may have made, or changed, a moment ago.

A tool that makes a namespace at one broker is sent on to the owner of a topic with its next request, sooner than the owner's
watch tells of the namespace. A tool that sets a policy at one broker reads it at another one next.

A request costs one read at most where its tenant or namespace is unknown, and none where both are known.
"""

from __future__ import annotations

import re
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from broker.admin.http.answers import namespace_of
from broker.admin.http.pressure import Pressure
from broker.admin.http.request_path import NAMESPACE, template_of
from broker.admin.service_view import BROKER, may_be_newer_in_store

_STORED: Final = re.compile(r"(?!\.{1,2}$)[-=:.\w]+", re.ASCII)
"""Names that a tenant or namespace may have: no other is looked for in the metadata store."""


def read_new_namespace(pressure: Pressure) -> Middleware:
    """Returns a middleware that reads what the path names and this broker does not know.

    It also reads a namespace whose policies are asked for. The handler refuses what does not exist.
    """

    @web.middleware
    async def read(request: web.Request, handler: Handler) -> web.StreamResponse:
        async with pressure.in_time(request):
            await _read(request)
        return await handler(request)

    return read


async def _read(request: web.Request) -> None:
    match, stored = request.match_info, request.app[BROKER].namespaces.stored
    if not _may_be_stored(match.get("tenant")) or not await stored.has_tenant(match["tenant"]):
        return
    if not _may_be_stored(match.get("namespace")):
        return
    if _asks_for_policies(request) and may_be_newer_in_store(request):
        await stored.read_newest(namespace_of(request))
    else:
        await stored.has(namespace_of(request))


def _may_be_stored(name: str | None) -> bool:
    return name is not None and _STORED.fullmatch(name) is not None


def _asks_for_policies(request: web.Request) -> bool:
    return request.method == "GET" and (template_of(request) or "").startswith(NAMESPACE)
