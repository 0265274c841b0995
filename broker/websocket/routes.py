"""The routes of the WebSocket API at the admin port.

    /ws/v2/producer/{domain}/{tenant}/{namespace}/{topic}
    /ws/v2/consumer/{domain}/{tenant}/{namespace}/{topic}/{subscription}
    /ws/v2/reader/{domain}/{tenant}/{namespace}/{topic}
    /ws/v3/consumer/{subscription}?topics=…                      or topicsPattern=…

Topics are opened before the WebSocket is accepted, so a refusal is an HTTP status with JSON. The middlewares of the admin
port have judged the request before: foreign pages, authentication, rights.
"""

from __future__ import annotations

import logging
import secrets
from functools import partial
from urllib.parse import quote

from aiohttp import web

from broker.security.authorization.access import consume, produce
from broker.security.principal import Principal
from broker.websocket.consuming import ConsumerSession
from broker.websocket.context import WebSocketContext
from broker.websocket.errors import GOING_AWAY, InvalidQuery
from broker.websocket.opening import open_consumers, open_producers, topics_of
from broker.websocket.parameters import (
    ConsumerParameters,
    consumer_parameters,
    producer_parameters,
    reader_parameters,
)
from broker.websocket.producing import ProducerSession
from broker.websocket.relaying import RelayedConsumers, RelayedProducers, parts_elsewhere, query_of_legs
from broker.websocket.rights import SessionClient, SessionRights
from broker.websocket.session import WebSocketSession
from foundation.model.errors import BrokerError, InvalidTopicName, TopicTerminated
from foundation.model.topic_name import TopicName, parse_topic_name

log = logging.getLogger("magnetar.websocket")

TOPIC_PATH = "{domain}/{tenant}/{namespace}/{topic}"


class UpgradeNeeded(BrokerError):
    """The request does not ask for a WebSocket."""

    status = 405


class TopicEnded(BrokerError):
    """The topic takes no messages any more; Pulsar's status for a producer here."""

    status = 503


class WebSocketRoutes:
    """Handlers of the routes, for one broker."""

    def __init__(
        self,
        context: WebSocketContext,
        principal: web.RequestKey[Principal],
        expires_at_s: web.RequestKey[float],
    ) -> None:
        """The keys name what the admin port has found: roles, and the end of their proof (missing = never)."""
        self._context = context
        self._principal = principal
        self._expires_at_s = expires_at_s

    def routes(self) -> list[web.RouteDef]:
        """Returns the routes for the admin server."""
        return [
            web.get(f"/ws/v2/producer/{TOPIC_PATH}", self.producer),
            web.get(f"/ws/v2/consumer/{TOPIC_PATH}/{{subscription}}", self.consumer),
            web.get(f"/ws/v2/reader/{TOPIC_PATH}", self.reader),
            web.get("/ws/v3/consumer/{subscription}", self.topics_consumer),
            web.get("/ws/v2/{kind:producer|consumer|reader}/{rest:.*}", self.wrong_path),
        ]

    async def producer(self, request: web.Request) -> web.StreamResponse:
        """Publishes what the client sends."""
        socket = self._socket(request)
        name, peer = _topic(request), self._peer(request)
        parameters = producer_parameters(request.query)
        if self._is_shared:
            relay = RelayedProducers(socket, self._context, peer, parameters)
            if parts := await parts_elsewhere(relay, [name], produce):
                query = {"producerName": self._context.producer_name(), **request.query}
                await relay.open_legs(parts, "/ws/v2/producer", "", query)
                return await _serve(request, socket, relay, f"producer on {name}, at its owners")
        session = ProducerSession(socket, self._context, peer, parameters)
        try:
            await open_producers(session, name)
        except TopicTerminated as error:
            raise TopicEnded(str(error)) from None
        return await _serve(request, socket, session, f"producer on {name}")

    async def consumer(self, request: web.Request) -> web.StreamResponse:
        """Sends the messages of a subscription."""
        socket = self._socket(request)
        name, subscription = _topic(request), _subscription(request)
        parameters = consumer_parameters(request.query)
        return await self._consume(request, socket, parameters, [name], subscription)

    async def reader(self, request: web.Request) -> web.StreamResponse:
        """Sends the messages from a place on."""
        socket = self._socket(request)
        name = _topic(request)
        parameters = reader_parameters(request.query)
        return await self._consume(request, socket, parameters, [name], "")

    async def topics_consumer(self, request: web.Request) -> web.StreamResponse:
        """Sends the messages of a subscription on several topics."""
        socket = self._socket(request)
        subscription = _subscription(request)
        parameters = consumer_parameters(request.query)
        rights = SessionRights(self._context.authorizer, self._context.audit, self._peer(request))
        topics, pattern = request.query.get("topics"), request.query.get("topicsPattern")
        names = await topics_of(self._context.registry, rights, topics, pattern)
        return await self._consume(request, socket, parameters, names, subscription)

    async def _consume(
        self,
        request: web.Request,
        socket: web.WebSocketResponse,
        parameters: ConsumerParameters,
        names: list[TopicName],
        subscription: str,
    ) -> web.StreamResponse:
        """Serves a consumer, or a reader where `subscription` is empty."""
        peer, reads = self._peer(request), not subscription
        what = str(names[0]) if len(names) == 1 else f"{len(names)} topics"
        subject = f"reader on {what}" if reads else f"consumer on {what} {subscription}"
        if self._is_shared:
            relay = RelayedConsumers(socket, self._context, peer, parameters, reads=reads)
            access = partial(consume, subscription=None if reads else subscription)
            if parts := await parts_elsewhere(relay, names, access):
                kind, end = ("reader", "") if reads else ("consumer", f"/{quote(subscription, safe='')}")
                query = query_of_legs(request.query, parameters, names[0], subscription, len(parts))
                await relay.open_legs(parts, f"/ws/v2/{kind}", end, query)
                return await _serve(request, socket, relay, f"{subject}, at its owners")
        session = ConsumerSession(socket, self._context, peer, parameters, reads=reads)
        # The name that Pulsar's clients make.
        await open_consumers(session, names, subscription or f"reader-{secrets.token_hex(5)}")
        return await _serve(request, socket, session, subject)

    @property
    def _is_shared(self) -> bool:
        return self._context.registry.ownership.is_shared

    async def wrong_path(self, request: web.Request) -> web.StreamResponse:
        """Refuses a path with a part too few or too many."""
        raise InvalidQuery("Invalid topic name format")

    async def close(self, _: web.Application | None = None) -> None:
        """Closes all sessions, because the broker stops."""
        for session in list(self._context.sessions):
            session.end(GOING_AWAY, "the broker stops")

    def _peer(self, request: web.Request) -> SessionClient:
        peer = SessionClient(_address(request), request[self._principal], request.get(self._expires_at_s))
        return peer if request.transport is None else peer._replace(drop=request.transport.abort)

    def _socket(self, request: web.Request) -> web.WebSocketResponse:
        settings = self._context.settings
        socket = web.WebSocketResponse(
            max_msg_size=settings.text_bytes_max,
            heartbeat=settings.ping_s if settings.ping_s > 0 else None,
            # A small compressed text could become a large one.
            compress=False,
            # `WebSocketSession.run` answers the client's close after it has left the topics. Otherwise a client that
            # connects again at once finds its own Exclusive subscription or producer name taken.
            autoclose=False,
        )
        try:
            opens = socket.can_prepare(request).ok
        except ValueError:
            # aiohttp's answer to a key that is no ASCII.
            opens = False
        if not opens:
            raise UpgradeNeeded("HTTP method GET is not supported by this URL: open a WebSocket")
        return socket


async def _serve(
    request: web.Request, socket: web.WebSocketResponse, session: WebSocketSession, subject: str
) -> web.StreamResponse:
    try:
        await socket.prepare(request)
    except BaseException:
        # The client left meanwhile, or the server stops: the topics must be left.
        await session.leave()
        raise
    log.info("+ %s %s", session.address, subject)
    await session.run()
    return socket


def _topic(request: web.Request) -> TopicName:
    match = request.match_info
    try:
        return parse_topic_name(
            f"{match['domain']}://{match['tenant']}/{match['namespace']}/{match['topic']}"
        )
    except InvalidTopicName as error:
        raise InvalidQuery(str(error)) from None


def _subscription(request: web.Request) -> str:
    name = request.match_info["subscription"]
    if not name.strip():
        raise InvalidQuery("Empty subscription name")
    return name


def _address(request: web.Request) -> str:
    peer = request.transport.get_extra_info("peername") if request.transport is not None else None
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer)
