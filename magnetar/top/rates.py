"""Turns two scrapes into what happened per second between them: of the broker, its cache, its bookie and each topic.

All functions are pure. Counters are preferred to Pulsar's rates, which are means of the last whole minute. Those stand
in where a broker has no counter: for the cache of Apache's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from foundation.units import NS_PER_SECOND
from magnetar.top.bookie_view import BookieAnswer
from magnetar.top.console import Look
from magnetar.top.scrape import SUBSCRIPTION, TOPIC_COUNTERS, TOPIC_GAUGES, Sample, Scrape

CLIENTS: Final = ("producers", "consumers", "subscriptions")
"""Values that are whole numbers, as text and JSON show them."""


class Scrapes(NamedTuple):
    """One scrape of a broker, and of a bookie with a port of its own."""

    at_ns: int
    """Monotonic time of the request."""
    broker: Scrape
    """The broker's series."""
    bookie: Scrape
    """The bookie's series; the broker's again where it has them itself."""
    bookies: Sequence[BookieAnswer] = ()
    """The bookies that a broker of Magnetar writes to; empty where `bookie` has series of one."""
    look: Look | None = None
    """The answer for the view that is open; None for the topics."""
    publish_ms: Mapping[str, float] | None = None
    """Publish latencies of the last minute by quantile, as the console shows them; None of a broker without one."""


@dataclass(frozen=True, slots=True)
class TopicRates:
    """One topic between two readings. A namespace, where a broker exposes no topics."""

    name: str
    """Full name, or `tenant/namespace`."""
    in_messages: float
    """Messages published per second."""
    in_bytes: float
    """Bytes published per second."""
    out_messages: float
    """Messages sent to consumers per second."""
    out_bytes: float
    """Bytes sent to consumers per second."""
    backlog: float
    """Entries not acknowledged, over all subscriptions."""
    storage_bytes: float
    """Bytes kept."""
    producers: float
    """Connected producers, a whole number."""
    consumers: float
    """Connected consumers, a whole number."""
    subscriptions: float
    """Subscriptions, a whole number."""
    hit_ratio: float | None
    """Entries read from the cache by all that were read; None without reads, and of Apache's brokers."""


@dataclass(frozen=True, slots=True)
class SubscriptionRates:
    """One subscription of the topic that the screen shows."""

    name: str
    """Its name."""
    backlog: float
    """Entries not acknowledged."""
    unacked: float
    """Messages sent and not acknowledged."""
    delayed: float
    """Entries that are held until their delivery time."""
    out_messages: float
    """Messages sent to consumers per second, in the broker's last window of a minute."""
    out_bytes: float
    """Bytes sent to consumers per second, in the same window."""
    redelivered: float
    """Messages sent again per second, in the same window."""
    consumers: float
    """Connected consumers, a whole number."""
    blocked: bool
    """True while it gets nothing, because too many messages are not acknowledged."""
    hit_ratio: float | None
    """Entries read from the cache by all that were read since the topic was opened; None as of a topic."""


@dataclass(frozen=True, slots=True)
class CacheRates:
    """The entry cache between two readings."""

    hit_ratio: float | None
    """Entries read from the cache by all that were read; None without reads."""
    hits: float
    """Entries read from the cache per second."""
    misses: float
    """Entries read from storage per second."""
    evictions: float
    """Entries evicted per second."""
    used_bytes: float
    """Bytes of cached entries."""
    max_bytes: float | None
    """The limit; None of Apache's brokers, which do not tell it."""


@dataclass(frozen=True, slots=True)
class BookieRates:
    """A bookie between two readings."""

    adds: float
    """Entries added per second."""
    reads: float
    """Entries read per second."""
    write_bytes: float
    """Bytes written per second."""
    read_bytes: float
    """Bytes read per second."""
    sync_ms: float | None
    """The 99th percentile of journal syncs in ms; None where there was none."""
    read_cache_hit_ratio: float | None
    """Reads served by the read cache by all reads; None without reads."""
    write_cache_bytes: float
    """Bytes in the write cache."""
    ledgers: float
    """Ledgers kept."""
    writable: bool
    """False while the bookie is read-only."""


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything on the screen."""

    version: str
    """The broker's version; empty where it does not tell it."""
    seconds: float
    """Time between the two readings; 0 for a first reading, whose rates are 0."""
    in_messages: float
    """Messages published per second."""
    in_bytes: float
    """Bytes published per second."""
    out_messages: float
    """Messages sent to consumers per second."""
    out_bytes: float
    """Bytes sent to consumers per second."""
    backlog: float
    """Entries not acknowledged, of all topics."""
    topics_count: float
    """Open topics."""
    connections: float
    """Connections of clients."""
    publish_ms: Mapping[str, float]
    """Latency of publishes in ms by quantile (`0.5`), of the last minute; empty where the broker does not tell it."""
    cpu: float | None
    """Cores in use; None for a first reading."""
    memory_bytes: float | None
    """Resident memory; None where the broker does not tell it."""
    cache: CacheRates
    """The entry cache."""
    bookie: BookieRates | None
    """The bookie, by its metrics; None without these."""
    bookies: Sequence[BookieAnswer]
    """The bookies as the broker knows them; empty where `bookie` is known, and of Apache's brokers."""
    topics: Sequence[TopicRates]
    """Every topic, in no order."""


def overview(before: Scrapes | None, now: Scrapes) -> Overview:
    """Returns what happened between two readings; of a first one, only what does not need two."""
    seconds = (now.at_ns - before.at_ns) / NS_PER_SECOND if before is not None else 0.0
    span = _Span(before.broker if before else {}, now.broker, seconds)
    bookie_span = _Span(before.bookie if before else {}, now.bookie, seconds)
    topics = _topics(span)
    cpu = span.rate("process_cpu_seconds_total")
    return Overview(
        version=next((sample.labels.get("version", "") for sample in span.of("pulsar_version_info")), ""),
        seconds=seconds,
        in_messages=sum(topic.in_messages for topic in topics),
        in_bytes=sum(topic.in_bytes for topic in topics),
        out_messages=sum(topic.out_messages for topic in topics),
        out_bytes=sum(topic.out_bytes for topic in topics),
        backlog=sum(topic.backlog for topic in topics),
        topics_count=span.gauge("pulsar_topics_count"),
        connections=span.gauge("pulsar_active_connections"),
        # Of another broker those of the last whole minute, which may have ended a minute ago.
        publish_ms=_quantiles(span.of("pulsar_broker_publish_latency"))
        if now.publish_ms is None
        else now.publish_ms,
        cpu=cpu if seconds else None,
        memory_bytes=span.gauge("process_resident_memory_bytes") or None,
        cache=_cache(span),
        bookie=_bookie(bookie_span) if has_bookie(now.bookie) else None,
        bookies=now.bookies,
        topics=topics,
    )


def has_bookie(scrape: Scrape) -> bool:
    """Returns True for a scrape with the series of a bookie."""
    return "bookkeeper_server_ADD_ENTRY_count" in scrape


def is_magnetar(scrape: Scrape) -> bool:
    """Returns True for the scrape of a broker with a console."""
    return "pulsar_ml_cache_x_max_bytes" in scrape


class _Span:
    """Two scrapes and the time between them."""

    def __init__(self, before: Scrape, now: Scrape, seconds: float) -> None:
        self.before = before
        self.now = now
        self.seconds = seconds

    def of(self, name: str) -> list[Sample]:
        """Returns the later series of a family."""
        return self.now.get(name, [])

    def gauge(self, name: str) -> float:
        """Returns the later sum of a family."""
        return _sum(self.of(name))

    def rate(self, name: str) -> float:
        """Returns what all series of a counter together grew by per second."""
        return self.per_second(_sum(self.before.get(name, [])), self.gauge(name))

    def per_second(self, before: float, now: float) -> float:
        """Returns the growth of a counter per second; one that fell began again at 0, with a new process."""
        if not self.seconds:
            return 0.0
        return (now - before if now >= before else now) / self.seconds


def _sum(samples: Iterable[Sample]) -> float:
    return sum(sample.value for sample in samples)


def _topics(span: _Span) -> list[TopicRates]:
    before = {name: _by_topic(span.before.get(name, [])) for name in TOPIC_COUNTERS}
    now = {name: _by_topic(span.of(name)) for name in (*TOPIC_COUNTERS, *TOPIC_GAUGES)}
    names = dict.fromkeys(name for found in now.values() for name in found)
    topics = []
    for name in names:
        found = {
            # A topic that was not there before is as if its counters had been 0.
            field: span.per_second(before[metric].get(name, 0.0), now[metric].get(name, 0.0))
            for metric, field in TOPIC_COUNTERS.items()
        }
        found |= {field: now[metric].get(name, 0.0) for metric, field in TOPIC_GAUGES.items()}
        topics.append(TopicRates(name=name, hit_ratio=_hit_ratio(found), **_whole(found)))
    return topics


def subscriptions(scrape: Scrape, topic: str) -> list[SubscriptionRates]:
    """Returns the subscriptions of a topic, by name; `scrape` was parsed with this topic."""
    found: dict[str, dict[str, float]] = {}
    for metric, field in SUBSCRIPTION.items():
        for labels, value in scrape.get(metric, []):
            if "subscription" in labels and _topic_of(labels) == topic:
                values = found.setdefault(labels["subscription"], dict.fromkeys(SUBSCRIPTION.values(), 0.0))
                values[field] += value
    return [
        SubscriptionRates(
            name=name, blocked=values.pop("blocked") > 0, hit_ratio=_hit_ratio(values), **_whole(values)
        )
        for name, values in sorted(found.items())
    ]


def _topic_of(labels: Mapping[str, str]) -> str | None:
    """Returns the full name of a topic, or a namespace; None for the sum of a cluster."""
    name = labels.get("topic") or labels.get("namespace")
    if name is not None and "partition" in labels and labels["partition"] != "-1":
        name += f"-partition-{labels['partition']}"
    return name


def _by_topic(samples: Iterable[Sample]) -> dict[str, float]:
    """Returns the value of each topic. Where it has a series of its own, those of its subscriptions repeat it."""
    whole: dict[str, float] = {}
    parts: dict[str, float] = {}
    for labels, value in samples:
        name = _topic_of(labels)
        if name is None:
            continue
        found = parts if "subscription" in labels else whole
        found[name] = found.get(name, 0.0) + value
    return {**parts, **whole}


def _hit_ratio(found: dict[str, float]) -> float | None:
    """Takes hits and misses out of the values, and returns their ratio."""
    return _ratio(found.pop("hits"), found.pop("misses"))


def _whole(found: Mapping[str, float]) -> dict[str, float]:
    """Returns the values with those that count clients and subscriptions as whole numbers."""
    return {name: int(value) if name in CLIENTS else value for name, value in found.items()}


def _ratio(hits: float, misses: float) -> float | None:
    return hits / (hits + misses) if hits + misses else None


def _quantiles(samples: Iterable[Sample]) -> dict[str, float]:
    return {labels["quantile"]: value for labels, value in samples if "quantile" in labels}


def _cache(span: _Span) -> CacheRates:
    hits, misses = span.rate("pulsar_ml_cache_x_hits_total"), span.rate("pulsar_ml_cache_x_misses_total")
    if not span.of("pulsar_ml_cache_x_hits_total"):
        hits, misses = span.gauge("pulsar_ml_cache_hits_rate"), span.gauge("pulsar_ml_cache_misses_rate")
    evicted = (
        "pulsar_ml_cache_x_evicted_total"
        if span.of("pulsar_ml_cache_x_evicted_total")
        else "pulsar_ml_cache_evicted_entries_total"
    )
    return CacheRates(
        hit_ratio=_ratio(hits, misses),
        hits=hits,
        misses=misses,
        evictions=span.rate(evicted),
        used_bytes=span.gauge("pulsar_ml_cache_used_size"),
        max_bytes=span.gauge("pulsar_ml_cache_x_max_bytes") or None,
    )


def _bookie(span: _Span) -> BookieRates:
    def succeeded(name: str) -> float:
        before, now = (
            _sum(sample for sample in scrape.get(name, []) if sample.labels.get("success") != "false")
            for scrape in (span.before, span.now)
        )
        return span.per_second(before, now)

    syncs = [
        sample.value
        for sample in span.of("bookie_journal_JOURNAL_SYNC")
        if sample.labels.get("quantile") == "0.99" and sample.labels.get("success") != "false"
    ]
    return BookieRates(
        adds=succeeded("bookkeeper_server_ADD_ENTRY_count"),
        reads=succeeded("bookkeeper_server_READ_ENTRY_count"),
        write_bytes=span.rate("bookie_WRITE_BYTES"),
        read_bytes=span.rate("bookie_READ_BYTES"),
        sync_ms=max(syncs, default=None),
        read_cache_hit_ratio=_ratio(
            span.rate("bookie_read_cache_hits"), span.rate("bookie_read_cache_misses")
        ),
        write_cache_bytes=span.gauge("bookie_write_cache_size"),
        ledgers=span.gauge("bookie_ledgers_count"),
        writable=not span.of("bookie_SERVER_STATUS") or span.gauge("bookie_SERVER_STATUS") > 0,
    )
