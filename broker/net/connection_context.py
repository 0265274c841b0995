"""ConnectionContext: everything that all client connections of a broker share."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from bookkeeper.metadata.metadata_store import MetadataStore
from broker.net.connection_limits import CONNECT_FRAME_BYTES_MAX, ConnectionLimits
from broker.net.partition_shares import PartitionShares
from broker.net.settings import NetSettings
from broker.net.stored_shares import StoredShares
from broker.net.topic_list_watcher import TopicListWatchers
from broker.security.audit import AuditTrail
from broker.security.authentication.authenticator import Authenticator
from broker.security.authorization.authorizer import Authorizer
from broker.service.lifecycle.coordinator_watches import CoordinatorWatches
from broker.service.lifecycle.partitioned_topics import PartitionedTopics
from broker.service.limits.publish_buffer import PublishBuffer
from broker.service.topics.topic_registry import TopicRegistry
from broker.service.transactions.coordinator import Spawn
from broker.service.transactions.coordinators import Coordinators
from foundation.loop import clock
from foundation.loop.clock import CallLater
from foundation.loop.rare_lines import RareLines
from foundation.loop.turn import Turn
from protocol.frame import FRAME_PADDING_BYTES
from protocol.hot_frames import SharedRun
from protocol.receive_buffer import ReceiveBuffer
from protocol.receive_buffer_sizer import ReceiveBufferSizer
from protocol.receive_memory import UNLIMITED, ReceiveMemory

if TYPE_CHECKING:
    from broker.service.topics.stored_changes import StoredChanges


class OpenConnection(Protocol):
    """A connection as a stopping broker uses it."""

    def close(self, reason: str) -> None:
        """Writes waiting frames and closes; `reason` is logged, unless it is empty."""
        ...


@dataclass(slots=True)
class ConnectionCounters:
    """Counts of connections since the start, for /metrics."""

    created: int = 0
    """Accepted sockets, refused ones included."""
    closed: int = 0
    """Sockets that are closed."""
    refused: int = 0
    """Connections above `brokerMaxConnections` or `brokerMaxConnectionsPerIp`."""
    corrupt_sends: int = 0
    """SENDs refused because their checksum was wrong."""


class ProducerNames:
    """Makes names for producers whose client gives none."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        """Unique to this start of the broker: deduplication must not take a new producer for an old one."""
        self._used = 0

    def next(self) -> str:
        """Returns a name that no other producer has."""
        name = f"{self.prefix}-{self._used}"
        self._used += 1
        return name


@dataclass(slots=True, kw_only=True)
class ConnectionContext:
    """State that all connections of a broker share.

    Connections read settings from it at each use, so a change at run time acts at once.
    """

    registry: TopicRegistry
    """Opens topics."""
    partitioned: PartitionedTopics
    """Answers PARTITIONED_METADATA."""
    metadata: MetadataStore
    """Keeps the shares of partitions."""
    settings: NetSettings
    """Current values."""
    turn: Turn
    """Writes to each connection once, at the end of the loop turn."""
    call_later: CallLater
    """Starts timers."""
    due_later: CallLater
    """Starts timers for dates, such as the expiry of credentials: by the clock that a test may advance."""
    spawn: Spawn
    """Runs requests that have to wait."""
    wall_ms: Callable[[], int]
    """Milliseconds since 1970."""
    now_ns: Callable[[], int] = clock.monotonic_ns
    """The monotonic clock."""
    authorizer: Authorizer
    """Decides about rights."""
    audit: AuditTrail
    """Notes refused accesses."""
    server_version: str
    """Sent in CONNECTED."""
    authenticator: Authenticator | None = None
    """Finds the roles of clients; None without authentication."""
    coordinators: Coordinators | None = None
    """The transaction coordinators; None with `transactionCoordinatorEnabled=false`."""
    shared_run: SharedRun = field(default_factory=SharedRun)
    """Frames of the run that was delivered last."""
    topic_list_watchers: TopicListWatchers = field(init=False)
    """Tell clients of topics that come and go."""
    known_stored_changes: StoredChanges | None = None
    """`stored_changes`, once it is used."""
    coordinator_watches: CoordinatorWatches = field(init=False)
    """Tell clients of Pulsar 5.0 of coordinators that move."""
    partition_shares: PartitionShares = field(init=False)
    """Shares of the partitions of consumers of Pulsar 5.0."""
    producer_names: ProducerNames = field(default_factory=lambda: ProducerNames(""))
    """Names for producers without one; the prefix is set before the port opens."""
    publish_buffer: PublishBuffer = field(init=False)
    """Limits the unconfirmed bytes of all connections together."""
    receive_memory: ReceiveMemory = field(init=False)
    """Memory into which all connections receive."""
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    """Counts connections by address."""
    refusals: RareLines = field(init=False)
    """Log lines about refused connections."""
    damages: RareLines = field(init=False)
    """Log lines about messages whose checksum was wrong."""
    lookups: int = 0
    """Lookups, and queries of partitions and topics, in progress."""
    connections: set[OpenConnection] = field(default_factory=set)
    """Open connections."""
    counters: ConnectionCounters = field(default_factory=ConnectionCounters)
    """For /metrics."""

    def __post_init__(self) -> None:
        stored = StoredShares(self.metadata, self.spawn)
        self.topic_list_watchers = TopicListWatchers(
            self.registry.events, self.turn, self.call_later, self.now_ns
        )
        self.coordinator_watches = CoordinatorWatches(
            self.registry, lambda: self.coordinators, self.call_later, self.spawn, self.now_ns
        )
        self.partition_shares = PartitionShares(stored, self.due_later, lambda: self.settings.share_grace_s)
        self.publish_buffer = PublishBuffer(self.settings.publish_buffer_bytes_max)
        log = logging.getLogger("magnetar.net")
        self.refusals, self.damages = RareLines(log, self.now_ns), RareLines(log, self.now_ns)
        self.receive_memory = ReceiveMemory(_receive_bytes_max(self.settings), self.now_ns)

    @property
    def stored_changes(self) -> StoredChanges:
        """Announces the topics of other brokers that come and go."""
        if self.known_stored_changes is None:
            # Imported late: few clients watch a list of topics.
            from broker.service.topics.stored_changes import StoredChanges

            self.known_stored_changes = StoredChanges(
                self.metadata, self.registry.events, self.spawn, self.call_later
            )
        return self.known_stored_changes

    def begin_handshake(self, host: str) -> str | None:
        """Counts a TLS handshake; returns the reason against it when a limit of connections is reached."""
        reason = self.limits.begin_handshake(host, len(self.connections), self.settings)
        if reason is not None:
            self.counters.refused += 1
        return reason

    def receive_buffer(self, end_connection: Callable[[], bool]) -> ReceiveBuffer:
        """Returns the receive buffer of a new connection; its frames are short until CONNECT is answered."""
        settings = self.settings
        return ReceiveBuffer(
            ReceiveBufferSizer(
                settings.receive_buffer_min, settings.receive_buffer_initial, settings.receive_buffer_max
            ),
            frame_bytes_max=min(CONNECT_FRAME_BYTES_MAX, settings.message_bytes_max + FRAME_PADDING_BYTES),
            shared=not settings.copy_entries,
            memory=self.receive_memory,
            end_connection=end_connection,
            accepted=False,
        )

    def end_lookup(self) -> None:
        """Subtracts a lookup, or a query of partitions or topics, that has ended."""
        self.lookups -= 1

    def end_handshake(self, host: str) -> None:
        """Subtracts a TLS handshake that has ended."""
        self.limits.end_handshake(host)

    def note_corrupt(self, address: str, size: int) -> None:
        """Counts and logs a message whose checksum is wrong: its client sends it again, so nobody else would notice."""
        self.counters.corrupt_sends += 1
        self.damages.warning(f"! {address}: a message of {size} bytes has a wrong checksum and is refused")

    def reconfigure(self, settings: NetSettings) -> None:
        """Takes new settings; open connections follow."""
        self.settings = settings
        self.publish_buffer.resize(settings.publish_buffer_bytes_max)
        self.receive_memory.resize(_receive_bytes_max(settings))


def _receive_bytes_max(settings: NetSettings) -> int:
    """Returns a quarter of the publish buffer, and at least four frames; no limit where that one has none."""
    publish_max = settings.publish_buffer_bytes_max
    if publish_max <= 0:
        return UNLIMITED
    # A smaller part would end the connections of a few producers with large messages.
    return max(publish_max // 4, 4 * (settings.message_bytes_max + FRAME_PADDING_BYTES))
