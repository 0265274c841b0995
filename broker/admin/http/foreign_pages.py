"""Refuses requests of foreign web pages at the admin port; `protocol/foreign_pages.py` has the rules."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Awaitable, Callable, Container, Iterator
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Middleware

from broker.admin.http.answers import refused
from broker.admin.http.request_path import shown_path
from foundation.settings.settings import Settings
from protocol.foreign_pages import UPLOAD, ForeignPages

log = logging.getLogger("magnetar")


def refuse_foreign_pages(settings: Settings, changes_nothing: Container[object] = ()) -> Middleware:
    """Returns the middleware for a broker with these settings.

    `changes_nothing` has handlers that refuse every request. They answer uploads too (415 otherwise), which are the
    usual requests for functions; requests that name a foreign page or host are refused before them as everywhere.
    """
    pages = ForeignPages(own_names(settings), "name it in advertisedListeners")

    @web.middleware
    async def guard(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        refusal = pages.refusal(request.method, request.headers)
        if refusal is None or (refusal.status == UPLOAD and request.match_info.handler in changes_nothing):
            return await handler(request)
        if count := pages.count(time.monotonic()):
            path = shown_path(request)
            log.warning("! %s %s: %s (%d refused)", request.method, path, refusal.reason, count)
        return refused(refusal.status, refusal.reason)

    return guard


def own_names(settings: Settings) -> Iterator[str]:
    """Yields the names under which clients may address the broker."""
    yield settings.str("advertisedAddress")
    yield settings.str("bindAddress")
    yield socket.gethostname()
    for listener in settings.list("advertisedListeners"):
        # `name:pulsar://host:port`; its host is one of ours, whatever the port.
        host = urlsplit(listener.partition(":")[2].strip()).hostname
        if host:
            yield host
