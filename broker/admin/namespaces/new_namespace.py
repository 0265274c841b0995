"""The middleware that reads a namespace which another broker may have made, or changed, a moment ago.

A tool that makes a namespace at one broker is sent on to the owner of a topic with its next request, sooner than the owner's
watch tells of the namespace. A tool that sets a policy at one broker reads it at another one next.
"""

from __future__ import annotations

import re
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from broker.admin.http.answers import namespace_of
from broker.admin.http.request_path import NAMESPACE, template_of
from broker.admin.service_view import BROKER, may_be_newer_in_store

_STORED: Final = re.compile(r"(?!\.{1,2}/)[-=:.\w]+/(?!\.{1,2}$)[-=:.\w]+", re.ASCII)
"""Names that a namespace may have: no other is looked for in the metadata store."""


@web.middleware
async def read_new_namespace(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Reads the namespace of the path where it is unknown, or its policies are asked for.

    The handler refuses a namespace that does not exist.
    """
    match = request.match_info
    if "tenant" in match and "namespace" in match and _STORED.fullmatch(name := namespace_of(request)):
        stored = request.app[BROKER].namespaces.stored
        if _asks_for_policies(request) and may_be_newer_in_store(request):
            await stored.read_newest(name)
        else:
            await stored.has(name)
    return await handler(request)


def _asks_for_policies(request: web.Request) -> bool:
    return request.method == "GET" and (template_of(request) or "").startswith(NAMESPACE)
