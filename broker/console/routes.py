"""The routes of the console: the page at `/`, and its data under `/admin/v2/magnetar/console`."""

from __future__ import annotations

import time
from collections.abc import Coroutine
from typing import Final

from aiohttp import web

from broker.admin.http.answers import answer, topic_of
from broker.admin.http.request_path import TOPIC_NAME
from broker.admin.service_view import BROKER
from broker.admin.topics.topic_access import existing
from broker.console.access import listed_namespaces, rights, session_of
from broker.console.bookies import BookiesPage
from broker.console.cache_page import TOP, TOP_MAX, CachePage
from broker.console.cluster_page import cluster_page
from broker.console.hub import Hub
from broker.console.live_topic import LiveTopic
from broker.console.messages import from_place, peeked
from broker.console.namespace_rows import namespaces_page
from broker.console.own_time import own_time
from broker.console.requests import flag, one_of, whole
from broker.console.settings_page import settings_answer
from broker.console.static_files import StaticFiles
from broker.console.streaming import stream_events
from broker.console.topic_detail import topic_detail
from broker.console.topic_history import TopicHistories
from broker.console.topic_rows import LIMIT_MAX, SORTS, TopicsQuery, topics_page
from broker.console.traffic import Traffic
from broker.service.namespaces.namespaces import Json
from foundation.model.topic_name import parse_topic_name

_NUMBER: Final = "[0-9]{1,18}"
PREFIX: Final = "/admin/v2/magnetar/console"
"""Begins the path of all data."""
OFFSET_MAX: Final = 10_000_000
"""The highest offset in the list of topics."""


class ConsoleRoutes:
    """The handlers for one broker."""

    def __init__(
        self, hub: Hub, traffic: Traffic, histories: TopicHistories, cache: CachePage, bookies: BookiesPage
    ) -> None:
        """`hub` feeds the streams; `traffic` has the rates of topics, `histories` the last hour of those shown."""
        self._histories = histories
        self._bookies = bookies
        self._hub = hub
        self._cache = cache
        self._traffic = traffic
        self._files = StaticFiles()

    def routes(self) -> list[web.RouteDef]:
        """Returns the routes for the admin server."""
        return [
            *self._files.routes(),
            web.get(f"{PREFIX}/bookies", self.bookies),
            web.get(f"{PREFIX}/cache", self.cache),
            web.get(f"{PREFIX}/cluster", self.cluster),
            web.get(f"{PREFIX}/events", self.events),
            web.get(
                f"{PREFIX}/messages/{TOPIC_NAME}/ledger/{{ledger:{_NUMBER}}}/entry/{{entry:{_NUMBER}}}",
                from_place,
            ),
            web.get(f"{PREFIX}/messages/{TOPIC_NAME}/subscription/{{subscription}}", peeked),
            web.get(f"{PREFIX}/namespaces", self.namespaces),
            web.get(f"{PREFIX}/overview", self.overview),
            web.get(f"{PREFIX}/rights", rights),
            web.get(f"{PREFIX}/session", self.session),
            web.get(f"{PREFIX}/settings", self.settings),
            web.get(f"{PREFIX}/topics", self.topics),
            web.get(f"{PREFIX}/topics/{TOPIC_NAME}", self.topic),
        ]

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Returns the console's stream of events: `history`, `overview` each second, `warning`, and `topic`."""
        name = request.query.get("topic")
        topic = None if name is None else parse_topic_name(name)
        return await stream_events(request, self._hub, self._histories, topic)

    async def overview(self, _request: web.Request) -> web.Response:
        """Returns the newest sample of the broker, in the form of the event `overview`; `{}` before the first one."""
        return answer(self._hub.last)

    async def topics(self, request: web.Request) -> web.Response:
        """Returns a page of the console's list of topics, by `search`, `sort` and `descending`."""
        query = TopicsQuery(
            search=request.query.get("search", ""),
            sort=one_of(request, "sort", SORTS, "name"),
            descending=flag(request, "descending"),
            offset=whole(request, "offset", 0, 0, OFFSET_MAX),
            limit=whole(request, "limit", 50, 1, LIMIT_MAX),
        )
        topics = request.app[BROKER].registry.topics
        page = topics_page(topics, self._traffic, query, listed_namespaces(request))
        return await _answer_with_cost(page)

    async def namespaces(self, request: web.Request) -> web.Response:
        """Returns all namespaces with their topics, rates, backlog and policies that differ from the settings."""
        registry = request.app[BROKER].registry
        page = namespaces_page(self._traffic, registry.namespaces, registry.policies)
        return await _answer_with_cost(page)

    async def topic(self, request: web.Request) -> web.Response:
        """Returns what the console shows of one topic: ledgers, cached ranges, cursors, clients and policies."""
        broker = request.app[BROKER]
        topic = await existing(broker, topic_of(request))
        live = LiveTopic(str(topic.name), time.monotonic_ns, broker.environment.wall_ms)
        detail = await topic_detail(topic, broker.registry.policies)
        here = broker.registry.ownership.owner
        owner: dict[str, Json] = {"broker": here.broker_id, "url": here.admin_url or here.admin_url_tls}
        return answer({**detail, "live": live.look(topic), "owner": owner})

    async def cache(self, request: web.Request) -> web.Response:
        """Returns the levels of the entry cache, its flows and its needs, with the `top` topics by bytes."""
        return await _answer_with_cost(self._cache.shown(whole(request, "top", TOP, 1, TOP_MAX)))

    async def bookies(self, _request: web.Request) -> web.Response:
        """Returns the bookies with their disks, journal and read cache, and the times of this broker's requests."""
        return answer(await self._bookies.shown())

    async def cluster(self, request: web.Request) -> web.Response:
        """Returns the brokers on the metadata store with their bundles, and the last moves of bundles with their reasons."""
        return answer(await cluster_page(request.app[BROKER].registry.ownership))

    async def settings(self, request: web.Request) -> web.Response:
        """Returns all settings with their values, origins and limits; secrets are masked."""
        return answer(settings_answer(request.app[BROKER].settings))

    async def session(self, request: web.Request) -> web.Response:
        """Returns the role of the page's user, and names and times of the broker."""
        return answer({**session_of(request), "pages": self._hub.streams})

    def expire(self) -> None:
        """Ends the measurements for pages that nothing has asked for in a while; called every ten seconds."""
        self._cache.expire()
        self._bookies.expire()

    async def close(self, _: web.Application | None = None) -> None:
        """Ends all streams and questions, because the broker stops."""
        self._hub.close()
        self._bookies.close()


async def _answer_with_cost(work: Coroutine[object, None, dict[str, Json]]) -> web.Response:
    """Answers with `costMs` beside the values, because the walk for them takes longer the more topics there are."""
    found, cost_ms = await own_time(work)
    return answer({**found, "costMs": cost_ms})
