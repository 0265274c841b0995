"""The text of all that hangs on topics, written by hand, because it can be tens of thousands of series.

The Prometheus text formats want every family in one piece, the broker has one topic after the other. So
each topic becomes one flat row of numbers, and 64 rows at a time are turned into columns and appended to
the text of their families: a few list comprehensions in place of an object per series (prometheus-client
takes 12 µs a series, this takes 0.3). Written in slices: the generator yields after each 64 topics, about
2 ms, so that a large broker never holds its loop for a scrape. Pure: no clock, no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from heapq import heappush, heapreplace
from operator import attrgetter
from typing import Final, TypeAlias

from broker.metrics.definitions import (
    CACHE_SUBSCRIPTIONS_LEFT_OUT,
    CONSUMER,
    NAMESPACE,
    NAMESPACE_BUCKETS,
    PRODUCER,
    REDELIVER,
    SUBSCRIPTION,
    SUBSCRIPTION_CACHE,
    TOPIC,
    TOPICS_COUNT,
    TOTALS,
    Family,
)
from broker.metrics.snapshot import (
    NO_LATENCIES,
    NO_SIZES,
    ConsumerStats,
    ProducerStats,
    SubscriptionStats,
    TopicStats,
)
from broker.metrics.window import (
    NO_CONSUMER,
    NO_DELIVERIES,
    NO_PRODUCER,
    ConsumerWindow,
    ProducerWindow,
    SubscriptionWindow,
    TopicWindow,
    TopicWindows,
)

Number: TypeAlias = int | float
Row: TypeAlias = tuple[Number, ...]

SLICE_TOPICS: Final = 64
BYTES_PER_CHUNK: Final = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpositionSettings:
    cluster: str
    topic_level: bool = True
    """exposeTopicLevelMetricsInPrometheus; False prints sums per namespace in their place."""
    consumer_level: bool = False
    """exposeConsumerLevelMetricsInPrometheus"""
    producer_level: bool = False
    """exposeProducerLevelMetricsInPrometheus"""
    managed_ledger: bool = True
    """exposeManagedLedgerMetricsInPrometheus"""
    split_partition: bool = False
    """splitTopicAndPartitionLabelInPrometheus: `partition` beside `topic`, "-1" for none."""
    cache_subscriptions_max: int = 100
    """entryCacheSubscriptionMetricsMax"""


class Columns:
    """Turns one pair of snapshot and window into a row, and says which place a source has in it."""

    def __init__(self, now: type, window: type, *extra: str) -> None:
        plain = ("int", "float")
        self._now = [f.name for f in fields(now) if f.type in plain and not f.name.endswith("_id")]
        self._now += [name for name, value in vars(now).items() if isinstance(value, property)]
        self._window = [f.name for f in fields(window) if f.type in plain]
        names = [f"now.{name}" for name in self._now] + [f"window.{name}" for name in self._window]
        self.place = {name: place for place, name in enumerate([*names, *extra])}
        self.of_now: Callable[[object], Row] = _tuple_getter(self._now)
        self.of_window: Callable[[object], Row] = _tuple_getter(self._window)


def _tuple_getter(names: list[str]) -> Callable[[object], Row]:
    return attrgetter(*names)  # attrgetter answers a tuple because every room here has two fields or more.


TOPIC_COLUMNS: Final = Columns(
    TopicStats,
    TopicWindow,
    *(f"window.write_latency.{place}" for place in range(len(NO_LATENCIES))),
    *(f"window.entry_size.{place}" for place in range(len(NO_SIZES))),
    "topics",
)
NOTHING: Final[Row] = (0,) * len(TOPIC_COLUMNS.place)
SUBSCRIPTION_COLUMNS: Final = Columns(SubscriptionStats, SubscriptionWindow)
CONSUMER_COLUMNS: Final = Columns(ConsumerStats, ConsumerWindow)
PRODUCER_COLUMNS: Final = Columns(ProducerStats, ProducerWindow)


class Busiest:
    """The subscriptions that have read most from cache and storage, up to a number, and how many there are more."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._heap: list[tuple[int, str, Row]] = []
        self.left_out = 0

    def offer(self, reads: int, label: str, row: Row) -> None:
        if len(self._heap) < self._count_max:
            heappush(self._heap, (reads, label, row))
            return
        self.left_out += 1
        if self._heap and reads > self._heap[0][0]:
            heapreplace(self._heap, (reads, label, row))

    def labels_and_rows(self) -> tuple[list[str], list[Row]]:
        ordered = sorted(self._heap, reverse=True)
        return [label for _, label, _ in ordered], [row for _, _, row in ordered]


class Block:
    """The growing text of some families that share their rows."""

    def __init__(self, families: Sequence[Family], columns: Columns, zero: str = "") -> None:
        """`zero` = the labels of the series that is printed as 0 whatever there is, for families that ask."""
        self._families = families
        self._places = [columns.place[family.source] for family in families]
        self._parts: list[list[bytes]] = [
            [f"{family.name}{zero} 0\n".encode()] if zero and family.zero else [] for family in families
        ]

    def add(self, labels: Sequence[str], rows: Sequence[Row]) -> None:
        """One line per row and family. `labels[i]`, with its braces, belongs to `rows[i]`."""
        if not rows:
            return
        columns = list(zip(*rows, strict=True))
        for family, place, parts in zip(self._families, self._places, self._parts, strict=True):
            parts.append(_lines(family.name, labels, columns[place]).encode())

    def text(self, openmetrics: bool) -> Iterator[bytes]:
        for family, parts in zip(self._families, self._parts, strict=True):
            if parts:
                yield _head(family, openmetrics)
                yield from parts


def _lines(name: str, labels: Sequence[str], values: Row) -> str:
    first = values[0]
    if values.count(first) == len(values):  # Mostly so: all zero. One join, ten times as fast.
        between = f" {first}\n{name}"
        return f"{name}{between.join(labels)} {first}\n"
    return "".join([f"{name}{label} {value}\n" for label, value in zip(labels, values, strict=True)])


def escape(value: str) -> str:
    """A label value as the text formats want it."""
    if '"' in value or "\\" in value or "\n" in value:
        return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return value


def _head(family: Family, openmetrics: bool) -> bytes:
    name = family.name.removesuffix("_total") if openmetrics and family.kind == "counter" else family.name
    return f"# HELP {name} {family.help}\n# TYPE {name} {family.kind}\n".encode()


class TopicExposition:
    """One scrape's worth of topic, subscription, namespace and broker-total series."""

    def __init__(self, settings: ExpositionSettings, windows: TopicWindows) -> None:
        self._settings = settings
        self._windows = windows
        self._cluster = f'{{cluster="{escape(settings.cluster)}"'
        zero = self._cluster + "}"
        topic = TOPIC if settings.topic_level else tuple(family for family in TOPIC if family.sums)
        self._topics = Block(topic, TOPIC_COLUMNS, zero)
        per_subscription = SUBSCRIPTION if settings.consumer_level else (*SUBSCRIPTION, REDELIVER)
        self._subscriptions = Block(per_subscription, SUBSCRIPTION_COLUMNS)
        self._cache_readers = Block(SUBSCRIPTION_CACHE, SUBSCRIPTION_COLUMNS)
        self._busiest = Busiest(settings.cache_subscriptions_max)
        self._consumers = Block(CONSUMER, CONSUMER_COLUMNS)
        self._producers = Block(PRODUCER, PRODUCER_COLUMNS)
        self._counts = Block((TOPICS_COUNT,), TOPIC_COLUMNS, zero)
        self._ledgers = Block(NAMESPACE if settings.managed_ledger else (), TOPIC_COLUMNS)
        self._totals = Block(TOTALS, TOPIC_COLUMNS)
        self._buckets: list[tuple[Family, list[bytes]]] = []
        self._sums: dict[str, Row] = {}

    def slices(self, topics: Iterable[TopicStats]) -> Iterator[None]:
        """Write everything; take it to its end, pausing where it yields. Then ask for `chunks`."""
        batch: list[TopicStats] = []
        for stats in topics:
            batch.append(stats)
            if len(batch) == SLICE_TOPICS:
                self._write(batch)
                batch = []
                yield
        self._write(batch)
        self._write_sums()
        self._cache_readers.add(*self._busiest.labels_and_rows())

    def size(self, openmetrics: bool) -> int:
        return sum(map(len, self._parts(openmetrics)))

    def chunks(self, openmetrics: bool) -> Iterator[bytes]:
        """The text, in pieces of about 256 KiB, without the `# EOF` that ends an OpenMetrics answer."""
        pending: list[bytes] = []
        pending_bytes = 0
        for part in self._parts(openmetrics):
            pending.append(part)
            pending_bytes += len(part)
            if pending_bytes >= BYTES_PER_CHUNK:
                yield b"".join(pending)
                pending = []
                pending_bytes = 0
        yield b"".join(pending)

    def _parts(self, openmetrics: bool) -> Iterator[bytes]:
        for block in (self._counts, self._topics, self._subscriptions, self._consumers, self._producers):
            yield from block.text(openmetrics)
        yield from self._cache_readers.text(openmetrics)
        yield _head(CACHE_SUBSCRIPTIONS_LEFT_OUT, openmetrics)
        yield f"{CACHE_SUBSCRIPTIONS_LEFT_OUT.name}{self._cluster}}} {self._busiest.left_out}\n".encode()
        yield from self._ledgers.text(openmetrics)
        for family, parts in self._buckets:
            yield _head(family, openmetrics)
            yield from parts
        yield from self._totals.text(openmetrics)

    def _write(self, batch: Sequence[TopicStats]) -> None:
        of_now, of_window, window_of = TOPIC_COLUMNS.of_now, TOPIC_COLUMNS.of_window, self._windows.of
        rows: list[Row] = []
        windows: list[TopicWindow] = []
        by_namespace: dict[str, list[Row]] = {}
        for stats in batch:
            window = window_of(stats.topic)
            row = of_now(stats) + of_window(window) + tuple(window.write_latency) + window.entry_size + (1,)
            rows.append(row)
            windows.append(window)
            by_namespace.setdefault(stats.namespace, []).append(row)
        for namespace, of_it in by_namespace.items():
            so_far = self._sums.get(namespace, NOTHING)
            self._sums[namespace] = tuple(map(sum, zip(so_far, *of_it, strict=True)))
        if self._settings.topic_level:
            labels = [
                f'{self._cluster},namespace="{escape(t.namespace)}",{self._topic_labels(t.topic)}'
                for t in batch
            ]
            self._topics.add([f"{label}}}" for label in labels], rows)
            self._write_subscriptions(labels, batch, windows)
            if self._settings.producer_level:
                self._write_producers(labels, batch, windows)

    def _topic_labels(self, topic: str) -> str:
        if not self._settings.split_partition:
            return f'topic="{escape(topic)}"'
        base, _, partition = topic.rpartition("-partition-")
        if not base or not partition.isdecimal():
            base, partition = topic, "-1"
        return f'topic="{escape(base)}",partition="{partition}"'

    def _write_subscriptions(
        self, labels: Sequence[str], batch: Sequence[TopicStats], windows: Sequence[TopicWindow]
    ) -> None:
        of_now, of_window = SUBSCRIPTION_COLUMNS.of_now, SUBSCRIPTION_COLUMNS.of_window
        of: list[str] = []
        rows: list[Row] = []
        for label, topic, topic_window in zip(labels, batch, windows, strict=True):
            known = topic_window.subscriptions
            for stats in topic.subscriptions:
                window = known.get(stats.name, NO_DELIVERIES)
                label_here = f'{label},subscription="{escape(stats.name)}"'
                row = of_now(stats) + of_window(window)
                of.append(label_here + "}")
                rows.append(row)
                reads = stats.cache_hits + stats.cache_misses + stats.cache_coalesced
                if reads:
                    self._busiest.offer(reads, label_here + "}", row)
                if self._settings.consumer_level:
                    self._write_consumers(label_here, stats, window)
        self._subscriptions.add(of, rows)

    def _write_consumers(self, label: str, stats: SubscriptionStats, window: SubscriptionWindow) -> None:
        of_now, of_window = CONSUMER_COLUMNS.of_now, CONSUMER_COLUMNS.of_window
        of = [
            f'{label},consumer_name="{escape(c.name)}",consumer_id="{c.consumer_id}"}}'
            for c in stats.consumer_stats
        ]
        known = window.consumers
        self._consumers.add(
            of,
            [
                of_now(c) + of_window(known.get((c.name, c.consumer_id), NO_CONSUMER))
                for c in stats.consumer_stats
            ],
        )

    def _write_producers(
        self, labels: Sequence[str], batch: Sequence[TopicStats], windows: Sequence[TopicWindow]
    ) -> None:
        of_now, of_window = PRODUCER_COLUMNS.of_now, PRODUCER_COLUMNS.of_window
        of: list[str] = []
        rows: list[Row] = []
        for label, topic, window in zip(labels, batch, windows, strict=True):
            for stats in topic.producer_stats:
                of.append(f'{label},producer_name="{escape(stats.name)}",producer_id="{stats.producer_id}"}}')
                rows.append(of_now(stats) + of_window(window.producers.get(stats.name, NO_PRODUCER)))
        self._producers.add(of, rows)

    def _write_sums(self) -> None:
        labels = [f'{self._cluster},namespace="{escape(namespace)}"' for namespace in self._sums]
        closed = [f"{label}}}" for label in labels]
        rows = list(self._sums.values())
        self._counts.add(closed, rows)
        if not self._settings.topic_level:
            self._topics.add(closed, rows)
        self._ledgers.add(closed, rows)
        if self._settings.managed_ledger and rows:
            self._write_buckets(labels, rows)
        self._totals.add([self._cluster + "}"], [tuple(map(sum, zip(NOTHING, *rows, strict=True)))])

    def _write_buckets(self, labels: Sequence[str], rows: Sequence[Row]) -> None:
        for family, names in NAMESPACE_BUCKETS:
            first = TOPIC_COLUMNS.place[f"{family.source}.0"]
            lines = [
                f'{family.name}{label},quantile="{name}"}} {row[first + place]}\n'
                for label, row in zip(labels, rows, strict=True)
                for place, name in enumerate(names)
            ]
            self._buckets.append((family, ["".join(lines).encode()]))
