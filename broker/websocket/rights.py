"""Rights of WebSocket sessions: the checks before a topic is opened, and the end of sessions that lost a right.

The middleware of the admin port has checked the topic in the path. A request may name further topics in its query, so each
topic is checked here as well.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker.websocket.context import WebSocketContext
from broker.websocket.errors import POLICY
from foundation.model.errors import BrokerError
from foundation.model.topic_name import TopicName

if TYPE_CHECKING:
    # The broker imports this module before its ports open; a session needs aiohttp, which is imported after that.
    from broker.websocket.session import Session

SESSIONS_PER_SLICE = 100
"""Sessions that are looked at before the loop serves others."""


class Forbidden(BrokerError):
    """The role lacks the right; Pulsar's status for a WebSocket."""

    status = 403


def require_produce(session: Session, topic: TopicName) -> None:
    """Raises Forbidden unless the client may publish to the topic."""
    authorizer = session.context.authorizer
    if authorizer.enabled and not authorizer.may_produce(session.principal, topic):
        raise _refused(session, "WebSocket producer", str(topic))


def require_consume(session: Session, topic: TopicName, subscription: str | None) -> None:
    """Raises Forbidden unless the client may consume from the topic; `subscription` None: as a reader."""
    authorizer = session.context.authorizer
    if authorizer.enabled and not authorizer.may_consume(session.principal, topic, subscription):
        raise _refused(session, "WebSocket consumer", f"{topic} {subscription or ''}".strip())


def require_list(session: Session, namespace: str) -> None:
    """Raises Forbidden unless the client may see the names of topics of the namespace."""
    authorizer = session.context.authorizer
    if authorizer.enabled and not authorizer.may_list_topics(session.principal, namespace):
        raise _refused(session, "WebSocket topicsPattern", namespace)


def _refused(session: Session, command: str, target: str) -> Forbidden:
    session.context.audit.refused(session.principal, session.address, command, target, Forbidden.status)
    return Forbidden(
        f"Not authorized: {command} of {target}; an administrator of the tenant grants the right"
    )


async def end_withdrawn(context: WebSocketContext) -> None:
    """Closes the sessions whose role has lost a right."""
    for count, session in enumerate(list(context.sessions)):
        if session.lacks_right():
            session.end(POLICY, "the right was withdrawn")
        if count % SESSIONS_PER_SLICE == SESSIONS_PER_SLICE - 1:
            await asyncio.sleep(0)
