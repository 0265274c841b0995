"""BrokerService: the whole broker, composed of its rooms; the order in which they start and stop.

Read `__init__` from top to bottom for the parts, each of which uses those above it:

    metadata store, ledgers, turn          made by the process (`magnetar/process/standalone.py`)
    cache, decisions, recorder             the entry cache and everything that observes it
    environment                            shared by all managed ledgers
    namespaces, ownership, registry        topics
    net                                    shared by all client connections
    admin_port                             the HTTP ports: admin API and /metrics
    loop_watch, health_port                the lag of the event loop, and the port that tells when it is stuck
    timers, cache_passes, ledger_upkeep    the work that falls due with time

Start: changed settings, record, namespaces, ports, timers; metrics and console last, because clients need not wait for
them, and the admin server at its first connection. Stop, in the other direction: timers, data port, topics (which store
acknowledgements), connections, admin server, tasks, record, ledgers, metadata store. `magnetar/process/standalone.py`
calls `start`, `start_admin` and `stop`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from bookkeeper.ensembles.ledger_ids import LedgerIds, LedgerIdSource
from bookkeeper.ensembles.ledgers import Ledgers
from bookkeeper.metadata.metadata_store import MetadataStore
from bookkeeper.metadata.start_count import StartName, counted_name
from broker.compaction.worker_start import start_worker
from broker.compose.admin_port import AdminPort
from broker.compose.background_tasks import BackgroundTasks
from broker.compose.backlog_rounds import start_backlog_rounds
from broker.compose.cache_counts import CacheCounts
from broker.compose.cache_passes import CachePasses
from broker.compose.cache_settings import EntryCacheSettings
from broker.compose.cluster_membership import (
    begin_shared_work,
    check_for,
    ownership_of,
    publisher_elsewhere,
    serve,
)
from broker.compose.confirmed_rights import ConfirmedRights
from broker.compose.dynamic_settings import DynamicSettings
from broker.compose.ledger_upkeep import LedgerUpkeep
from broker.compose.room_settings import (
    LateTier,
    interceptors_of,
    listeners_of,
    reads_limiter,
    record_settings,
)
from broker.compose.timers import Timers
from broker.compose.tls_contexts import data_certificates, web_certificates
from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.managed_ledger.settings import ManagedLedgerSettings
from broker.net.connection_context import ConnectionContext
from broker.net.listener import listen, listen_tls
from broker.net.rights import end_withdrawn
from broker.net.server_cnx import ServerCnx
from broker.net.settings import NetSettings
from broker.security.audit import AuditTrail
from broker.security.authorization.authorizer import Authorizer
from broker.security.authorization.settings import AuthorizationSettings
from broker.service.compaction.topic_compaction import Compactor
from broker.service.lifecycle.deletion.deletions import Deletions
from broker.service.lifecycle.deletion.last_audit import LastAudit
from broker.service.lifecycle.dormancy import Dormancy
from broker.service.lifecycle.inactive_topics import InactiveTopicRounds
from broker.service.lifecycle.partitioned_topics import PartitionedTopics
from broker.service.namespaces.namespaces import Namespaces
from broker.service.settings import ServiceSettings
from broker.service.topics.topic_ownership import Addresses
from broker.service.topics.topic_registry import TopicRegistry
from broker.service.transactions.coordinators import Coordinators
from entry_cache.compose import ComposedCache
from entry_cache.observe.decisions import Decisions
from entry_cache.observe.totals import totals_of
from foundation.loop.clock import BrokerClock, CallLater
from foundation.loop.loop_watch import LoopWatch
from foundation.loop.turn import Turn
from foundation.model.topic_name import parse_topic_name
from foundation.settings.settings import Settings
from foundation.tls.listener import TlsListener

if TYPE_CHECKING:
    from aiohttp.web import RouteDef

    from broker.compose.health_port import HealthPort
    from broker.faults.controls import TestControls
    from broker.recorder.recorder import Recorder
    from broker.security.authentication.authenticator import Authenticator
    from broker.websocket.context import WebSocketContext

log = logging.getLogger("magnetar")

INACTIVE_INTERVAL_S: Final = 1.0
"""Resolution of `brokerDeleteInactiveTopicsFrequencySeconds`, which may change at run time."""
DELETIONS_INTERVAL_S: Final = 60.0
"""Seconds between two attempts at deletions that have failed."""
SETTLE_S: Final = 10.0
"""Longest wait of a test's clock for the work that a timer began; slower work goes on beside the advance."""


class BrokerService:
    """A broker from its start to its stop."""

    settings: Settings
    """The settings that hold now."""
    version: str
    """Magnetar's version."""
    addresses: Addresses
    """Complete when `start` returns."""
    dynamic_settings: DynamicSettings
    """Changes settings at run time."""
    cache: ComposedCache
    """The entry cache (PIP-430) and everything that observes it."""
    recorder: Recorder | None
    """Writes the access record; None while `entryCacheRecordDirectory` is not set."""
    environment: ManagedLedgerEnvironment
    """Stores, clocks, cache and limits of all managed ledgers."""
    namespaces: Namespaces
    """Tenants, namespaces and their policies."""
    registry: TopicRegistry
    """All open topics."""
    deletions: Deletions
    """Deletes topics, namespaces and tenants, also after a crash."""
    partitioned: PartitionedTopics
    """Partitioned topics and their metadata."""
    authenticator: Authenticator | None
    """Finds the roles of clients, as `make_authenticator` makes it of the settings; None without authentication."""
    authorizer: Authorizer
    """Decides about rights of roles."""
    audit: AuditTrail
    """Notes admin writes and refused accesses."""
    last_audit: LastAudit
    """The result of the last audit of leaks."""
    net: ConnectionContext
    """Everything that client connections share."""
    loop_watch: LoopWatch
    """Measures how long the event loop is held."""
    controls: TestControls | None
    """The clock and the faults of `--test-faults`; None without."""
    stop_process: Callable[[], None] | None = None
    """Begins to stop the process; set by `magnetar/process/standalone.py`."""

    def __init__(
        self,
        settings: Settings,
        *,
        metadata: MetadataStore,
        ledgers: Ledgers,
        turn: Turn,
        version: str,
        ids: LedgerIdSource | None = None,
        start_name: StartName | None = None,
        authenticator: Authenticator | None = None,
        controls: TestControls | None = None,
    ) -> None:
        """Composes the broker inside the running loop; opens nothing.

        `ids`, `start_name` None: the metadata store counts. `controls`: the clock and the faults of `--test-faults`.
        """
        loop, kept = asyncio.get_running_loop(), _own_topics(settings)
        self.settings, self.version, self.addresses = settings, version, Addresses()
        self.dynamic_settings = DynamicSettings(settings, metadata, self.reconfigure, check_for(metadata))
        self._tasks, self.controls = BackgroundTasks(), controls
        self._clock = clock = BrokerClock() if controls is None else controls.held.clock
        self._timers = Timers(clock.looks())
        self.loop_watch = LoopWatch(loop.call_later, time.monotonic_ns)

        # The bare clock: it costs half of `clock.monotonic_ns`. An event whose time decides something brings its own.
        now_ns = time.monotonic_ns if controls is None else clock.monotonic_ns
        decisions = Decisions(settings.int("entryCacheDecisionsKept"), now_ns)
        self.recorder = _recorder(settings, version, decisions, self.loop_watch)
        self.cache = ComposedCache(EntryCacheSettings.of(settings), decisions)
        interval_s = _pass_interval_s(settings)
        self._cache_passes = CachePasses(self.cache, turn, self._timers, interval_s, clock.monotonic_ns)
        self.environment = ManagedLedgerEnvironment(
            metadata=metadata,
            ledgers=ledgers,
            ids=ids or LedgerIds(metadata),
            caches=self.cache.manager,
            turn=turn,
            now_ns=clock.monotonic_ns,
            wall_ms=clock.wall_ms,
            reads_limiter=reads_limiter(settings),
            open_tier=LateTier(settings, metadata),
            interceptors=interceptors_of(settings),
        )
        self.namespaces = Namespaces(metadata, settings.str("clusterName"))
        self._ownership = ownership_of(self, self._timers, self._tasks)
        self.registry = self._topic_registry(clock.later())
        self.deletions = Deletions(self.environment, self.registry)
        self.partitioned = PartitionedTopics(self.registry, self.deletions)
        self._ledger_upkeep = LedgerUpkeep(self.registry, self.environment, self._tasks)
        self._inactive_topics = InactiveTopicRounds(self.registry, self.deletions, clock.monotonic_ns, kept)
        self._dormancy = Dormancy(self.registry, self._inactive_topics, kept)
        self.authenticator, self._start_name = authenticator, start_name or partial(counted_name, metadata)
        self.authorizer = Authorizer(AuthorizationSettings.of(settings), self.namespaces)
        self.audit, self.last_audit = AuditTrail(clock.monotonic_ns), LastAudit()
        self.net = self._connections(turn)
        self._servers: list[asyncio.Server | TlsListener] = []
        self._admin_port = AdminPort()
        self._health_port: HealthPort | None = None
        self._websockets: WebSocketContext | None = None

    @property
    def coordinators(self) -> Coordinators | None:
        """The transaction coordinators; None with `transactionCoordinatorEnabled=false`."""
        return self.net.coordinators

    def _connections(self, turn: Turn) -> ConnectionContext:
        if self.settings.bool("authenticationEnabled") != (self.authenticator is not None):
            # Without this a caller that forgets the authenticator would open the broker to everyone.
            raise ValueError("authenticationEnabled and the authenticator do not go together")
        self.namespaces.rights_changed = self._end_withdrawn
        return ConnectionContext(
            registry=self.registry,
            partitioned=self.partitioned,
            metadata=self.environment.metadata,
            settings=NetSettings.of(self.settings),
            turn=turn,
            call_later=asyncio.get_running_loop().call_later,
            spawn=self._tasks.spawn,
            wall_ms=self._clock.wall_ms,
            now_ns=self._clock.monotonic_ns,
            due_later=self._clock.later(),
            authorizer=self.authorizer,
            audit=self.audit,
            authenticator=self.authenticator,
            server_version=f"Magnetar {self.version}",
        )

    def _topic_registry(self, call_later: CallLater) -> TopicRegistry:
        registry = TopicRegistry(
            self.environment,
            ManagedLedgerSettings.of(self.settings),
            ServiceSettings.of(self.settings),
            self.namespaces,
            ownership=self._ownership,
            call_later=call_later,
            compactor=Compactor(start_worker),
        )
        if self.controls is not None:
            self.controls.unloads(registry, self._tasks.spawn)
        return serve(registry)

    # Start

    async def start(self) -> Addresses:
        """Opens all ports; clients can work as soon as it returns. Raises OSError when a port is in use."""
        # First, because all that follows uses settings. A change of an earlier broker lifetime holds again.
        await self.dynamic_settings.open()
        await self.environment.ledgers.racks.open()
        if self.recorder is not None:
            self.recorder.open()
        await self.namespaces.open()
        await self.registry.partitions.open()
        await self.registry.resource_groups.open()
        await self.registry.schemas.registry.open()
        # Before the ports: no client may use a topic whose deletion was decided.
        await self.deletions.open()
        await self.namespaces.stored.of_topics.take_over()
        self.net.producer_names.prefix = f"{self.settings.str('clusterName')}-{await self._start_name()}"
        # Before the ports: topics ask the coordinators how far a transaction is.
        if self.registry.settings.transactions:
            # Late: most brokers have no transactions.
            from broker.compose.coordinators import open_coordinators

            self.net.coordinators = await open_coordinators(
                self.registry, self.settings, self._timers, self._tasks
            )
        await self._open_ports()
        if self.environment.metadata.is_shared and self.authorizer.enabled:
            ConfirmedRights(
                # `superUserRoles` is a dynamic setting.
                (self.dynamic_settings.read_again, self.namespaces.stored.read_rights_again),
                self._end_withdrawn,
                now_ns=self._clock.monotonic_ns,
                spawn=self._tasks.spawn,
            ).start(self.authorizer, self._timers)
        self.loop_watch.start()
        self._cache_passes.start()
        self._ledger_upkeep.start(
            self._timers,
            trim_interval_s=self.settings.int("retentionCheckIntervalInSeconds"),
            snapshot_interval_s=self.settings.int("brokerDeduplicationSnapshotFrequencyInSeconds"),
            compaction_interval_s=self.settings.int("brokerServiceCompactionMonitorIntervalInSeconds"),
        )
        self._timers.every(INACTIVE_INTERVAL_S, self._look_for_inactive_topics)
        self._resume_deletions()
        self._timers.every(DELETIONS_INTERVAL_S, self._resume_deletions)
        begin_shared_work(self.registry, self._timers, self._tasks)
        start_backlog_rounds(self.registry, self._dormancy, self._timers, self._tasks)
        self._publish_counts()
        return self.addresses

    async def start_admin(self) -> None:
        """Begins to answer at the admin port, and to count for metrics and console. To be called after `start`."""
        # Only now: clients need none of it, so it must not lengthen the start.
        from foundation.loop.late_imports import import_late

        await import_late("broker.compose.metrics_source", "broker.compose.console")
        from broker.compose.console import Console
        from broker.compose.metrics_source import scraper_of, tell_load

        scraper = scraper_of(self)
        await tell_load(self, scraper)
        topics, dormant, clients = self.registry.topics, self.registry.dormant, self.net.connections
        console = Console(self.environment, topics, dormant, self.cache, clients, self.loop_watch)
        if self.settings.bool("webSocketServiceEnabled"):
            self._websockets = self._websocket_context()
        self._admin_port.serve(
            *(self, scraper, console, self._websockets, self._test_routes, self._tasks),
            at_once=self.registry.ownership.is_shared,
        )
        self._tasks.spawn(console.run(), "console")
        topics_s = self.settings.int("statsUpdateFrequencyInSecs")
        broker_s = self.settings.int("managedLedgerStatsPeriodSeconds")
        self._tasks.spawn(scraper.run_windows(topics_s, broker_s), "metrics windows")

    def _test_routes(self) -> list[RouteDef]:
        if self.controls is None:
            return []
        from broker.faults.routes import ControlRoutes

        return ControlRoutes(self.controls, self._settling).routes()

    def _settling(self) -> Callable[[], Awaitable[None]]:
        return partial(self._tasks.settle, self._tasks.running, SETTLE_S)

    def _websocket_context(self) -> WebSocketContext:
        # Imported with the admin port, which has the sessions.
        from broker.websocket.context import WebSocketContext
        from broker.websocket.settings import WebSocketSettings

        net = self.net
        return WebSocketContext(
            registry=self.registry,
            partitioned=self.partitioned,
            settings=WebSocketSettings.of(self.settings),
            publish_buffer=net.publish_buffer,
            producer_name=net.producer_names.next,
            authorizer=self.authorizer,
            audit=self.audit,
            call_later=net.call_later,
            due_later=net.due_later,
            spawn=net.spawn,
            wall_ms=net.wall_ms,
        )

    async def _open_ports(self) -> None:
        settings = self.settings
        bind_address = settings.str("bindAddress")
        host = settings.str("advertisedAddress")
        urls = dict.fromkeys(("service_url", "service_url_tls", "admin_url", "admin_url_tls"), "")
        if (wanted := settings.optional_int("brokerServicePort")) is not None:
            server, port = await listen(self.net, bind_address, wanted, self._around)
            self._servers.append(server)
            urls["service_url"] = f"pulsar://{host}:{port}"
        # No await from here on: no client may be served before the broker knows its own addresses.
        if (wanted := settings.optional_int("brokerServicePortTls")) is not None:
            listener = listen_tls(self.net, bind_address, wanted, data_certificates(settings), self._around)
            self._servers.append(listener)
            urls["service_url_tls"] = f"pulsar+ssl://{host}:{listener.port}"
        if (wanted := settings.optional_int("webServicePort")) is not None:
            urls["admin_url"] = f"http://{host}:{self._admin_port.bind(bind_address, wanted)}"
        if (wanted := settings.optional_int("webServicePortTls")) is not None:
            port = self._admin_port.bind_tls(bind_address, wanted, web_certificates(settings))
            urls["admin_url_tls"] = f"https://{host}:{port}"
        if (health_port := settings.int("magnetarHealthPort")) >= 0:
            # Imported for this setting alone: http.server takes as long as a room of the broker.
            from broker.compose.health_port import HealthPort

            self._health_port = HealthPort(self.loop_watch)
            self._health_port.open(bind_address, health_port)
        self.addresses = Addresses(**urls, listeners=listeners_of(settings))
        await self._ownership.open(self.addresses)

    @property
    def _around(self) -> Callable[[ServerCnx], asyncio.BufferedProtocol] | None:
        return None if self.controls is None else self.controls.around

    def _look_for_inactive_topics(self) -> None:
        if self._inactive_topics.due:
            self._tasks.spawn(self._inactive_topics.look(), "unused topics")

    def _resume_deletions(self) -> None:
        # Every time: the deletions may be those of another broker.
        self._tasks.spawn(self.deletions.resume(), "deletions")

    def _publish_counts(self) -> None:
        """Begins to publish the cache's counts, if a topic for them is set."""
        topic = self.settings.str("entryCacheCountsTopic")
        if not topic:
            return
        interval_s = self.settings.int("entryCacheCountsIntervalSeconds")
        counts = CacheCounts(
            self.registry,
            parse_topic_name(topic),
            self.settings.str("advertisedAddress"),
            interval_s,
            spawn=self._tasks.spawn,
            wall_ms=self._clock.wall_ms,
            publish_elsewhere=publisher_elsewhere(self.registry),
        )
        self._timers.every(interval_s, counts.tick)

    # Run time

    def reconfigure(self, settings: Settings) -> None:
        """Gives every room its values again: all that happens when a setting changes at run time."""
        self.settings = settings
        self.cache.decisions.keep(settings.int("entryCacheDecisionsKept"))
        self.cache.manager.reconfigure(EntryCacheSettings.of(settings))
        self._cache_passes.interval_s = _pass_interval_s(settings)
        self.registry.reconfigure(ManagedLedgerSettings.of(settings), ServiceSettings.of(settings))
        self.net.reconfigure(NetSettings.of(settings))
        self.authorizer.reconfigure(AuthorizationSettings.of(settings))
        self._end_withdrawn()

    def _end_withdrawn(self) -> None:
        """Closes what clients have open without the right to it, after a change of rights."""
        if self.authorizer.enabled:
            self._tasks.spawn(end_withdrawn(self.net), "withdrawn rights")
            if self._websockets is not None:
                self._tasks.spawn(self._websockets.end_withdrawn(), "withdrawn rights of WebSockets")

    # Stop

    async def stop(self) -> None:
        """Stores everything that was confirmed or acknowledged, so that the next start has nothing to recover."""
        started = time.monotonic()
        self._timers.stop()
        self.loop_watch.stop()
        for server in self._servers:
            server.close()
        if self.net.coordinators is not None:
            # Before the topics: an end that goes on would find them closed. The next start goes on with it.
            await self.net.coordinators.close()
        # Topics before connections: a topic's last receipts and acknowledgements still go through them.
        await self.deletions.close()
        await self._ownership.leave()
        await self.registry.close()
        # Over a copy: a connection that closes removes itself.
        for connection in list(self.net.connections):
            connection.close("the broker stops")
        await self._admin_port.close()
        await self._ownership.at_end()
        # In a thread, because it waits for the port's own thread. Late: a stop is alive, too.
        if self._health_port is not None:
            await asyncio.to_thread(self._health_port.close)
        await self.net.partition_shares.stored.flush()
        await self._tasks.close()
        if self.authenticator is not None:
            self.authenticator.close()
        if self.recorder is not None:
            # In a thread, because it joins its own writer thread. After the topics: their last evictions belong to it.
            await asyncio.to_thread(self.recorder.close, totals_of(self.cache))
        await self.environment.ledgers.close()
        for followed in (self.dynamic_settings, self.registry.resource_groups, self.namespaces.stored):
            await followed.close()
        await self.environment.metadata.close()
        log.info("stopped in %.2f s", time.monotonic() - started)


def _own_topics(settings: Settings) -> frozenset[str]:
    """Returns the topics that the broker publishes to; without a subscriber they would count as unused."""
    topic = settings.str("entryCacheCountsTopic")
    return frozenset((str(parse_topic_name(topic)),)) if topic else frozenset()


def _pass_interval_s(settings: Settings) -> float:
    return settings.int("managedLedgerCacheEvictionIntervalMs") / 1000


def _recorder(
    settings: Settings, version: str, decisions: Decisions, loop_watch: LoopWatch
) -> Recorder | None:
    """Makes the recorder; it listens from the first event on, so that the record is complete."""
    recorded = record_settings(settings)
    if recorded is None:
        return None
    # Late: without a folder for the record no start needs it.
    from broker.recorder.recorder import Recorder

    recorder = Recorder(recorded, version, lambda: loop_watch.late_us)
    decisions.listen(recorder.record)
    return recorder
