"""BrokerService: builds the rooms, starts them from the ground up, stops them from the top down.

Start: what was set at run time before, namespaces, topics' ground, both ports open, and only then the admin server
behind the second one: a request that comes early waits in the port's queue while aiohttp is imported. Stop: no new
connections, topics closed (acknowledgements and positions written), clients disconnected, admin, ledgers, metadata.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

from broker.compose.background_tasks import BackgroundTasks
from broker.compose.cache_counts import CacheCounts
from broker.compose.dynamic_settings import DynamicSettings
from broker.compose.metrics_source import scraper_of
from broker.compose.room_settings import reads_limiter, record_settings
from broker.entry_cache.compose import ComposedCache
from broker.entry_cache.eviction import VISITS_PER_SLICE
from broker.entry_cache.observe.decisions import Decisions
from broker.entry_cache.observe.totals import totals_of
from broker.entry_cache.settings import EntryCacheSettings
from broker.ledger_client.ledger_ids import LedgerIds, LedgerIdSource
from broker.ledger_client.ledgers import Ledgers
from broker.loop import clock
from broker.loop.turn import Turn
from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.managed_ledger.settings import ManagedLedgerSettings
from broker.metadata.metadata_store import MetadataStore
from broker.model.topic_name import parse_topic_name
from broker.net.connection_context import ConnectionContext
from broker.net.listener import bind, listen
from broker.net.settings import NetSettings
from broker.recorder.recorder import Recorder
from broker.service.namespaces import Namespaces
from broker.service.partitioned_topics import PartitionedTopics
from broker.service.persistent_topic import PersistentTopic
from broker.service.settings import ServiceSettings
from broker.service.topic_ownership import SingleBroker, TopicOwner
from broker.service.topic_registry import TopicRegistry
from settings.settings import Settings

log = logging.getLogger("magnetar")

STARTS_KEY = "/counters/broker-starts"
IDLE_CACHE_LOOK_S = 0.1
"""How often an empty cache is looked at: nothing in it can expire sooner than a time threshold later."""
FLUSH_CURSORS_S = 0.2
ROLL_CHECK_S = 30.0
BACKLOG_CHECK_S = 60.0


@dataclass(frozen=True, slots=True)
class Addresses:
    service_url: str
    admin_url: str


class Admin(Protocol):
    port: int

    async def close(self) -> None: ...


class BrokerService:
    def __init__(
        self,
        settings: Settings,
        *,
        metadata: MetadataStore,
        ledgers: Ledgers,
        turn: Turn,
        version: str,
        ids: LedgerIdSource | None = None,
    ) -> None:
        """`ids`: None = those that the metadata store counts."""
        self.settings = settings
        self.dynamic_settings = DynamicSettings(settings, metadata, self.reconfigure)
        self.metadata = metadata
        self.ledgers = ledgers
        self.turn = turn
        self.version = version
        self.started_ms = clock.wall_ms()
        self.tasks = BackgroundTasks()
        # The bare clock, at half the price: where a time decides something, the event gets it from who decided.
        self.decisions = Decisions(settings.int("entryCacheDecisionsKept"), time.monotonic_ns)
        self.recorder = _recorder(settings, version, self.decisions)
        self.cache = ComposedCache(EntryCacheSettings.of(settings), self.decisions)
        self.environment = ManagedLedgerEnvironment(
            metadata=metadata,
            ledgers=ledgers,
            ids=ids or LedgerIds(metadata),
            caches=self.cache.manager,
            turn=turn,
            now_ns=clock.monotonic_ns,
            wall_ms=clock.wall_ms,
            reads_limiter=reads_limiter(settings),
        )
        self.namespaces = Namespaces(metadata, settings.str("clusterName"))
        self.ownership = SingleBroker()
        self._loop = asyncio.get_running_loop()
        self.registry = TopicRegistry(
            self.environment,
            ManagedLedgerSettings.of(settings),
            ServiceSettings.of(settings),
            self.namespaces,
            ownership=self.ownership,
            call_later=self._loop.call_later,
        )
        self.partitioned = PartitionedTopics(self.registry)
        self.net = ConnectionContext(
            registry=self.registry,
            partitioned=self.partitioned,
            settings=NetSettings.of(settings),
            turn=turn,
            call_later=self._loop.call_later,
            spawn=self.tasks.spawn,
            wall_ms=clock.wall_ms,
            server_version=f"Magnetar {version}",
        )
        self.addresses = Addresses("", "")
        self._server: asyncio.Server | None = None
        self._web_socket: socket.socket | None = None
        self._admin: Admin | None = None
        self._stopping = False

    # Start

    async def start(self) -> Addresses:
        await self.dynamic_settings.open()
        if self.recorder is not None:
            self.recorder.open()
        await self.namespaces.open()
        self.net.producer_names.prefix = f"{self.settings.str('clusterName')}-{await self._count_start()}"
        self._server, port = await listen(
            self.net, self.settings.str("bindAddress"), self.settings.int("brokerServicePort")
        )
        self._web_socket = bind(self.settings.str("bindAddress"), self.settings.int("webServicePort"))
        host = self.settings.str("advertisedAddress")
        admin_url = f"http://{host}:{self._web_socket.getsockname()[1]}"
        self.addresses = Addresses(f"pulsar://{host}:{port}", admin_url)
        self.ownership.owner = TopicOwner(self.addresses.service_url, admin_url, _listeners(self.settings))
        self.cache.manager.eviction.on_size_check = lambda: self.turn.write(self._check_cache_size)
        self._look_after_cache()
        self._every(FLUSH_CURSORS_S, self._look_after_ledgers)
        self._every(self.settings.int("retentionCheckIntervalInSeconds"), self._trim_ledgers)
        self._every(ROLL_CHECK_S, self._roll_ledgers)
        self._every(BACKLOG_CHECK_S, self._check_backlogs)
        self._publish_counts(self.settings.str("entryCacheCountsTopic"), host)
        return self.addresses

    async def start_admin(self) -> None:
        """After the data port listens. aiohttp takes longer to import than all the rest, so a thread does that."""
        assert self._web_socket is not None
        server = await asyncio.to_thread(import_module, "broker.admin.server")
        http = await asyncio.to_thread(import_module, "broker.metrics.http")
        scraper = scraper_of(self)
        self._admin = await server.start_admin(
            self, self._web_socket, http.metrics_routes(scraper), scraper.window_of
        )
        self.tasks.spawn(
            scraper.run_windows(
                self.settings.int("statsUpdateFrequencyInSecs"),
                self.settings.int("managedLedgerStatsPeriodSeconds"),
            ),
            "metrics windows",
        )

    def reconfigure(self, settings: Settings) -> None:
        """Hand every room its values anew: all that a setting does when it changes at run time."""
        self.settings = settings
        self.decisions.keep(settings.int("entryCacheDecisionsKept"))
        self.cache.manager.reconfigure(EntryCacheSettings.of(settings))
        self.registry.reconfigure(ManagedLedgerSettings.of(settings), ServiceSettings.of(settings))
        self.net.reconfigure(NetSettings.of(settings))

    async def _count_start(self) -> int:
        """How often a broker has started on this metadata: part of the producer names that it makes up."""
        found = await self.metadata.get(STARTS_KEY)
        count = int(found.value) if found else 0
        await self.metadata.put(STARTS_KEY, b"%d" % (count + 1))
        return count

    # What happens now and then

    def _every(self, seconds: float, action: Callable[[], object]) -> None:
        def again() -> None:
            if not self._stopping:
                action()
                self._loop.call_later(seconds, again)

        self._loop.call_later(seconds, again)

    def _look_after_cache(self) -> None:
        """The periodic pass (PIP-430), in slices that leave the loop free for the sockets in between."""
        if self._stopping:
            return
        delay = self.settings.int("managedLedgerCacheEvictionIntervalMs") / 1000
        try:
            if not self.cache.manager.policy:
                delay = IDLE_CACHE_LOOK_S
            elif self._run_slice("periodic", self.cache.tick, clock.monotonic_ns()):
                delay = 0.0
        finally:  # A defect in one pass must not be the last of all passes.
            self._loop.call_later(delay, self._look_after_cache)

    def _check_cache_size(self, now_ns: int) -> None:
        """What an insert asked for, a slice per turn and at its end: the dispatchers read first."""
        if self._run_slice("insert", self.cache.run_pending, now_ns):
            self._loop.call_soon(self.turn.write, self._check_cache_size)

    def _run_slice(self, trigger: str, slice_of: Callable[[int, int], bool], now_ns: int) -> bool:
        began_ns = time.perf_counter_ns()
        more = slice_of(now_ns, VISITS_PER_SLICE)
        self.cache.eviction_stats.slices[trigger].add(time.perf_counter_ns() - began_ns)
        return more

    def _publish_counts(self, topic: str, host: str) -> None:
        if not topic:
            return
        interval_s = self.settings.int("entryCacheCountsIntervalSeconds")
        counts = CacheCounts(
            self.registry,
            parse_topic_name(topic),
            host,
            interval_s,
            spawn=self.tasks.spawn,
            wall_ms=clock.wall_ms,
        )
        self._every(interval_s, counts.tick)

    def _look_after_ledgers(self) -> None:
        """Store cursors that are due; fail reads that wait too long for permits or for storage."""
        now_ns = clock.monotonic_ns()
        self.environment.unsaved_cursors.write_due(now_ns)
        self.environment.reads_limiter.expire_due(now_ns)
        self.environment.read_deadlines.fire_due(now_ns)

    def _roll_ledgers(self) -> None:
        now_ns = clock.monotonic_ns()
        for topic in self.registry.topics.values():
            if isinstance(topic, PersistentTopic):
                topic.ledger.writer.roll_if_due(now_ns)

    def _check_backlogs(self) -> None:
        for topic in self.registry.topics.values():
            if isinstance(topic, PersistentTopic):
                topic.ledger.cursors.check_backlogs()

    def _trim_ledgers(self) -> None:
        for topic in self.registry.topics.values():
            if isinstance(topic, PersistentTopic):
                topic.ledger.trimming.trim(clock.wall_ms(), without_cursors=True)

    # Stop

    async def stop(self) -> None:
        """Drain: nothing that was confirmed or acknowledged is lost, and the next start has nothing to recover."""
        self._stopping = True
        started = time.monotonic()
        if self._server is not None:
            self._server.close()
        await self.registry.close()
        for cnx in list(self.net.connections):
            cnx.close("the broker stops")
        if self._admin is not None:
            await self._admin.close()
        await self.tasks.close()
        if self.recorder is not None:
            await asyncio.to_thread(self.recorder.close, totals_of(self.cache))
        await self.ledgers.close()
        await self.metadata.close()
        log.info("stopped in %.2f s", time.monotonic() - started)


def _recorder(settings: Settings, version: str, decisions: Decisions) -> Recorder | None:
    """Listens before anything happens in the cache, so that the record is complete. None where nothing is recorded."""
    recorded = record_settings(settings)
    if recorded is None:
        return None
    recorder = Recorder(recorded, version)
    decisions.listen(recorder.record)
    return recorder


def _listeners(settings: Settings) -> dict[str, str]:
    """`name:pulsar://host:port` texts by name."""
    pairs = [text.partition(":") for text in settings.list("advertisedListeners")]
    return {name.strip(): url.strip() for name, _, url in pairs}
