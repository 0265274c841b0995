"""The hand-written text equals that of prometheus-client's registry, and has the labels that boards need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.registry import Collector

from broker.metrics.exposition import ExpositionSettings, TopicExposition
from broker.metrics.family import Family
from broker.metrics.readings import (
    CompactionReading,
    ConsumerReading,
    ProducerReading,
    QuotaReading,
    SubscriptionReading,
    TopicReading,
    TransactionsReading,
)
from broker.metrics.topic_families import (
    BROKER_QUOTAS,
    CACHE_SUBSCRIPTIONS_LEFT_OUT,
    COMPACTION,
    CONSUMER,
    NAMESPACE,
    NAMESPACE_BUCKETS,
    PRODUCER,
    QUOTAS,
    REDELIVER,
    SUBSCRIPTION,
    SUBSCRIPTION_CACHE,
    TOPIC,
    TOPICS_COUNT,
    TOTALS,
    TRANSACTIONS,
    overflow_of,
)
from broker.metrics.window import NO_CONSUMER, NO_DELIVERIES, NO_PRODUCER, TopicWindows

SECOND = 1_000_000_000
CLUSTER = 'our "own" \\ cluster'
EVERYTHING = ExpositionSettings(
    cluster=CLUSTER, consumer_level=True, producer_level=True, cache_subscriptions_max=20
)


def busy_topics(factor: int, count: int = 150) -> list[TopicReading]:
    """More than two slices, two namespaces, names with everything that needs escaping."""
    topics = []
    for number in range(count):
        namespace = "public/default" if number % 3 else 'shop/a"b'
        consumer = ConsumerReading(
            name=f"c\\{number}", consumer_id=number, msgs_out=factor, msgs_redelivered=number
        )
        subscription = SubscriptionReading(
            name=f"sub {number} 100%\n",
            backlog=number,
            delayed=number // 2,
            consumers=1,
            msgs_out=factor * 70 + number,
            bytes_out=factor * 7001,
            msgs_redelivered=factor * number,
            cache_hits=factor * number,
            cache_misses=number % 5,
            cache_coalesced=number % 7,
            consumer_readings=[consumer],
        )
        topics.append(
            TopicReading(
                namespace=namespace,
                topic=f"persistent://{namespace}/ä{{%s}}-{number}",
                producers=number % 4,
                subscriptions=[subscription] * (number % 2),
                msgs_in=factor * 100 + number,
                bytes_in=factor * 102_400,
                entries_added=factor * 10,
                entry_bytes_added=factor * 103_000,
                write_latency=[factor * place for place in range(10)],
                write_latency_sum_us=factor * 370,
                entry_size=[factor * place * number for place in range(9)],
                storage_size=number << 40,
                size_quota=QuotaReading(evictions=number, evicted_entries=factor),
                producer_readings=[ProducerReading(name="p", producer_id=number, msgs_in=factor * 9)],
                compaction=CompactionReading(removed=number, size_bytes=factor) if number % 3 else None,
                transactions=TransactionsReading(active=number, committed=factor) if number % 2 else None,
            )
        )
    return topics


def windows_over(before: list[TopicReading], after: list[TopicReading], seconds: int = 60) -> TopicWindows:
    windows = TopicWindows(0)
    for now_ns, topics in ((SECOND, before), ((1 + seconds) * SECOND, after)):
        for _ in windows.roll(topics, now_ns):
            pass
    return windows


def _is_in(namespace: str, topic: TopicReading) -> bool:
    return topic.namespace == namespace


class TopicCollector(Collector):
    """The same families by prometheus-client's own classes, each value looked up by its source's name."""

    def __init__(
        self, settings: ExpositionSettings, windows: TopicWindows, topics: list[TopicReading]
    ) -> None:
        self.cluster = settings.cluster
        self.windows = windows
        self.topics = topics
        self.cache_subscriptions_max = settings.cache_subscriptions_max

    def collect(self) -> Iterator[Metric]:
        topic_rows = [((t.namespace, t.topic), t, self.windows.of(t.topic)) for t in self.topics]
        yield from self.families(TOPIC, ("namespace", "topic"), topic_rows)
        compacted = [(labels, t.compaction, None) for labels, t, _ in topic_rows if t.compaction is not None]
        yield from self.families(COMPACTION, ("namespace", "topic"), compacted)
        transactional = [
            (labels, t.transactions, None) for labels, t, _ in topic_rows if t.transactions is not None
        ]
        yield from self.families(TRANSACTIONS, ("namespace", "topic"), transactional)
        subscription_rows = [
            ((*labels, s.name), s, window.subscriptions.get(s.name, NO_DELIVERIES))
            for labels, topic, window in topic_rows
            for s in topic.subscriptions
        ]
        of_subscription = ("namespace", "topic", "subscription")
        yield from self.families(SUBSCRIPTION, of_subscription, subscription_rows)
        readers = [row for row in subscription_rows if reads_of(row[1])]
        busiest = sorted(readers, key=lambda row: reads_of(row[1]))[-self.cache_subscriptions_max :]
        yield from self.families(SUBSCRIPTION_CACHE, of_subscription, busiest)
        left_out = self.empty(CACHE_SUBSCRIPTIONS_LEFT_OUT, ())
        left_out.add_metric([self.cluster], len(readers) - len(busiest))
        yield left_out
        consumer_rows = [
            (
                (*labels, c.name, str(c.consumer_id)),
                c,
                window.consumers.get((c.name, c.consumer_id), NO_CONSUMER),
            )
            for labels, subscription, window in subscription_rows
            for c in subscription.consumer_readings
        ]
        of_consumer = ("namespace", "topic", "subscription", "consumer_name", "consumer_id")
        yield from self.families(CONSUMER, of_consumer, consumer_rows)
        producer_rows = [
            ((*labels, p.name, str(p.producer_id)), p, window.producers.get(p.name, NO_PRODUCER))
            for labels, topic, window in topic_rows
            for p in topic.producer_readings
        ]
        of_producer = ("namespace", "topic", "producer_name", "producer_id")
        yield from self.families(PRODUCER, of_producer, producer_rows)
        yield from self.quotas()
        yield from self.sums()

    def families(
        self,
        families: Iterable[Family],
        names: Sequence[str],
        rows: Sequence[tuple[tuple[str, ...], object, object]],
    ) -> Iterator[Metric]:
        for family in families:
            metric = self.empty(family, names)
            for labels, now, window in rows:
                metric.add_metric([self.cluster, *labels], look_up(family.source, now, window))
            if family.zero:
                metric.add_sample(family.name, {"cluster": self.cluster}, 0)
            yield metric

    def quotas(self) -> Iterator[Metric]:
        rows = [
            ((t.namespace, t.topic, word), quota, None)
            for t in self.topics
            for word, quota in (("size", t.size_quota), ("time", t.time_quota))
        ]
        yield from self.families(QUOTAS, ("namespace", "topic", "quota_type"), rows)
        totals: list[tuple[tuple[str, ...], object, object]] = [
            (("size",), QuotaReading(evictions=sum(t.size_quota.evictions for t in self.topics)), None),
            (("time",), QuotaReading(evictions=sum(t.time_quota.evictions for t in self.topics)), None),
        ]
        yield from self.families((BROKER_QUOTAS,), ("quota_type",), totals)

    def sums(self) -> Iterator[Metric]:
        namespaces = sorted({t.namespace for t in self.topics})
        for family in (TOPICS_COUNT, *NAMESPACE, *TOTALS):
            metric = self.empty(family, ("namespace",) if family not in TOTALS else ())
            behind = "/persistent" if family in NAMESPACE else ""
            groups: Mapping[tuple[str, ...], Callable[[TopicReading], bool]]
            groups = {(name + behind,): partial(_is_in, name) for name in namespaces}
            if family in TOTALS:
                groups = {(): lambda _topic: True}
            for labels, belongs in groups.items():
                metric.add_metric([self.cluster, *labels], self.total(family.source, belongs))
            if family.zero:
                metric.add_sample(family.name, {"cluster": self.cluster}, 0)
            yield metric
        for family, buckets in NAMESPACE_BUCKETS:
            metric = self.empty(family, ("namespace", "quantile"))
            last = self.empty(overflow_of(family), ("namespace",))
            for name in namespaces:
                for place, bucket in enumerate((*buckets, "")):
                    value = self.total(f"{family.source}.{place}", partial(_is_in, name))
                    value /= self.windows.seconds or 1
                    of_ledgers = [self.cluster, f"{name}/persistent"]
                    if bucket:
                        metric.add_metric([*of_ledgers, bucket], value)
                    else:
                        last.add_metric(of_ledgers, value)
            yield metric
            yield last

    def total(self, source: str, belongs: Callable[[TopicReading], bool]) -> float:
        return sum(look_up(source, t, self.windows.of(t.topic)) for t in self.topics if belongs(t))

    def empty(self, family: Family, names: Sequence[str]) -> GaugeMetricFamily | CounterMetricFamily:
        kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
        return kind(family.name, family.help, labels=("cluster", *names))


def reads_of(subscription: SubscriptionReading) -> int:
    return subscription.cache_hits + subscription.cache_misses + subscription.cache_coalesced


def look_up(source: str, now: object, window: object) -> float:
    if source == "topics":
        return 1
    found: object = {"now": now, "window": window}
    for part in source.split("."):
        if isinstance(found, dict):
            found = found[part]
        else:
            found = found[int(part)] if isinstance(found, list | tuple) else getattr(found, part)
    assert isinstance(found, int | float)
    return found


def write(
    settings: ExpositionSettings,
    windows: TopicWindows,
    topics: list[TopicReading],
    *,
    openmetrics: bool = False,
) -> str:
    exposition = TopicExposition(settings, windows)
    for _ in exposition.slices(topics):
        pass
    text = b"".join(exposition.chunks(openmetrics))
    assert len(text) == exposition.size(openmetrics)
    return text.decode()


def comparable(families: Iterable[Metric]) -> dict[str, tuple[str, str, dict[tuple[str, str], str]]]:
    result = {}
    for family in families:
        assert family.name not in result, f"{family.name} in two pieces"
        # Twelve digits: sums of fractions differ in the last ones with the order in which they are added.
        samples = {(s.name, str(sorted(s.labels.items()))): f"{s.value:.12g}" for s in family.samples}
        assert len(samples) == len(family.samples), f"{family.name} says something twice"
        if samples:  # The registry announces empty families, our writer leaves them out.
            result[family.name] = (family.type, family.documentation, samples)
    return result


@pytest.mark.parametrize("openmetrics", [False, True])
@pytest.mark.parametrize("count", [150, 1, 0])
def test_text_equals_that_of_the_registry(openmetrics: bool, count: int) -> None:
    windows = windows_over(busy_topics(3, count), busy_topics(10, count))
    topics = busy_topics(11, count)
    registry = CollectorRegistry()
    registry.register(TopicCollector(EVERYTHING, windows, topics))
    ours = write(EVERYTHING, windows, topics, openmetrics=openmetrics)
    if openmetrics:
        theirs = generate_openmetrics(registry).decode()  # type: ignore[no-untyped-call]  # not typed there
        parsed = [parse_openmetrics(text) for text in (ours + "# EOF\n", theirs)]  # type: ignore[no-untyped-call]  # not typed there
        assert comparable(parsed[0]) == comparable(parsed[1])
    else:
        theirs = generate_latest(registry).decode()
        assert comparable(parse_text(ours)) == comparable(parse_text(theirs))


def test_writing_yields_after_every_64_topics() -> None:
    topics = busy_topics(1, 200)
    assert sum(1 for _ in TopicExposition(EVERYTHING, TopicWindows(0)).slices(topics)) == 200 // 64


def test_idle_broker_prints_zeros_with_the_cluster_alone() -> None:
    text = write(ExpositionSettings(cluster="standalone"), TopicWindows(0), [])
    zero = [family.name for family in (TOPICS_COUNT, *TOPIC) if family.zero]
    assert len(zero) == 12
    for name in zero:
        assert f'\n{name}{{cluster="standalone"}} 0\n' in text


def test_sums_are_printed_per_namespace_when_topic_level_is_off() -> None:
    settings = ExpositionSettings(cluster="standalone", topic_level=False)
    topics = [
        TopicReading(
            namespace="public/default", topic=f"persistent://public/default/{n}", msgs_in=n, producers=2
        )
        for n in range(100)
    ]
    text = write(settings, TopicWindows(0), topics)
    assert 'pulsar_producers_count{cluster="standalone",namespace="public/default"} 200\n' in text
    assert 'pulsar_in_messages_total{cluster="standalone",namespace="public/default"} 4950\n' in text
    assert 'pulsar_topics_count{cluster="standalone",namespace="public/default"} 100\n' in text
    assert "topic=" not in text
    assert "pulsar_average_msg_size" not in text


def test_redelivery_rate_is_printed_per_subscription_unless_consumers_are_shown() -> None:
    topics = busy_topics(1, 2)
    short = write(ExpositionSettings(cluster="c"), TopicWindows(0), topics)
    (line,) = [line for line in short.splitlines() if line.startswith(f"{REDELIVER.name}{{")]
    assert "consumer_name" not in line
    assert "pulsar_consumer_available_permits" not in short
    (line,) = [
        line
        for line in write(EVERYTHING, TopicWindows(0), topics).splitlines()
        if line.startswith(f"{REDELIVER.name}{{")
    ]
    assert 'consumer_name="c\\\\1"' in line


@pytest.mark.parametrize(
    ("series_max", "shown"), [(0, []), (1, ["c"]), (2, ["c", "b"]), (9, ["c", "b", "a"])]
)
def test_busiest_subscriptions_have_cache_series(series_max: int, shown: list[str]) -> None:
    reads = {"a": (1, 2, 3), "b": (0, 7, 0), "c": (5, 5, 5), "never": (0, 0, 0)}
    subscriptions = [
        SubscriptionReading(name=name, cache_hits=hits, cache_misses=misses, cache_coalesced=coalesced)
        for name, (hits, misses, coalesced) in reads.items()
    ]
    topic = TopicReading(namespace="n", topic="t", subscriptions=subscriptions)
    settings = ExpositionSettings(cluster="c", cache_subscriptions_max=series_max)
    lines = write(settings, TopicWindows(0), [topic]).splitlines()
    for place, family in enumerate(SUBSCRIPTION_CACHE):
        labels = 'cluster="c",namespace="n",topic="t",subscription='
        expected = [f'{family.name}{{{labels}"{name}"}} {reads[name][place]}' for name in shown]
        assert [line for line in lines if line.startswith(family.name)] == expected
    assert f'{CACHE_SUBSCRIPTIONS_LEFT_OUT.name}{{cluster="c"}} {3 - len(shown)}' in lines


def test_partition_has_a_label_of_its_own_when_the_setting_asks() -> None:
    settings = ExpositionSettings(cluster="c", split_partition=True)
    topics = [
        TopicReading(namespace="a/b", topic=f"persistent://a/b/{name}") for name in ("t", "t-partition-12")
    ]
    text = write(settings, TopicWindows(0), topics)
    start = 'pulsar_producers_count{cluster="c",namespace="a/b",topic="persistent://a/b/t"'
    assert f'{start},partition="-1"}} 0\n' in text
    assert f'{start},partition="12"}} 0\n' in text
