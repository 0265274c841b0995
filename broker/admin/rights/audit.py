"""The middleware of the audit trail: one line for each admin write and each refused request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from broker.admin.http.principal import PRINCIPAL
from broker.admin.http.request_path import shown_path
from broker.admin.service_view import BROKER
from broker.security.principal import NOBODY
from protocol.foreign_pages import READS

_REFUSALS: Final = frozenset((401, 403))
_ADMIN: Final = "/admin/"


@web.middleware
async def note_outcome(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Runs the handler and notes the outcome. It is the outermost middleware, so it sees the final status."""
    response = await handler(request)
    audit, principal = request.app[BROKER].audit, request.get(PRINCIPAL, NOBODY)
    if response.status in _REFUSALS:
        audit.refused(principal, _peer(request), request.method, shown_path(request), response.status)
    elif request.method not in READS and request.path.startswith(_ADMIN):
        audit.wrote(
            principal,
            _peer(request),
            request.method,
            shown_path(request),
            response.status,
            failed=response.status >= 400,
        )
    return response


def _peer(request: web.Request) -> str:
    peer = request.transport.get_extra_info("peername") if request.transport is not None else None
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else ""
