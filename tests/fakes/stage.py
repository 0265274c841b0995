"""Stage: the service on a memory ledger and a memory metadata store, with a clock and a loop that tests turn by hand.

Law of the place: no call waits or sleeps; `settle` runs all requested work until none is left.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

from bookkeeper.client.memory import MemoryLedgerClient
from bookkeeper.ensembles.ledger_ids import LedgerIds
from bookkeeper.metadata.metadata_store import MetadataStore
from broker.compaction.passes import PassesSettings
from broker.compose.cache_settings import EntryCacheSettings
from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.managed_ledger.inflight_reads_limiter import InflightReadsLimiter
from broker.managed_ledger.settings import ManagedLedgerSettings
from broker.service.compaction.topic_compaction import Compactor
from broker.service.consumer import Consumer, KeySharedMeta, SubscribeOptions, SubscriptionType
from broker.service.lifecycle.deletion.deletions import Deletions
from broker.service.lifecycle.partitioned_topics import PartitionedTopics
from broker.service.namespaces.namespaces import Namespaces
from broker.service.producer import AccessMode, Producer
from broker.service.settings import ServiceSettings
from broker.service.subscriptions.subscription import Subscription
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic_ownership import Addresses, TopicOwnership
from broker.service.topics.topic_registry import TopicRegistry
from foundation.loop.turn import Turn
from foundation.model.topic_name import parse_topic_name
from tests.fakes.compaction import InlineWorker
from tests.fakes.ledgers import on_one_bookie
from tests.fakes.messages import SENT_AT_MS, message
from tests.fakes.metadata import FakeMetadata
from tests.fakes.ports import FakeConsumerPort, FakeProducerPort
from tests.fakes.sends import send
from tests.fakes.whole_cache import WholeCache

T = TypeVar("T")
TOPIC = "persistent://public/default/t"
EXCLUSIVE, SHARED = SubscriptionType.EXCLUSIVE, SubscriptionType.SHARED
FAILOVER, KEY_SHARED = SubscriptionType.FAILOVER, SubscriptionType.KEY_SHARED


class Stage:
    def __init__(
        self,
        *,
        cache_bytes: int = 64 << 20,
        entries_per_ledger: int = 50_000,
        reads_budget: int = 0,
        reads_queue: int = 1000,
        ack_ranges_max: int = 10_000,
        bucket_entries: int = 50_000,
        policy: str = "pip430",
        metadata: MetadataStore | None = None,
        before: Stage | None = None,
        **settings: Any,
    ) -> None:
        """`reads_budget`: bytes that may be read and not delivered yet, 0 = any; reads have no timeout.

        `metadata` replaces the store of this stage. `before`: a stage whose ledgers this one goes on with.
        """
        self.now_ns = 1_000_000_000
        self.wall_ms = SENT_AT_MS
        self.soon: deque[Callable[[], None]] = deque() if before is None else before.soon
        self.timers: list[tuple[float, Callable[[], None]]] = []
        """(seconds as asked for, callback); `fire` runs them."""
        self.metadata = FakeMetadata()
        store = metadata or self.metadata
        self.ledgers: MemoryLedgerClient = before.ledgers if before else MemoryLedgerClient(self.soon.append)
        self.turn = Turn(self.soon.append, lambda: self.now_ns)
        self.caches = WholeCache(EntryCacheSettings(cache_bytes, policy=policy))
        self.environment = ManagedLedgerEnvironment(
            metadata=store,
            ledgers=on_one_bookie(store, self.ledgers),
            ids=LedgerIds(store),
            caches=self.caches.manager,
            turn=self.turn,
            now_ns=lambda: self.now_ns,
            wall_ms=lambda: self.wall_ms,
            reads_limiter=InflightReadsLimiter(reads_budget, reads_queue, 0),
        )
        self.namespaces = Namespaces(store, "standalone")
        self.registry = TopicRegistry(
            self.environment,
            ManagedLedgerSettings(
                entries_per_ledger_max=entries_per_ledger,
                rollover_ns_min=0,
                mark_delete_rate=0,
                ack_ranges_max=ack_ranges_max,
                delayed_bucket_entries=bucket_entries,
            ),
            ServiceSettings(**settings),
            self.namespaces,
            ownership=TopicOwnership(Addresses("pulsar://here:1", "http://here:2")),
            call_later=lambda seconds, callback: self.timers.append((seconds, callback)),
            compactor=Compactor(self._start_worker),
        )
        self.deletions = Deletions(self.environment, self.registry)
        self.partitioned = PartitionedTopics(self.registry, self.deletions)
        self.added: dict[tuple[int, int], bytes] = {}
        self._consumer_ids = 0
        self.workers = list[InlineWorker]()  # of the compactions that have begun
        self.workers_break = False  # True: workers from here on fail like one that was killed

    async def _start_worker(self, settings: PassesSettings) -> InlineWorker:
        self.workers.append(InlineWorker(settings))
        self.workers[-1].broken = self.workers_break
        return self.workers[-1]

    async def open(self, name: str = TOPIC) -> PersistentTopic:
        if not self.namespaces.exists("public/default"):
            await self.namespaces.open()
        parsed = parse_topic_name(name)
        if parsed.partition >= 0 and not await self.registry.partitions.count(parsed.base):
            await self.registry.partitions.create(parsed.base, parsed.partition + 1, None)
        return cast("PersistentTopic", await self.run(self.registry.get(parsed, create=True)))

    async def run(self, work: Coroutine[object, object, T] | asyncio.Future[T]) -> T:
        """Turns the loop until the work is done."""
        task = asyncio.ensure_future(work)
        for _ in range(10_000):
            if task.done():
                return task.result()
            while self.soon:
                self.soon.popleft()()
            await asyncio.sleep(0)
        raise AssertionError("it never ends")

    async def settle(self) -> None:
        """Runs all requested work, tasks included; timers stay."""
        idle = 0
        while idle < 8:  # The memory stores answer within fewer turns of the loop.
            idle = 0 if self.soon else idle + 1
            while self.soon:
                self.soon.popleft()()
            await asyncio.sleep(0)

    async def fire(self) -> None:
        """Runs all timers, whatever their time."""
        timers, self.timers = self.timers, []
        for _, callback in timers:
            callback()
        await self.settle()

    async def pass_time(self, ms: int) -> None:
        """Moves both clocks and runs all timers, until none is due any more."""
        self.wall_ms += ms
        self.now_ns += ms * 1_000_000
        for _ in range(100):
            before = len(self.timers)
            await self.fire()
            if not any(seconds == 0 for seconds, _ in self.timers) and len(self.timers) <= before:
                break

    # Clients

    async def producer(
        self,
        topic: PersistentTopic,
        name: str = "p",
        mode: AccessMode = AccessMode.SHARED,
        epoch: int | None = None,
    ) -> Producer:
        producer = Producer(
            topic, FakeProducerPort(), producer_id=0, name=name, access_mode=mode, topic_epoch=epoch
        )
        await topic.add_producer(producer)
        return producer

    async def publish(
        self,
        topic: PersistentTopic,
        count: int = 1,
        *,
        keys: list[str] | None = None,
        batch: int = 0,
        delays_ms: list[int] | None = None,
    ) -> FakeProducerPort:
        """Publishes `count` messages, or one per key, by a producer that leaves afterwards.

        `delays_ms`: of each message, the last one for the rest; 0 = none.
        """
        delays = delays_ms or [0]
        producer = await self.producer(topic, "publisher")
        for number, key in enumerate(keys if keys is not None else [None] * count):
            delay = delays[min(number, len(delays) - 1)]
            at_ms = self.wall_ms + delay if delay else 0
            body = message(b"%d" % number, key=key, batch=batch, at_ms=self.wall_ms, deliver_at_ms=at_ms)
            send(producer, number, body, max(1, batch), delayed=bool(delay))
        await self.settle()
        await topic.remove_producer(producer)
        return port_of(producer)

    async def consume(
        self,
        topic: PersistentTopic,
        kind: SubscriptionType = SHARED,
        *,
        permits: int = 0,
        subscription: str = "s",
        name: str = "",
        port: FakeConsumerPort | None = None,
        ranges: tuple[tuple[int, int], ...] = (),
        **options: Any,
    ) -> tuple[Subscription, Consumer, FakeConsumerPort]:
        self._consumer_ids += 1
        port = port or FakeConsumerPort()
        options.setdefault("earliest", True)
        asked = SubscribeOptions(
            subscription=subscription,
            kind=kind,
            consumer_id=options.pop("consumer_id", self._consumer_ids),
            consumer_name=name or f"c{self._consumer_ids}",
            key_shared=KeySharedMeta(sticky=bool(ranges), ranges=ranges),
            **options,
        )
        found, consumer = await self.run(topic.subscribe(port, asked))
        if permits:
            found.flow(consumer, permits)
            await self.settle()
        return found, consumer, port


def port_of(producer: Producer) -> FakeProducerPort:
    assert isinstance(producer.port, FakeProducerPort)
    return producer.port
