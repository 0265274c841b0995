"""WebSocketContext: everything that all WebSocket sessions of a broker share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Protocol

from broker.security.audit import AuditTrail
from broker.security.authorization.authorizer import Authorizer
from broker.service.lifecycle.partitioned_topics import PartitionedTopics
from broker.service.limits.publish_buffer import PublishBuffer
from broker.service.topics.topic_registry import TopicRegistry
from broker.websocket.errors import POLICY
from broker.websocket.rights import SessionRights
from broker.websocket.settings import WebSocketSettings
from foundation.loop.clock import CallLater

SESSIONS_PER_SLICE = 100
"""Sessions that are looked at before the loop serves others."""


class OpenSession(Protocol):
    """A session as a stopping broker uses it."""

    def end(self, code: int, reason: str) -> None:
        """Closes the WebSocket."""
        ...

    @property
    def rights(self) -> SessionRights:
        """The accesses of the client."""
        ...


@dataclass(slots=True, kw_only=True)
class WebSocketContext:
    """State that all sessions of a broker share."""

    registry: TopicRegistry
    """Opens topics."""
    partitioned: PartitionedTopics
    """Knows the number of partitions."""
    settings: WebSocketSettings
    """Limits and times."""
    publish_buffer: PublishBuffer
    """Limits the unconfirmed bytes of all clients together."""
    producer_name: Callable[[], str]
    """Returns a name that no other producer has."""
    authorizer: Authorizer
    """Decides about rights."""
    audit: AuditTrail
    """Writes a line for refused access."""
    call_later: CallLater
    """Starts timers."""
    due_later: CallLater
    """Starts timers for dates, by the clock that a test may advance; their handles can be cancelled."""
    spawn: Callable[[Coroutine[object, object, None], str], object]
    """Runs work that nobody awaits, until the broker stops."""
    wall_ms: Callable[[], int]
    """Milliseconds since 1970."""
    sessions: set[OpenSession] = field(default_factory=set)
    """Open sessions."""

    async def end_withdrawn(self) -> None:
        """Closes the sessions whose role has lost a right."""
        for count, session in enumerate(list(self.sessions)):
            if session.rights.withdrawn:
                session.end(POLICY, "the right was withdrawn")
            if count % SESSIONS_PER_SLICE == SESSIONS_PER_SLICE - 1:
                await asyncio.sleep(0)
