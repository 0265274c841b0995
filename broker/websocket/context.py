"""WebSocketContext: everything that all WebSocket sessions of a broker share."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from broker.security.audit import AuditTrail
from broker.security.authorization.authorizer import Authorizer
from broker.security.principal import Principal
from broker.service.lifecycle.partitioned_topics import PartitionedTopics
from broker.service.limits.publish_buffer import PublishBuffer
from broker.service.topics.topic_registry import TopicRegistry
from broker.websocket.settings import WebSocketSettings
from foundation.loop.clock import CallLater


def _drop_nothing() -> None:
    """Stands for a connection that is gone already."""


class SessionClient(NamedTuple):
    """The client of a session."""

    address: str
    """`host:port`"""
    principal: Principal
    """Its roles; NOBODY without authentication."""
    expires_at_s: float | None = None
    """Seconds since 1970 at which the proof of its roles ends; None = never."""
    drop: Callable[[], None] = _drop_nothing
    """Closes the connection at once, with all that was not sent. The default does nothing."""


class HeldRights(Protocol):
    """The accesses of a session; implemented by `SessionRights`, which this module cannot import."""

    @property
    def withdrawn(self) -> bool:
        """True when an access that the session holds was withdrawn."""
        ...


class OpenSession(Protocol):
    """A session as a stopping broker uses it."""

    def end(self, code: int, reason: str) -> None:
        """Closes the WebSocket."""
        ...

    @property
    def rights(self) -> HeldRights:
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
