"""The live stream over HTTP: server-sent events, one connection for a page.

A page reads it with `fetch`, because the browser's EventSource cannot send the header that proves a role.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from aiohttp import web

from broker.admin.http.principal import EXPIRES_AT_S, PRINCIPAL
from broker.admin.service_view import BROKER
from broker.console.hub import Hub, ReadTopic

SLOW_S: Final = 10.0
"""Seconds after which a reader is dropped that takes nothing of what waits for it."""
HEADERS: Final = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    # A proxy that collects answers before it passes them on would hold events back.
    "X-Accel-Buffering": "no",
}
"""Headers of the stream."""


async def stream_events(request: web.Request, hub: Hub, topic: ReadTopic | None) -> web.StreamResponse:
    """Sends events until the page leaves, its rights end or the broker stops. Raises TooManyStreams."""
    stream = hub.open(topic)
    response = web.StreamResponse(headers=HEADERS)
    try:
        await response.prepare(request)
        async for data in stream.events():
            if not _may_go_on(request):
                break
            async with asyncio.timeout(SLOW_S):
                await response.write(data)
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
    except ConnectionError:
        # The page has left.
        pass
    finally:
        hub.leave(stream)
    return response


def _may_go_on(request: web.Request) -> bool:
    """Returns False when the proof of the role has expired, or the role is no superuser any more."""
    expires_at_s = request.get(EXPIRES_AT_S)
    if expires_at_s is not None and time.time() >= expires_at_s:
        return False
    authorizer = request.app[BROKER].authorizer
    return not authorizer.enabled or authorizer.is_superuser(request[PRINCIPAL])
