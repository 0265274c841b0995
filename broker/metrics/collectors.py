"""Prints the families of the broker through prometheus-client's registry: cache, connections, latencies, process.

These are some dozens of series whatever the number of topics, so the registry's own exposition is fast enough.
`scraper.py` imports this module with the first scrape: prometheus_client takes 50 ms and more to import, which would
lengthen every start.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import accumulate
from typing import NamedTuple, TypeVar, cast

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from broker.metrics.broker_families import (
    BROKER,
    BROKER_BY,
    CONSTANTS,
    COORDINATORS,
    CURVE,
    HISTOGRAMS,
    JOINED_READS,
    OWNED_BUNDLES,
    QUANTILES,
    QUOTA_CHECKS,
    SUMMARIES,
)
from broker.metrics.broker_reading import BrokerReading, value_at
from broker.metrics.broker_window import BrokerWindow
from broker.metrics.network import NetworkWindow
from broker.metrics.offload_families import OFFLOAD_LATENCIES, OFFLOADS
from broker.metrics.process import CpuWindow, GarbageTimes, memory_limit_bytes, resident_bytes, threads
from broker.numbers.family import Family
from broker.numbers.windows import TopicWindows, quantile, quantile_of
from foundation.model.time_histogram import TimeHistogram
from foundation.units import NS_PER_SECOND

Counted = TypeVar("Counted")


class BrokerCollector(Collector):
    """Collects the families of `broker_families.py` and `offload_families.py` from one reading."""

    def __init__(
        self,
        cluster: str,
        read: Callable[[], BrokerReading],
        window: BrokerWindow,
        topics: TopicWindows,
    ) -> None:
        """`read` is called once for each scrape."""
        self._cluster = cluster
        self._read = read
        self._window = window
        self._topics = topics

    def collect(self) -> Iterable[Metric]:
        """Yields every family; the registry calls it for each scrape."""
        reading = self._read()
        for family in (*BROKER, *JOINED_READS):
            yield self._family(family, {(): cast(float, self._value(family, reading))})
        # Without coordinators the families would have a head and no series.
        of_coordinators = COORDINATORS if reading.coordinators else ()
        for family in (*BROKER_BY, *OFFLOADS, *of_coordinators):
            yield self._labelled(family, self._value(family, reading))
        # Asked for once: each look at a curve computes it anew from all miniatures.
        if curve := reading.curve:
            for family in CURVE:
                yield self._labelled(family, value_at({"curve": curve}, *family.source.split(".")))
        for family in (*HISTOGRAMS, *OFFLOAD_LATENCIES):
            measured = _by_label(cast(Mapping[object, TimeHistogram], self._value(family, reading)))
            yield self._histogram(family, measured)
        yield self._quota_checks(reading.quota_checks)
        yield self._owned_bundles(reading.bundles_owned)
        for family, value in CONSTANTS:
            yield self._family(family, {(): value})
        yield from self._summaries()

    def _value(self, family: Family, reading: BrokerReading) -> object:
        first, *rest = family.source.split(".")
        return value_at(self._window, *rest) if first == "window" else value_at(reading, first, *rest)

    def _labelled(self, family: Family, found: object) -> GaugeMetricFamily | CounterMetricFamily:
        counted = cast(Mapping[object, float], found)
        # Zeros before the first count: Prometheus' rate() misses the first growth of a series that begins at 1.
        values: dict[tuple[str, ...], float] = {(value,): 0 for value in family.values}
        values.update((_label_values(key), count) for key, count in counted.items())
        return self._family(family, values, *family.label.split())

    def _family(
        self, family: Family, values: Mapping[tuple[str, ...], float], *labels: str
    ) -> GaugeMetricFamily | CounterMetricFamily:
        kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
        metric = kind(family.name, family.help, labels=("cluster", *labels))
        for label_values, value in values.items():
            metric.add_metric([self._cluster, *label_values], value)
        return metric

    def _histogram(self, family: Family, measured: Mapping[str, TimeHistogram]) -> Metric:
        metric = HistogramMetricFamily(family.name, family.help, labels=("cluster", family.label))
        for value, histogram in measured.items():
            upper = [*(f"{bound / NS_PER_SECOND:g}" for bound in histogram.bounds_ns), "+Inf"]
            buckets = list(zip(upper, accumulate(histogram.counts), strict=True))
            metric.add_metric([self._cluster, value], buckets, histogram.sum_ns / NS_PER_SECOND)
        return metric

    def _quota_checks(self, histogram: TimeHistogram) -> Metric:
        name, text = QUOTA_CHECKS
        # Pulsar's bounds have a decimal place ("5.0"), and boards compare labels as text.
        upper = [*(str(bound / NS_PER_SECOND) for bound in histogram.bounds_ns), "+Inf"]
        metric = HistogramMetricFamily(name, text, labels=("cluster",))
        buckets = list(zip(upper, accumulate(histogram.counts), strict=True))
        metric.add_metric([self._cluster], buckets, histogram.sum_ns / NS_PER_SECOND)
        return metric

    def _owned_bundles(self, count: int) -> Metric:
        name, cache, text = OWNED_BUNDLES
        metric = GaugeMetricFamily(name, text, labels=("cluster", "cache"))
        metric.add_metric([self._cluster, cache], count)
        return metric

    def _summaries(self) -> Iterator[Metric]:
        (publish, publish_help), (instance, instance_help), (loads, loads_help) = SUMMARIES
        latency = self._topics.write_latency_ms
        quantiles = [quantile(latency, q) for q in QUANTILES]
        count = sum(latency.counts)
        # The same numbers under both names, because stock boards ask for either.
        yield self._summary(publish, publish_help, count, latency.total, quantiles)
        yield self._summary(instance, instance_help, count, latency.total, quantiles)
        times = self._window.topic_loads_ms
        quantiles = [quantile_of(times, q) for q in QUANTILES]
        yield self._summary(loads, loads_help, len(times), sum(times), quantiles)

    def _summary(self, name: str, text: str, count: int, total: float, quantiles: Sequence[float]) -> Metric:
        metric = SummaryMetricFamily(name, text, labels=("cluster",))
        metric.add_metric([self._cluster], count, total)
        # By hand, because the family's own class knows no quantiles.
        for q, value in zip(QUANTILES, quantiles, strict=True):
            metric.add_sample(name, {"cluster": self._cluster, "quantile": str(q)}, value)
        return metric


class MachineWindows(NamedTuple):
    """The last whole windows of processors and network, and the garbage collections since the start."""

    cpu: CpuWindow
    """Of this process."""
    network: NetworkWindow
    """Of the machine."""
    garbage: GarbageTimes
    """Of this process."""


class ProcessBoardCollector(Collector):
    """Collects `jvm_*`, `pulsar_lb_*_usage` and the version, which stock boards need for their variables."""

    def __init__(
        self, cluster: str, version: str, read: Callable[[], BrokerReading], windows: MachineWindows
    ) -> None:
        """`read` is called once for each scrape."""
        self._cluster = cluster
        self._version = version
        self._read = read
        self._windows = windows

    def collect(self) -> Iterator[Metric]:
        """Yields every family; leaves out those that the system cannot tell."""
        yield self._info("pulsar_version_info", "The broker's version.", version=self._version)
        runtime = f"{platform.python_implementation()} {platform.python_version()}"
        yield self._info(
            "jvm_info", "The Python that runs the broker.", runtime=runtime, version=platform.python_version()
        )
        manager = self._read().manager
        used, most = manager.used_bytes, manager.settings.size_bytes_max
        limit = memory_limit_bytes()
        resident = resident_bytes()
        if resident is not None:
            yield self._gauge("jvm_memory_bytes_used", "Resident set.", resident, area="heap")
            yield self._gauge("jvm_memory_bytes_committed", "Resident set.", resident, area="heap")
            yield self._gauge(
                "pulsar_lb_memory_usage", "Resident set in percent of the limit.", 100 * resident / limit
            )
        yield self._gauge("jvm_memory_bytes_max", "Memory limit of process or machine.", limit, area="heap")
        yield self._gauge("jvm_memory_direct_bytes_used", "Entry cache, bytes.", used)
        yield self._gauge("jvm_memory_direct_bytes_max", "Entry cache limit, bytes.", most)
        yield self._gauge(
            "pulsar_lb_directMemory_usage",
            "Entry cache in percent of its limit.",
            100 * used / max(most, 1),  # The limit is 0 when the cache is off.
        )
        yield self._gauge("pulsar_lb_cpu_usage", "Percent of all processors.", self._windows.cpu.percent)
        yield from self._bandwidth()
        yield self._gauge("jvm_threads_current", "Python threads.", threads())
        collections = SummaryMetricFamily(
            "jvm_gc_collection_seconds",
            "Collections of Python's garbage collector.",
            labels=("cluster", "gc"),
        )
        garbage = self._windows.garbage
        for generation, count in enumerate(garbage.collections):
            name = f"generation {generation}"
            collections.add_metric([self._cluster, name], count, garbage.seconds[generation])
        yield collections

    def _bandwidth(self) -> Iterator[Metric]:
        network = self._windows.network
        for direction, percent in (("in", network.in_percent), ("out", network.out_percent)):
            if percent is not None:
                text = "Percent of the network's bandwidth that the machine used in the last window."
                yield self._gauge(f"pulsar_lb_bandwidth_{direction}_usage", text, percent)

    def _info(self, name: str, text: str, **labels: str) -> Metric:
        return self._gauge(name, text, 1, **labels)

    def _gauge(self, name: str, text: str, value: float, **labels: str) -> Metric:
        metric = GaugeMetricFamily(name, text, labels=("cluster", *labels))
        metric.add_metric([self._cluster, *labels.values()], value)
        return metric


class _LabelledProcess(ProcessCollector):
    """Prometheus-client's families of the process, with the label that all series of a broker have."""

    def __init__(self, cluster: str) -> None:
        super().__init__(registry=None)
        self._cluster = cluster

    def collect(self) -> Iterator[Metric]:
        """Yields every family; the registry calls it for each scrape."""
        for metric in super().collect():
            metric.samples = [sample._replace(labels={"cluster": self._cluster}) for sample in metric.samples]
            yield metric


def registry_of(cluster: str, *collectors: Collector) -> CollectorRegistry:
    """Returns a registry of the collectors and of prometheus-client's own for the process.

    The latter prints `process_cpu_seconds_total` and others. A registry of our own, because the library's global one
    would add the Python collectors that no board asks for.
    """
    # auto_describe would call collect() once more at each registration, only to learn the names.
    registry = CollectorRegistry(auto_describe=False)
    for collector in collectors:
        registry.register(collector)
    registry.register(_LabelledProcess(cluster))
    return registry


def _by_label(counted: Mapping[object, Counted]) -> dict[str, Counted]:
    """Returns the mapping with label values as keys: an enum's value stands for its member."""
    return {_label_values(key)[0]: value for key, value in counted.items()}


def _label_values(key: object) -> tuple[str, ...]:
    """Returns the values of the labels: of a tuple each part, of an enum its value."""
    if isinstance(key, tuple):
        return tuple(map(str, key))
    return (str(key.value if isinstance(key, Enum) else key),)
