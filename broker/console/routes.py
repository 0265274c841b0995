"""The routes of the console: the page at `/`, and its data under `/admin/v2/magnetar/console`."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from broker.admin.http.answers import answer
from broker.admin.service_view import BROKER
from broker.console.access import rights, session_of
from broker.console.hub import Hub
from broker.console.requests import flag, one_of, whole
from broker.console.static_files import StaticFiles
from broker.console.streaming import stream_events
from broker.console.topic_rows import LIMIT_MAX, SORTS, TopicsQuery, topics_page
from broker.console.traffic import Traffic

PREFIX: Final = "/admin/v2/magnetar/console"
"""Begins the path of all data."""
OFFSET_MAX: Final = 10_000_000
"""The highest offset in the list of topics."""


class ConsoleRoutes:
    """The handlers for one broker."""

    def __init__(self, hub: Hub, traffic: Traffic) -> None:
        """`hub` feeds the streams; `traffic` has the rates of topics."""
        self._hub = hub
        self._traffic = traffic
        self._files = StaticFiles()

    def routes(self) -> list[web.RouteDef]:
        """Returns the routes for the admin server."""
        return [
            *self._files.routes(),
            web.get(f"{PREFIX}/events", self.events),
            web.get(f"{PREFIX}/rights", rights),
            web.get(f"{PREFIX}/session", self.session),
            web.get(f"{PREFIX}/topics", self.topics),
        ]

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Returns the console's stream of events: `history`, `overview` each second, `warning`, and `topic`."""
        return await stream_events(request, self._hub, None)

    async def topics(self, request: web.Request) -> web.Response:
        """Returns a page of the console's list of open topics, by `search`, `sort` and `descending`."""
        broker = request.app[BROKER]
        query = TopicsQuery(
            search=request.query.get("search", ""),
            sort=one_of(request, "sort", SORTS, "name"),
            descending=flag(request, "descending"),
            offset=whole(request, "offset", 0, 0, OFFSET_MAX),
            limit=whole(request, "limit", 50, 1, LIMIT_MAX),
        )
        return answer(await topics_page(broker.registry.topics, self._traffic, query))

    async def session(self, request: web.Request) -> web.Response:
        """Returns the role of the page's user, and names and times of the broker."""
        return answer({**session_of(request), "pages": self._hub.streams})

    async def close(self, _: web.Application | None = None) -> None:
        """Ends all streams, because the broker stops."""
        self._hub.close()
