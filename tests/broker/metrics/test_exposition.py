"""The hand-written text equals that of prometheus-client's registry, and has the labels that boards need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.registry import Collector

from broker.metrics.exposition import SLICE_ROWS, ExpositionSettings, TopicExposition
from broker.numbers.columns import Columns, Number
from broker.numbers.family import Family
from broker.numbers.readings import (
    BUFFERS,
    COMPACTIONS,
    CONSUMERS,
    EVICTIONS,
    PRODUCERS,
    SUBSCRIPTIONS,
    TOPICS,
    PartReading,
    TopicReading,
)
from broker.numbers.topic_families import (
    BACKLOG_AGE,
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
from broker.numbers.windows import TopicWindows
from tests.broker.numbers.rows_of import consumer_of, numbers_of, producer_of, subscription_of, topic_of

SECOND = 1_000_000_000
WINDOW_S = 60
CLUSTER = 'our "own" \\ cluster'
EVERYTHING = ExpositionSettings(
    cluster=CLUSTER, consumer_level=True, producer_level=True, cache_subscriptions_max=20
)


def busy_topics(factor: int, count: int = 150) -> list[TopicReading]:
    """More than two slices, two namespaces, names with everything that needs escaping."""
    topics = []
    for number in range(count):
        namespace = "public/default" if number % 3 else 'shop/a"b'
        subscription = subscription_of(
            f"sub {number} 100%\n",
            [consumer_of(f"c\\{number}", number, messages_out=factor, messages_redelivered=number)],
            backlog=number,
            delayed=number // 2,
            backlog_no_delayed=number - number // 2,
            consumers=1,
            messages_out=factor * 70 + number,
            bytes_out=factor * 7001,
            messages_redelivered=factor * number,
            hits=factor * number,
            misses=number % 5,
            coalesced=number % 7,
        )
        compaction = numbers_of(COMPACTIONS, {"counts.removed": number, "size_bytes": factor})
        transactions = numbers_of(BUFFERS, {"active": number, "commits": factor})
        topics.append(
            topic_of(
                namespace,
                f"persistent://{namespace}/ä{{%s}}-{number}",
                publishers=[producer_of("p", number, messages_in=factor * 9)],
                subscriptions=[subscription] * (number % 2),
                messages_in=factor * 100 + number,
                bytes_in=factor * 102_400,
                added=factor * 10,
                added_bytes=factor * 103_000,
                write_latency_sum_us=factor * 370,
                storage_size=number << 40,
                parts={
                    "write_latency": [factor * place for place in range(10)],
                    "entry_size": [factor * place * number for place in range(9)],
                    "quotas": ((number, factor), (0, 0)),
                    "compaction": compaction if number % 3 else None,
                    "transactions": transactions if number % 2 else None,
                },
            )
        )
    return topics


def windows_over(
    before: list[TopicReading], after: list[TopicReading], seconds: int = WINDOW_S
) -> TopicWindows:
    windows = TopicWindows(0)
    for now_ns, topics in ((SECOND, before), ((1 + seconds) * SECOND, after)):
        for _ in windows.roll(topics, now_ns):
            pass
    return windows


class Printed(NamedTuple):
    """One thing with series of its own: its numbers now, and at both ends of the last whole window."""

    columns: Columns
    labels: tuple[str, ...]
    now: Sequence[Number]
    before: Sequence[Number] = ()
    after: Sequence[Number] = ()

    def value(self, family: Family) -> float:
        place = self.columns.names.index(family.source)
        if family.over == "now":
            return self.now[place]
        growth = self.after[place] - self.before[place]
        return growth / WINDOW_S if family.over == "second" else growth


class PrintedTopic(NamedTuple):
    """A topic, and the values of its window that are in no column."""

    namespace: str
    printed: Printed
    extra: Mapping[str, Number]

    def value(self, family: Family) -> float:
        return self.extra[family.source] if family.source in self.extra else self.printed.value(family)


def printed_topic(now: TopicReading, before: TopicReading, after: TopicReading) -> PrintedTopic:
    messages, size = (
        after.row[place] - before.row[place] for place in map(TOPICS.names.index, ("messages_in", "bytes_in"))
    )
    extra = {"topics": 1, "mean_size": size / messages}
    for name, late, early in (
        ("write_latency", after.write_latency, before.write_latency),
        ("entry_size", after.entry_size, before.entry_size),
    ):
        extra |= {f"{name}.{n}": a - b for n, (a, b) in enumerate(zip(late, early, strict=True))}
    return PrintedTopic(
        now.namespace, Printed(TOPICS, (now.namespace, now.topic), now.row, before.row, after.row), extra
    )


def parts(
    columns: Columns, labels: tuple[str, ...], *readings: Sequence[PartReading]
) -> Iterator[tuple[Printed, tuple[PartReading, ...]]]:
    for of_one in zip(*readings, strict=True):
        name, number = of_one[0].key
        own = (name,) if columns is SUBSCRIPTIONS else (name, str(number))
        yield Printed(columns, (*labels, *own), *(reading.row for reading in of_one)), of_one


class TopicCollector(Collector):
    """The same families by prometheus-client's own classes, each value looked up by its source's name."""

    def __init__(self, settings: ExpositionSettings, *readings: list[TopicReading]) -> None:
        """`readings`: of now, and of both ends of the window; the same topics in the same order."""
        self.cluster = settings.cluster
        self.readings = [*zip(*readings, strict=True)]
        self.topics = [printed_topic(*of_one) for of_one in self.readings]
        self.cache_subscriptions_max = settings.cache_subscriptions_max

    def collect(self) -> Iterator[Metric]:
        of_topic = ("namespace", "topic")
        yield from self.families(TOPIC, of_topic, [(t.printed.labels, t) for t in self.topics])
        subscriptions: list[Printed] = []
        consumers: list[Printed] = []
        producers: list[Printed] = []
        rows: dict[str, list[Printed]] = {"compaction": [], "transactions": [], "quotas": []}
        for readings in self.readings:
            now, labels = readings[0], (readings[0].namespace, readings[0].topic)
            if now.compaction is not None:
                rows["compaction"].append(Printed(COMPACTIONS, labels, now.compaction))
            if now.transactions is not None:
                rows["transactions"].append(Printed(BUFFERS, labels, now.transactions))
            for word, quota in zip(("size", "time"), now.quotas, strict=True):
                rows["quotas"].append(Printed(EVICTIONS, (*labels, word), quota))
            for one, found in parts(SUBSCRIPTIONS, labels, *(topic.subscriptions for topic in readings)):
                subscriptions.append(one)
                of_it = parts(CONSUMERS, one.labels, *(reading.parts for reading in found))
                consumers += [consumer for consumer, _ in of_it]
            of_it = parts(PRODUCERS, labels, *(topic.producers for topic in readings))
            producers += [producer for producer, _ in of_it]
        yield from self.printed(COMPACTION, of_topic, rows["compaction"])
        yield from self.printed(TRANSACTIONS, of_topic, rows["transactions"])
        of_subscription = (*of_topic, "subscription")
        yield from self.printed(SUBSCRIPTION, of_subscription, subscriptions)
        readers = [one for one in subscriptions if reads_of(one)]
        busiest = sorted(readers, key=reads_of)[-self.cache_subscriptions_max :]
        yield from self.printed(SUBSCRIPTION_CACHE, of_subscription, busiest)
        left_out = self.empty(CACHE_SUBSCRIPTIONS_LEFT_OUT, ())
        left_out.add_metric([self.cluster], len(readers) - len(busiest))
        yield left_out
        yield from self.printed(CONSUMER, (*of_subscription, "consumer_name", "consumer_id"), consumers)
        yield from self.printed(PRODUCER, (*of_topic, "producer_name", "producer_id"), producers)
        yield from self.printed(QUOTAS, (*of_topic, "quota_type"), rows["quotas"])
        totals = [
            Printed(EVICTIONS, (word,), (sum(t[0].quotas[place][0] for t in self.readings), 0))
            for place, word in enumerate(("size", "time"))
        ]
        yield from self.printed((BROKER_QUOTAS,), ("quota_type",), totals)
        yield from self.sums()

    def printed(
        self, families: Iterable[Family], names: Sequence[str], rows: Iterable[Printed]
    ) -> Iterator[Metric]:
        yield from self.families(families, names, [(row.labels, row) for row in rows])

    def families(
        self,
        families: Iterable[Family],
        names: Sequence[str],
        rows: Sequence[tuple[tuple[str, ...], Printed | PrintedTopic]],
    ) -> Iterator[Metric]:
        for family in families:
            metric = self.empty(family, names)
            for labels, row in rows:
                metric.add_metric([self.cluster, *labels], row.value(family))
            if family.zero:
                metric.add_sample(family.name, {"cluster": self.cluster}, 0)
            yield metric

    def sums(self) -> Iterator[Metric]:
        namespaces = sorted({t.namespace for t in self.topics})
        for family in (TOPICS_COUNT, *NAMESPACE, *TOTALS):
            metric = self.empty(family, ("namespace",) if family not in TOTALS else ())
            behind = "/persistent" if family in NAMESPACE else ""
            if family in TOTALS:
                metric.add_metric([self.cluster], self.total(family, namespaces))
            else:
                for name in namespaces:
                    metric.add_metric([self.cluster, name + behind], self.total(family, [name]))
            if family.zero:
                metric.add_sample(family.name, {"cluster": self.cluster}, 0)
            yield metric
        for family, buckets in NAMESPACE_BUCKETS:
            metric = self.empty(family, ("namespace", "quantile"))
            last = self.empty(overflow_of(family), ("namespace",))
            for name in namespaces:
                for place, bucket in enumerate((*buckets, "")):
                    of_bucket = replace(family, source=f"{family.source}.{place}")
                    value = self.total(of_bucket, [name]) / WINDOW_S
                    of_ledgers = [self.cluster, f"{name}/persistent"]
                    if bucket:
                        metric.add_metric([*of_ledgers, bucket], value)
                    else:
                        last.add_metric(of_ledgers, value)
            yield metric
            yield last

    def total(self, family: Family, namespaces: Sequence[str]) -> float:
        return sum(topic.value(family) for topic in self.topics if topic.namespace in namespaces)

    def empty(self, family: Family, names: Sequence[str]) -> GaugeMetricFamily | CounterMetricFamily:
        kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
        return kind(family.name, family.help, labels=("cluster", *names))


def reads_of(subscription: Printed) -> float:
    return sum(subscription.value(family) for family in SUBSCRIPTION_CACHE)


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
    before, after, topics = (busy_topics(factor, count) for factor in (3, 10, 11))
    windows = windows_over(before, after)
    registry = CollectorRegistry()
    registry.register(TopicCollector(EVERYTHING, topics, before, after))
    ours = write(EVERYTHING, windows, topics, openmetrics=openmetrics)
    if openmetrics:
        theirs = generate_openmetrics(registry).decode()  # type: ignore[no-untyped-call]  # not typed there
        parsed = [parse_openmetrics(text) for text in (ours + "# EOF\n", theirs)]  # type: ignore[no-untyped-call]  # not typed there
        assert comparable(parsed[0]) == comparable(parsed[1])
    else:
        theirs = generate_latest(registry).decode()
        assert comparable(parse_text(ours)) == comparable(parse_text(theirs))


def test_writing_yields_after_so_many_rows_and_not_topics() -> None:
    topics = busy_topics(1, 200)
    rows = sum(topic.rows for topic in topics)
    assert rows > 2 * len(topics)
    turns = sum(1 for _ in TopicExposition(EVERYTHING, TopicWindows(0)).slices(topics))
    assert rows // (SLICE_ROWS + topics[-1].rows) <= turns <= rows // SLICE_ROWS
    alone = [topic._replace(subscriptions=(), producers=()) for topic in topics[:SLICE_ROWS]]
    assert sum(1 for _ in TopicExposition(EVERYTHING, TopicWindows(0)).slices(alone)) == 1


@pytest.mark.parametrize("openmetrics", [False, True])
@pytest.mark.parametrize("settings", [EVERYTHING, ExpositionSettings(cluster="c", topic_level=False)])
def test_size_is_that_of_the_chunks(settings: ExpositionSettings, openmetrics: bool) -> None:
    exposition = TopicExposition(settings, TopicWindows(0))
    list(exposition.slices(busy_topics(7, 150)))
    assert exposition.size(openmetrics) == sum(map(len, exposition.chunks(openmetrics)))


def test_idle_broker_prints_zeros_with_the_cluster_alone() -> None:
    text = write(ExpositionSettings(cluster="standalone"), TopicWindows(0), [])
    zero = [family.name for family in (TOPICS_COUNT, *TOPIC) if family.zero]
    assert len(zero) == 12
    for name in zero:
        assert f'\n{name}{{cluster="standalone"}} 0\n' in text


def test_sums_are_printed_per_namespace_when_topic_level_is_off() -> None:
    settings = ExpositionSettings(cluster="standalone", topic_level=False)
    topics = [
        topic_of("public/default", f"persistent://public/default/{n}", messages_in=n, producers=2)
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


def test_backlog_age_is_printed_for_subscriptions_with_a_known_age() -> None:
    subscriptions = [
        subscription_of("old", backlog_age_seconds=61),
        subscription_of("none"),
        subscription_of("new", backlog_age_seconds=0),
    ]
    topic = topic_of("n", "t", subscriptions=subscriptions)
    settings = ExpositionSettings(cluster="c")
    lines = write(settings, TopicWindows(0), [topic]).splitlines()
    labels = 'cluster="c",namespace="n",topic="t",subscription='
    assert [line for line in lines if line.startswith(BACKLOG_AGE.name)] == [
        f'{BACKLOG_AGE.name}{{{labels}"old"}} 61',
        f'{BACKLOG_AGE.name}{{{labels}"new"}} 0',
    ]
    topic = topic_of("n", "t", subscriptions=subscriptions[1:2])
    assert BACKLOG_AGE.name not in write(settings, TopicWindows(0), [topic])


@pytest.mark.parametrize(
    ("series_max", "shown"), [(0, []), (1, ["c"]), (2, ["c", "b"]), (9, ["c", "b", "a"])]
)
def test_busiest_subscriptions_have_cache_series(series_max: int, shown: list[str]) -> None:
    reads = {"a": (1, 2, 3), "b": (0, 7, 0), "c": (5, 5, 5), "never": (0, 0, 0)}
    subscriptions = [
        subscription_of(name, hits=hits, misses=misses, coalesced=coalesced)
        for name, (hits, misses, coalesced) in reads.items()
    ]
    topic = topic_of("n", "t", subscriptions=subscriptions)
    settings = ExpositionSettings(cluster="c", cache_subscriptions_max=series_max)
    lines = write(settings, TopicWindows(0), [topic]).splitlines()
    for place, family in enumerate(SUBSCRIPTION_CACHE):
        labels = 'cluster="c",namespace="n",topic="t",subscription='
        expected = [f'{family.name}{{{labels}"{name}"}} {reads[name][place]}' for name in shown]
        assert [line for line in lines if line.startswith(family.name)] == expected
    assert f'{CACHE_SUBSCRIPTIONS_LEFT_OUT.name}{{cluster="c"}} {3 - len(shown)}' in lines


def test_partition_has_a_label_of_its_own_when_the_setting_asks() -> None:
    settings = ExpositionSettings(cluster="c", split_partition=True)
    topics = [topic_of("a/b", f"persistent://a/b/{name}") for name in ("t", "t-partition-12")]
    text = write(settings, TopicWindows(0), topics)
    start = 'pulsar_producers_count{cluster="c",namespace="a/b",topic="persistent://a/b/t"'
    assert f'{start},partition="-1"}} 0\n' in text
    assert f'{start},partition="12"}} 0\n' in text
