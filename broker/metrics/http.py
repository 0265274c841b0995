"""`/metrics` for aiohttp: answered at once, without the redirect to `/metrics/` that Pulsar makes.

Whoever asks for `/metrics/` or adds `?cluster=` gets the same. The text is written piece by piece, so that a
slow scraper holds its own answer and nobody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from broker.metrics.scraper import Scraper


def metrics_routes(scraper: Scraper) -> list[web.RouteDef]:
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
            await asyncio.sleep(0)  # A reader that keeps up never makes `write` wait.
        await response.write_eof()
        return response

    return metrics
