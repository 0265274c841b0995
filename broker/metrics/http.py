"""Serves `/metrics` through aiohttp, at once, without the redirect to `/metrics/` that Pulsar makes.

`/metrics/` and `?cluster=` answer the same; `?namespace=` and `?topic=` choose topics. The text is sent piece by piece, so
that a slow scraper delays its own answer alone, and by gzip to a scraper that takes it.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final

from aiohttp import web

from broker.metrics.scraper import Scraper
from broker.numbers.readings import Chosen
from foundation.model.errors import InvalidTopicName
from foundation.model.topic_name import parse_topic_name

GZIP_LEVEL: Final = 1
"""zlib's fastest: the text repeats itself, and higher levels take a multiple of the time."""
GZIP_WINDOW_BITS: Final = 31
"""zlib's largest window, with gzip's header and checksum."""


def metrics_routes(scraper: Scraper) -> list[web.RouteDef]:
    """Returns the routes for the admin server."""
    handler = _handler(scraper)
    return [web.get("/metrics", handler), web.get("/metrics/", handler)]


def _handler(scraper: Scraper) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def metrics(request: web.Request) -> web.StreamResponse:
        try:
            chosen = _chosen(request)
        except InvalidTopicName as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from None
        scrape = await scraper.scrape(request.headers.get("Accept", ""), chosen)
        response = web.StreamResponse(
            headers={"Content-Type": scrape.content_type, "Vary": "Accept-Encoding"}
        )
        chunks: Iterable[bytes] = scrape.chunks
        if takes_gzip(request.headers.get("Accept-Encoding", "")):
            response.headers["Content-Encoding"] = "gzip"
            chunks = compressed(chunks)
        else:
            response.content_length = scrape.size
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
            # `write` does not wait for a reader that keeps up, so without this all pieces would go in one turn.
            await asyncio.sleep(0)
        await response.write_eof()
        return response

    return metrics


def _chosen(request: web.Request) -> Chosen:
    """Returns what the query names, in full. Raises InvalidTopicName."""
    namespaces, topics = (request.query.getall(word, ()) for word in ("namespace", "topic"))
    return Chosen(
        frozenset(parse_topic_name(f"{name}/any").namespace for name in namespaces),
        frozenset(str(parse_topic_name(name)) for name in topics),
    )


def takes_gzip(accepted: str) -> bool:
    """Returns True for a header `Accept-Encoding` that names gzip with a weight above 0."""
    for each in accepted.lower().split(","):
        coding, _, weight = each.replace(" ", "").partition(";q=")
        if coding == "gzip":
            return weight.strip("0.") != "" or not weight
    return False


def compressed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yields one gzip file of all chunks in pieces, one for each chunk and one more; a piece may be empty."""
    gzip = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, GZIP_WINDOW_BITS)
    for chunk in chunks:
        yield gzip.compress(chunk)
    yield gzip.flush()
