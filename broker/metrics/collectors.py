"""The broker-level families, for prometheus-client's registry: cache, connections, latencies, process.

Some dozens of series whatever the number of topics, so the registry's own exposition is fast enough. This
module imports prometheus_client, and is itself imported when the first scrape comes, to keep the start short.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import attrgetter

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from broker.metrics.definitions import (
    BROKER,
    BROKER_BY,
    CONSTANTS,
    HISTOGRAMS,
    JOINED_READS,
    QUANTILES,
    SUMMARIES,
    Family,
)
from broker.metrics.process import CpuWindow, GarbageTimes, memory_limit_bytes, resident_bytes, threads
from broker.metrics.snapshot import BrokerStats, CacheStats, Histogram, RecordStats
from broker.metrics.window import BrokerWindow, TopicWindows, quantile, quantile_of


@dataclass(slots=True)
class BrokerSource:
    """Where the sources of the broker's families are found: `now.`, `cache.`, `record.`, `window.`"""

    now: BrokerStats
    cache: CacheStats
    window: BrokerWindow

    @property
    def record(self) -> RecordStats:
        return self.now.record

    @property
    def evicted(self) -> int:
        return sum(self.cache.evictions.values())


class BrokerCollector(Collector):
    def __init__(
        self,
        cluster: str,
        stats: Callable[[], BrokerStats],
        window: BrokerWindow,
        topics: TopicWindows,
    ) -> None:
        self._cluster = cluster
        self._stats = stats
        self._window = window
        self._topics = topics

    def collect(self) -> Iterable[Metric]:
        stats = self._stats()
        source = BrokerSource(stats, stats.cache, self._window)
        for family in BROKER:
            yield self._family(family, {(): attrgetter(family.source)(source)})
        for family in BROKER_BY:
            counted: Mapping[str, int] = attrgetter(family.source)(source)
            values: dict[tuple[str, ...], float] = {
                (value,): counted.get(value, 0) for value in (*family.values, *counted)
            }
            yield self._family(family, values, family.label)
        for family in HISTOGRAMS:
            yield self._histogram(family, attrgetter(family.source)(source))
        for name in JOINED_READS:
            text = "Entries seen by the read coalescer."
            family = Family(f"pulsar_ml_cache_pendingreads_{name}_total", "counter", "", text)
            yield self._family(family, {(): stats.cache.joined_reads.get(name, 0)})
        for family, value in CONSTANTS:
            yield self._family(family, {(): value})
        yield from self._summaries()

    def _family(
        self, family: Family, values: Mapping[tuple[str, ...], float], *labels: str
    ) -> GaugeMetricFamily | CounterMetricFamily:
        kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
        metric = kind(family.name, family.help, labels=("cluster", *labels))
        for label_values, value in values.items():
            metric.add_metric([self._cluster, *label_values], value)
        return metric

    def _histogram(self, family: Family, measured: Mapping[str, Histogram]) -> Metric:
        metric = HistogramMetricFamily(family.name, family.help, labels=("cluster", family.label))
        for value, histogram in measured.items():
            upper = [*(f"{bound:g}" for bound in histogram.bounds), "+Inf"]
            buckets = list(zip(upper, accumulate(histogram.counts), strict=True))
            metric.add_metric([self._cluster, value], buckets, histogram.total)
        return metric

    def _summaries(self) -> Iterator[Metric]:
        (publish, publish_help), (instance, instance_help), (loads, loads_help) = SUMMARIES
        latency = self._topics.write_latency_ms
        quantiles = [quantile(latency, q) for q in QUANTILES]
        count = sum(latency.counts)
        yield self._summary(publish, publish_help, count, latency.total, quantiles)
        yield self._summary(instance, instance_help, count, latency.total, quantiles)
        times = self._window.topic_loads_ms
        quantiles = [quantile_of(times, q) for q in QUANTILES]
        yield self._summary(loads, loads_help, len(times), sum(times), quantiles)

    def _summary(self, name: str, text: str, count: int, total: float, quantiles: Sequence[float]) -> Metric:
        metric = SummaryMetricFamily(name, text, labels=("cluster",))
        metric.add_metric([self._cluster], count, total)
        for q, value in zip(QUANTILES, quantiles, strict=True):
            metric.add_sample(name, {"cluster": self._cluster, "quantile": str(q)}, value)
        return metric


class ProcessBoardCollector(Collector):
    """`jvm_*`, `pulsar_lb_*_usage` and the version, so that the boards' variables find something."""

    def __init__(
        self, cluster: str, version: str, stats: Callable[[], BrokerStats], cpu: CpuWindow, gc: GarbageTimes
    ) -> None:
        self._cluster = cluster
        self._version = version
        self._stats = stats
        self._cpu = cpu
        self._gc = gc

    def collect(self) -> Iterator[Metric]:
        yield self._info("pulsar_version_info", "The broker's version.", version=self._version)
        runtime = f"{platform.python_implementation()} {platform.python_version()}"
        yield self._info(
            "jvm_info", "What runs the broker.", runtime=runtime, version=platform.python_version()
        )
        cache = self._stats().cache
        limit = memory_limit_bytes()
        resident = resident_bytes()
        if resident is not None:
            yield self._gauge("jvm_memory_bytes_used", "Resident set.", resident, area="heap")
            yield self._gauge("jvm_memory_bytes_committed", "Resident set.", resident, area="heap")
            yield self._gauge(
                "pulsar_lb_memory_usage", "Resident set in percent of the limit.", 100 * resident / limit
            )
        yield self._gauge("jvm_memory_bytes_max", "Memory limit of process or machine.", limit, area="heap")
        yield self._gauge("jvm_memory_direct_bytes_used", "Entry cache, bytes.", cache.used_bytes)
        yield self._gauge("jvm_memory_direct_bytes_max", "Entry cache limit, bytes.", cache.max_bytes)
        yield self._gauge(
            "pulsar_lb_directMemory_usage",
            "Entry cache in percent of its limit.",
            100 * cache.used_bytes / max(cache.max_bytes, 1),
        )
        yield self._gauge("pulsar_lb_cpu_usage", "Percent of all processors.", self._cpu.percent)
        yield self._gauge("jvm_threads_current", "Python threads.", threads())
        collections = SummaryMetricFamily(
            "jvm_gc_collection_seconds",
            "Collections of Python's garbage collector.",
            labels=("cluster", "gc"),
        )
        for generation, count in enumerate(self._gc.collections):
            name = f"generation {generation}"
            collections.add_metric([self._cluster, name], count, self._gc.seconds[generation])
        yield collections

    def _info(self, name: str, text: str, **labels: str) -> Metric:
        return self._gauge(name, text, 1, **labels)

    def _gauge(self, name: str, text: str, value: float, **labels: str) -> Metric:
        metric = GaugeMetricFamily(name, text, labels=("cluster", *labels))
        metric.add_metric([self._cluster, *labels.values()], value)
        return metric


def registry_of(*collectors: Collector) -> CollectorRegistry:
    """The collectors and prometheus-client's own for the process (`process_cpu_seconds_total` and others)."""
    registry = CollectorRegistry(auto_describe=False)
    for collector in collectors:
        registry.register(collector)
    ProcessCollector(registry=registry)
    return registry
