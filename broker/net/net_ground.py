"""What all connections of a broker share."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Protocol

from broker.loop.turn import Turn
from broker.net.publish_buffer import PublishBuffer
from broker.net.settings import NetSettings
from broker.service.dispatcher import CallLater
from broker.service.topic_registry import TopicRegistry

Spawn = Callable[[Coroutine[object, object, None], str], object]
"""Run a coroutine as a task that is kept, named, and cancelled at the end."""


class OpenConnection(Protocol):
    """All that a stopping broker needs of a connection."""

    def close(self, reason: str) -> None: ...


@dataclass(slots=True)
class ConnectionCounters:
    created: int = 0
    closed: int = 0
    refused: int = 0


@dataclass(slots=True, kw_only=True)
class NetGround:
    registry: TopicRegistry
    settings: NetSettings
    turn: Turn
    call_later: CallLater
    spawn: Spawn
    wall_ms: Callable[[], int]
    now_ns: Callable[[], int]
    producer_name_prefix: str
    """Unique to this start of the broker; a number follows."""
    server_version: str
    service_url: str = ""
    """What a lookup answers; known once the port is open."""
    publish_buffer: PublishBuffer = field(default_factory=lambda: PublishBuffer(0))
    connections: set[OpenConnection] = field(default_factory=set)
    counters: ConnectionCounters = field(default_factory=ConnectionCounters)
    producer_numbers: itertools.count[int] = field(default_factory=itertools.count)
    listeners: dict[str, str] = field(default_factory=dict)
    """`advertisedListeners`: name -> URL"""

    def reconfigure(self, settings: NetSettings) -> None:
        """Connections look at the settings when they need one, so those that are open follow too."""
        self.settings = settings
        self.publish_buffer.resize(settings.publish_buffer_bytes_max)
