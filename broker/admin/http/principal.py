"""The principal of a request at the admin port: `request[PRINCIPAL]`, set before any other code sees the request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from broker.security.principal import NOBODY, Principal

PRINCIPAL = web.RequestKey("principal", Principal)
"""The roles behind a request; NOBODY without authentication."""


@web.middleware
async def note_principal(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Stores the principal of the request."""
    request[PRINCIPAL] = NOBODY
    return await handler(request)
