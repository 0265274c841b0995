"""LoadMeter: the load of one broker and its bundles, for its load report.

A broker has one event loop, so its CPU is measured in percent of one core: one with a whole core to do is full, however many
the machine has. Apache measures the machine; brokers that share one would then all be equally busy.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from typing import Final, NamedTuple

from broker.cluster.balance_settings import BalanceSettings
from broker.cluster.loads import BrokerLoad, BundleLoad, ResourceUse, bundle_load
from broker.cluster.ownership import ClusterOwnership
from broker.cluster.records import LoadReport, member_json
from broker.compose.broker_service import BrokerService
from broker.compose.metrics_source import network_settings
from broker.metrics.network import NetworkSettings, NetworkTraffic, traffic
from broker.metrics.process import memory_limit_bytes, resident_bytes
from broker.numbers.readings import TOPICS
from broker.numbers.windows import TopicWindow
from broker.service.namespaces.bundles import Bundles, bundles_of
from broker.service.topics.topic import Topic
from broker.service.topics.topic_registry import TopicRegistry
from entry_cache.entry_cache_manager import EntryCacheManager
from foundation.value import Json

_rates: Final = TOPICS.picker(
    {
        "rate_in": "pulsar_rate_in",
        "throughput_in": "pulsar_throughput_in",
        "rate_out": "pulsar_rate_out",
        "throughput_out": "pulsar_throughput_out",
    }
)
TOPICS_PER_SLICE: Final = 200
"""Topics between two turns of the loop: about 1 ms."""
REST: Final = 100
"""The bundles are counted again after this many times the time that the last count took: 1 % of a core."""
_MIB: Final = 1 << 20
_BITS_PER_KBIT: Final = 1000 / 8
"""Bytes per kilobit."""
_UNKNOWN_KBITS: Final = -1000.0
"""Apache's limit of a bandwidth that is not known."""


class DormantCount(NamedTuple):
    """Dormant topics of a namespace."""

    change: int
    """The namespace's of `DormantTopics.last_changes` when the count began."""
    bundles: Bundles
    """By which its topics were counted."""
    topics: Counter[str]
    """By name of the bundle."""


def measure_load(broker: BrokerService, window_of: Callable[[str], TopicWindow]) -> None:
    """Lets the broker tell its load, also where nobody balances by it; `window_of` tells the rates of a topic."""
    registry, environment = broker.registry, broker.environment
    meter = LoadMeter(
        registry,
        window_of,
        environment.caches,
        network_settings(broker.settings),
        lambda: BalanceSettings.of(broker.settings).usage_ms,
    )
    ownership, started_ms = registry.ownership, environment.wall_ms()
    if isinstance(ownership, ClusterOwnership):
        ownership.reports.measure = meter.measure
        ownership.load_report = ownership.reports.now
        return

    async def report() -> dict[str, Json]:
        now = LoadReport(environment.wall_ms(), await meter.measure())
        return member_json(ownership.owner, broker.version, started_ms, now)

    ownership.load_report = report


class LoadMeter:
    """Measures when it is asked; rates are those of the topics' last whole window."""

    def __init__(
        self,
        registry: TopicRegistry,
        window_of: Callable[[str], TopicWindow],
        cache: EntryCacheManager,
        network: NetworkSettings,
        usage_ms: Callable[[], int],
    ) -> None:
        """`usage_ms`: the time over which CPU and bandwidth are measured."""
        self._registry = registry
        self._window_of = window_of
        self._cache = cache
        self._network = network
        self._usage_ms = usage_ms
        self._bundles: dict[str, BundleLoad] = {}
        self._dormant: dict[str, DormantCount] = {}
        """By namespace."""
        self._count_due_ns = 0
        self._counting: asyncio.Task[None] | None = None
        self._began = self._sample()
        self._cpu = ResourceUse(0.0, 100.0)
        self._in = self._out = ResourceUse(0.0, _UNKNOWN_KBITS)

    async def measure(self) -> BrokerLoad:
        """Returns the load of now."""
        # Requests that come together share a count.
        if self._counting is None and time.monotonic_ns() >= self._count_due_ns:
            self._counting = asyncio.ensure_future(self._count())
            self._counting.add_done_callback(self._counted)
        if self._counting is not None:
            await asyncio.shield(self._counting)
        self._roll()
        memory = ResourceUse((resident_bytes() or 0) / _MIB, memory_limit_bytes() / _MIB)
        cache = ResourceUse(self._cache.used_bytes / _MIB, self._cache.settings.size_bytes_max / _MIB)
        return BrokerLoad(self._cpu, memory, cache, self._in, self._out, self._bundles)

    def _counted(self, _: asyncio.Task[None]) -> None:
        self._counting = None

    async def _count(self) -> None:
        began_ns = time.monotonic_ns()
        found: dict[str, list[float]] = {}
        for _ in self._slices(found):
            await asyncio.sleep(0)
        self._bundles = {bundle: bundle_load(numbers) for bundle, numbers in found.items()}
        now_ns = time.monotonic_ns()
        self._count_due_ns = now_ns + REST * (now_ns - began_ns)

    def _slices(self, found: dict[str, list[float]]) -> Iterator[None]:
        """Adds all topics to their bundles' sums; yields after each slice of them."""
        registry, known = self._registry, dict[str, Bundles]()
        # Over copies: topics may come and go meanwhile. Names alone are copied: a pair for each of 100,000 topics would
        # start passes of the garbage collector within one turn of the loop.
        for number, name in enumerate([*registry.topics], 1):
            if number % TOPICS_PER_SLICE == 0:
                yield
            topic = registry.topics.get(name)
            if topic is None or topic.closed:
                continue
            if (sums := self._sums(known, found, topic.name.namespace, name)) is not None:
                self._add(sums, name, topic)
        yield from self._dormant_slices(known, found)

    def _dormant_slices(self, known: dict[str, Bundles], found: dict[str, list[float]]) -> Iterator[None]:
        """Adds the dormant topics. Walks over a namespace's only where its last count does not hold any more."""
        dormant, before, self._dormant = self._registry.dormant, self._dormant, {}
        steps = count(1)
        for namespace, change in dormant.last_changes().items():
            if next(steps) % TOPICS_PER_SLICE == 0:
                yield
            if (bundles := self._bundles_of(known, namespace)) is None:
                continue
            counted = before.get(namespace)
            if counted is None or (counted.change, counted.bundles) != (change, bundles):
                topics = Counter[str]()
                for name in dormant.names(namespace):
                    if next(steps) % TOPICS_PER_SLICE == 0:
                        yield
                    topics[f"{namespace}/{bundles.of(name)}"] += 1
                counted = DormantCount(change, bundles, topics)
            self._dormant[namespace] = counted
            for bundle, topics_there in counted.topics.items():
                found.setdefault(bundle, [0.0] * len(BundleLoad._fields))[6] += topics_there

    def _sums(
        self, known: dict[str, Bundles], found: dict[str, list[float]], namespace: str, name: str
    ) -> list[float] | None:
        """Returns the sums of a topic's bundle; None where its namespace is being deleted."""
        if (bundles := self._bundles_of(known, namespace)) is None:
            return None
        return found.setdefault(f"{namespace}/{bundles.of(name)}", [0.0] * len(BundleLoad._fields))

    def _bundles_of(self, known: dict[str, Bundles], namespace: str) -> Bundles | None:
        """Returns the bundles that this count goes by; None where the namespace is being deleted."""
        if namespace not in known:
            if not self._registry.namespaces.exists(namespace):
                return None
            known[namespace] = bundles_of(self._registry.namespaces, namespace)
        return known[namespace]

    def _add(self, sums: list[float], name: str, topic: Topic) -> None:
        for place, rate in enumerate(_rates(self._window_of(name).row).values()):
            sums[place] += rate
        sums[4] += sum(len(one.consumers) for one in topic.subscriptions.values())
        sums[5] += len(topic.access.producers)
        sums[6] += 1

    # The machine

    def _sample(self) -> tuple[int, int, NetworkTraffic]:
        return time.monotonic_ns(), time.process_time_ns(), traffic(self._network)

    def _roll(self) -> None:
        now_ns, cpu_ns, now = self._sample()
        then_ns, cpu_then_ns, then = self._began
        elapsed_ns = now_ns - then_ns
        if elapsed_ns < self._usage_ms() * 1_000_000:
            return
        self._began = now_ns, cpu_ns, now
        self._cpu = ResourceUse(100.0 * (cpu_ns - cpu_then_ns) / elapsed_ns, 100.0)
        seconds = elapsed_ns / 1e9
        limit = now.speed / _BITS_PER_KBIT if now.speed > 0 else _UNKNOWN_KBITS
        # Counters fall when an interface goes away.
        self._in = ResourceUse(max(now.received - then.received, 0) / seconds / _BITS_PER_KBIT, limit)
        self._out = ResourceUse(max(now.sent - then.sent, 0) / seconds / _BITS_PER_KBIT, limit)
