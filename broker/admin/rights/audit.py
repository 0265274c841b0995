"""The middleware of the audit trail: one line for each admin write and each refused request."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import unquote

from aiohttp import web

from broker.admin.http.principal import PRINCIPAL
from broker.admin.rights.needs import template_of
from broker.admin.service_view import BROKER
from broker.security.principal import NOBODY
from settings.keys import MASK, mask

_READS: Final = frozenset(("GET", "HEAD", "OPTIONS"))
_REFUSALS: Final = frozenset((401, 403))
_ADMIN: Final = "/admin/"
_CONFIGURATION: Final = "/admin/v2/brokers/configuration/"
_KEY_WITHOUT_ROUTE: Final = re.compile(r"(.*?/configuration/+[^/]+/).", re.IGNORECASE | re.DOTALL)
"""A path up to the value of a key, as a client may write it by mistake: with more slashes, or in capitals."""


@web.middleware
async def note_outcome(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Runs the handler and notes the outcome. It is the outermost middleware, so it sees the final status."""
    response = await handler(request)
    audit, principal = request.app[BROKER].audit, request.get(PRINCIPAL, NOBODY)
    if response.status in _REFUSALS:
        audit.refused(principal, _peer(request), request.method, _target(request), response.status)
    elif request.method not in _READS and request.path.startswith(_ADMIN):
        audit.wrote(
            principal,
            _peer(request),
            request.method,
            _target(request),
            response.status,
            failed=response.status >= 400,
        )
    return response


def _peer(request: web.Request) -> str:
    peer = request.transport.get_extra_info("peername") if request.transport is not None else None
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else ""


def _target(request: web.Request) -> str:
    """Returns the path as the client sent it, without the query, which may hold a token."""
    path = request.rel_url.raw_path
    template = template_of(request)
    if template is None:
        # No route, so no part of the path is known as a value. A token with a `/` that is not encoded comes here.
        match = _KEY_WITHOUT_ROUTE.match(unquote(path))
        return f"{match[1]}{MASK}" if match else path
    if template.startswith(_CONFIGURATION) and template.count("{") == 2:
        # The path ends with the key and its value, and the value of some keys is a secret.
        key, value = list(request.match_info.values())
        return f"{_CONFIGURATION}{key}/{mask(key, value)}"
    return path
