"""A broker's rooms on the simulation's store and bookies, without ports: topics, deletions, expiry, trimming."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING

from bookkeeper.ensembles.ledger_ids import LedgerIds
from broker.compaction.passes import PassesSettings
from broker.compose.cache_settings import EntryCacheSettings
from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.managed_ledger.settings import ManagedLedgerSettings
from broker.offload.ledger_tier import LedgerTier
from broker.service.compaction.topic_compaction import Compactor
from broker.service.lifecycle.deletion.deletions import Deletions
from broker.service.lifecycle.dormancy import Dormancy
from broker.service.lifecycle.dormant_filling import DormantFilling
from broker.service.lifecycle.hole_rounds import HoleRounds
from broker.service.lifecycle.inactive_topics import InactiveTopicRounds
from broker.service.lifecycle.partitioned_topics import PartitionedTopics
from broker.service.lifecycle.rounds import TopicRounds
from broker.service.namespaces.namespaces import Namespaces
from broker.service.settings import ServiceSettings
from broker.service.topics.dormant_topic import NOT_KNOWN
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic_ownership import Addresses, TopicOwnership
from broker.service.topics.topic_registry import TopicRegistry
from entry_cache.compose import ComposedCache
from foundation.loop.turn import Turn
from foundation.model.errors import BrokerError
from tests.fakes.compaction import InlineWorker
from tests.sim.dozing import may_sleep
from tests.sim.lives.life import KINDS
from tests.sim.lives.objects import SimObjects
from tests.sim.metadata import SimMetadataStore
from tests.sim.network import Client

if TYPE_CHECKING:
    from tests.sim.lives.history import History

ENTRIES_PER_LEDGER = 5
DUE_S, EXPIRY_S, TRIM_S, RESUME_S, COMPACT_S = 0.2, 4.0, 3.0, 6.0, 5.0
DORMANCY_S, DOZE_S, HOLES_S = 1.0, 2.5, 1.0
"""Seconds between two rounds; a real broker's are longer."""


class SimBroker:
    """One process of the broker. Once it has crashed, none of its requests arrives any more."""

    def __init__(self, history: History, number: int) -> None:
        self.client = Client(f"broker-{number}")
        self._history = history
        loop = history.loop
        store = SimMetadataStore(history.state, self.client)
        tier = LedgerTier(store, 1, lambda _: SimObjects(history.objects, self.client))
        self.environment = ManagedLedgerEnvironment(
            metadata=store,
            ledgers=history.ledgers_of(self.client),
            ids=LedgerIds(store),
            caches=ComposedCache(EntryCacheSettings(1 << 20, policy="pip430")).manager,
            turn=Turn(loop.call_soon, loop.now_ns),
            now_ns=loop.now_ns,
            wall_ms=history.clock.now_ms,
            open_tier=lambda: tier,
        )
        self.namespaces = Namespaces(store, "standalone")
        self.registry = TopicRegistry(
            self.environment,
            ManagedLedgerSettings(
                entries_per_ledger_max=ENTRIES_PER_LEDGER, rollover_ns_min=0, mark_delete_rate=1
            ),
            ServiceSettings(
                force_delete_namespaces=True,
                delete_inactive=False,
                dormant_after_s=2,
                ttl_interval_min=0,
                hole_period_s=5,
                hole_pending_s=10,
                trim_interval_s=1,
            ),
            self.namespaces,
            ownership=TopicOwnership(Addresses("pulsar://here:1", "http://here:2")),
            call_later=loop.call_later,
            compactor=Compactor(_start_worker),
        )
        self.deletions = Deletions(self.environment, self.registry)
        self.partitioned = PartitionedTopics(self.registry, self.deletions)
        self._dormancy = Dormancy(
            self.registry, InactiveTopicRounds(self.registry, self.deletions, loop.now_ns)
        )
        self._filling = DormantFilling(self.registry, self._dormancy)
        self._holes = HoleRounds(self.registry, loop.now_ns)
        # Its own: the other histories' draws stay as they were.
        self._dozing = random.Random(f"{history.seed} {number}")
        self.tasks: list[asyncio.Task[None]] = []
        """Of its rounds and of its clients; all end with it."""

    async def close(self) -> None:
        await self.deletions.close()
        await self.registry.close()

    @property
    def resumed(self) -> int:
        return self.deletions.resumed

    async def start(self) -> None:
        """Raises BrokerError where the store fails; the process ends then."""
        await self.namespaces.open()
        await self.deletions.open()
        expiry = TopicRounds(self.registry, "expiry", self._expire)
        self.spawn(self._every(DUE_S, self._run_due), "due")
        self.spawn(self._every(EXPIRY_S, expiry.run), "expiry")
        self.spawn(self._every(TRIM_S, self._trim), "trimming")
        self.spawn(self._every(COMPACT_S, self._compact), "compaction")
        self.spawn(self._every(DORMANCY_S, self._dormancy.run), "dormant topics")
        self.spawn(self._every(DORMANCY_S, self._filling.run, at_once=True), "records")
        self.spawn(self._every(DOZE_S, self._doze), "falling asleep")
        self.spawn(self._every(HOLES_S, self._fill_holes), "holes")
        self.spawn(self._every(RESUME_S, self.deletions.resume, at_once=True), "deletions")

    def spawn(self, work: Coroutine[object, object, None], name: str) -> None:
        """Runs it as long as this broker lives."""
        self.tasks.append(self._history.loop.create_task(work, name=f"{self.client.name} {name}"))

    def crash(self) -> None:
        self.client.crashed = True
        for task in self.tasks:
            task.cancel()

    async def _every(
        self, interval_s: float, work: Callable[[], Awaitable[None]], *, at_once: bool = False
    ) -> None:
        if not at_once:
            await asyncio.sleep(interval_s)
        while True:
            try:
                await work()
            except BrokerError as error:
                self._history.note(f"{self.client.name}: {error}")
            await asyncio.sleep(interval_s)

    async def _run_due(self) -> None:
        now_ns = self.environment.now_ns()
        self.environment.unsaved_cursors.write_due(now_ns)
        self.environment.read_deadlines.fire_due(now_ns)

    async def _expire(self, topic: PersistentTopic) -> None:
        subscriptions = list(topic.subscriptions.values())
        before = sum(one.expired.total for one in subscriptions)
        await topic.expiry.look()
        self._history.counts.expired += sum(one.expired.total for one in subscriptions) - before

    async def _trim(self) -> None:
        for topic in list(self.registry.topics.values()):
            if isinstance(topic, PersistentTopic) and not topic.closed:
                topic.ledger.check_offloads(self._history.clock.now_ms())
                self._history.counts.trimmed += len(await self.registry.shadows.trim(topic))

    async def _doze(self) -> None:
        """Lets a topic fall asleep at a random moment, also with clients: they come back and wake it."""
        await asyncio.sleep(self._dozing.uniform(0.0, DOZE_S))
        topics = may_sleep(self.registry)
        shadows = [
            topic
            for topic in self.registry.topics.values()
            if isinstance(topic, PersistentTopic) and topic.ledger.source is not None and not topic.closed
        ]
        if shadows and not self._history.is_judged and self._dozing.random() < 0.3:
            await self.registry.unload(self._dozing.choice(shadows).name)
        # The judgement looks at open topics.
        if topics and not self._history.is_judged:
            await self.registry.fall_asleep(self._dozing.choice(topics), NOT_KNOWN)
            self._history.counts.fallen_asleep += 1

    async def _fill_holes(self) -> None:
        """Delivers again what its consumer has for too long; a consumer loses one acknowledgement of twenty."""

        def redelivered() -> int:
            watches = [
                one.holes
                for topic in self.registry.topics.values()
                if isinstance(topic, PersistentTopic)
                for one in topic.subscriptions.values()
            ]
            return sum(watch.pending_redelivered for watch in watches if watch is not None)

        before = redelivered()
        await self._holes.run()
        # A topic that was closed meanwhile takes its count along.
        self._history.counts.holes_redelivered += max(0, redelivered() - before)

    async def _compact(self) -> None:
        """Compacts the topics with keys, one after the other."""
        keyed = {kind.name for kind in KINDS if kind.keys}
        for topic in list(self.registry.topics.values()):
            if isinstance(topic, PersistentTopic) and topic.name.local in keyed and not topic.closed:
                before = topic.compaction.counts.succeeded
                topic.compaction.start()
                await topic.compaction.wait()
                self._history.counts.compacted += topic.compaction.counts.succeeded - before


async def _start_worker(settings: PassesSettings) -> InlineWorker:
    return InlineWorker(settings)
