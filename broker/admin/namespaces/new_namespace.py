"""The middleware that reads a namespace which this broker does not know: another one may have made it a moment ago.

A tool that makes a namespace at one broker is sent on to the owner of a topic with its next request, sooner than the owner's
watch tells of the namespace.
"""

from __future__ import annotations

import re
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from broker.admin.http.answers import namespace_of
from broker.admin.service_view import BROKER

_STORED: Final = re.compile(r"(?!\.{1,2}/)[-=:.\w]+/(?!\.{1,2}$)[-=:.\w]+", re.ASCII)
"""Names that a namespace may have: no other is looked for in the metadata store."""


@web.middleware
async def read_new_namespace(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Reads the namespace of the path where it is unknown; the handler refuses one that does not exist."""
    match = request.match_info
    if "tenant" in match and "namespace" in match and _STORED.fullmatch(name := namespace_of(request)):
        await request.app[BROKER].namespaces.stored.has(name)
    return await handler(request)
