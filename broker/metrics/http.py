"""Serves `/metrics` through aiohttp, at once, without the redirect to `/metrics/` that Pulsar makes.

`/metrics/` and `?cluster=` answer the same. The text is sent piece by piece, so that a slow scraper delays its own
answer alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from broker.metrics.scraper import Scraper


def metrics_routes(scraper: Scraper) -> list[web.RouteDef]:
    """Returns the routes for the admin server."""
    handler = _handler(scraper)
    return [web.get("/metrics", handler), web.get("/metrics/", handler)]


def _handler(scraper: Scraper) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def metrics(request: web.Request) -> web.StreamResponse:
        scrape = await scraper.scrape(request.headers.get("Accept", ""))
        response = web.StreamResponse(headers={"Content-Type": scrape.content_type})
        response.content_length = scrape.size
        await response.prepare(request)
        for chunk in scrape.chunks:
            await response.write(chunk)
            # `write` does not wait for a reader that keeps up, so without this all pieces would go in one turn.
            await asyncio.sleep(0)
        await response.write_eof()
        return response

    return metrics
