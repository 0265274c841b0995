"""The live stream over HTTP: server-sent events, one connection for a page.

A page reads it with `fetch`, because the browser's EventSource cannot send the header that proves a role.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from aiohttp import web

from broker.admin.http.principal import EXPIRES_AT_S
from broker.admin.service_view import BROKER, BrokerView
from broker.console.access import sees_broker, sees_topic
from broker.console.hub import Hub, ReadTopic
from broker.console.live_topic import LiveTopic
from broker.console.topic_history import TopicHistories
from foundation.model.errors import NotAllowed
from foundation.model.topic_name import TopicName
from foundation.value import Json

SLOW_S: Final = 10.0
"""Seconds after which a reader is dropped that takes nothing of what waits for it."""


class ConsoleRefused(NotAllowed):
    """The role may not see what it asks for."""

    status = 403


HEADERS: Final = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    # A proxy that collects answers before it passes them on would hold events back.
    "X-Accel-Buffering": "no",
}
"""Headers of the stream."""


async def stream_events(
    request: web.Request, hub: Hub, histories: TopicHistories, name: TopicName | None
) -> web.StreamResponse:
    """Sends events until the page leaves, its rights end or the broker stops. Raises TooManyStreams.

    A role that may not see the whole broker gets the events of the topic `name` alone. Raises NotAllowed without these too.
    """
    whole = sees_broker(request)
    _check(request, name, whole=whole)
    stream = hub.open(
        None if name is None else _reader(request.app[BROKER], histories, str(name)), whole=whole
    )
    response = web.StreamResponse(headers=HEADERS)
    try:
        await response.prepare(request)
        async for data in stream.events():
            if _has_expired(request):
                break
            _check(request, name, whole=whole)
            async with asyncio.timeout(SLOW_S):
                await response.write(data)
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
    except (ConnectionError, NotAllowed):
        # The page has left, or its role has lost the right: nothing can be answered any more.
        if not response.prepared:
            raise
    finally:
        hub.leave(stream)
    return response


def _check(request: web.Request, name: TopicName | None, *, whole: bool) -> None:
    """Raises NotAllowed if the role may not see what the stream shows."""
    if whole and not sees_broker(request):
        raise ConsoleRefused("The role may not see the whole broker any more")
    if name is None:
        if not whole:
            raise ConsoleRefused("Unauthorized: the stream of the whole broker needs superuser; name a topic")
    elif not whole and not sees_topic(request, name):
        raise ConsoleRefused(f"Unauthorized: {name} needs produce or consume on the topic")


def _has_expired(request: web.Request) -> bool:
    expires_at_s = request.get(EXPIRES_AT_S)
    return expires_at_s is not None and time.time() >= expires_at_s


def _reader(broker: BrokerView, histories: TopicHistories, name: str) -> ReadTopic:
    """Returns the reader of one stream; its first event has the topic's history."""
    live = LiveTopic(name, time.monotonic_ns, broker.environment.wall_ms)
    unsent = True

    def read() -> dict[str, Json]:
        nonlocal unsent
        topic = broker.registry.topics.get(name)
        if topic is None or topic.closed:
            return {"topic": name, "gone": True}
        # A topic whose page is open does not fall asleep.
        topic.asked += 1
        histories.look(name)
        shown = live.look(topic)
        if unsent:
            unsent = False
            shown["history"] = histories.shown(name)
        shown["ten"] = histories.newest_ten(name)
        return shown

    return read
