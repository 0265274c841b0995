"""Rates and buckets per window: the difference of two snapshots, divided by the time between them.

Pulsar's boards expect rates, latency and size buckets of the last whole window (60 s unless
`statsUpdateFrequencyInSecs` says otherwise), not since start. A window is closed by `roll`; what it says
stays the same until the next one. Pure: the caller brings snapshots and time, and may pause between the
slices of a roll; the new window is shown only when it is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import add, sub

from broker.metrics.snapshot import (
    NO_LATENCIES,
    NO_SIZES,
    WRITE_LATENCY_BOUNDS_MS,
    BrokerStats,
    ConsumerStats,
    Histogram,
    ProducerStats,
    SubscriptionStats,
    TopicStats,
)

SLICE_TOPICS = 64
"""So many topics between two pauses: about 1 ms."""


@dataclass(slots=True)
class ProducerWindow:
    rate_in: float = 0.0
    throughput_in: float = 0.0


@dataclass(slots=True)
class ConsumerWindow:
    rate_out: float = 0.0
    throughput_out: float = 0.0
    ack_rate: float = 0.0
    redeliver_rate: float = 0.0


@dataclass(slots=True)
class SubscriptionWindow:
    rate_out: float = 0.0
    throughput_out: float = 0.0
    redeliver_rate: float = 0.0
    ack_rate: float = 0.0
    drop_rate: float = 0.0
    consumers: dict[tuple[str, int], ConsumerWindow] = field(default_factory=dict)


@dataclass(slots=True)
class TopicWindow:
    """Rates per second; counts are those of the window."""

    rate_in: float = 0.0
    throughput_in: float = 0.0
    rate_out: float = 0.0
    throughput_out: float = 0.0
    average_msg_size: float = 0.0
    write_rate: float = 0.0
    write_bytes_rate: float = 0.0
    read_rate: float = 0.0
    read_bytes_rate: float = 0.0
    cache_miss_rate: float = 0.0
    added: int = 0
    added_bytes: int = 0
    add_errors: int = 0
    read: int = 0
    read_errors: int = 0
    write_latency_sum_ms: float = 0.0
    write_latency: tuple[int, ...] = NO_LATENCIES
    entry_size: tuple[int, ...] = NO_SIZES
    subscriptions: dict[str, SubscriptionWindow] = field(default_factory=dict)
    producers: dict[str, ProducerWindow] = field(default_factory=dict)


NOTHING_YET = TopicWindow()
NO_DELIVERIES = SubscriptionWindow()
NO_CONSUMER = ConsumerWindow()
NO_PRODUCER = ProducerWindow()


class TopicWindows:
    """The last whole window of every topic. The first begins at `started_ns`."""

    def __init__(self, started_ns: int) -> None:
        self._rolled_ns = started_ns
        self._previous: dict[str, TopicStats] = {}
        self._windows: dict[str, TopicWindow] = {}
        self.write_latency_ms = Histogram(WRITE_LATENCY_BOUNDS_MS, NO_LATENCIES, 0.0)
        """Of all topics together, in the last whole window."""

    def of(self, topic: str) -> TopicWindow:
        """All zero for a topic that no whole window has seen."""
        return self._windows.get(topic, NOTHING_YET)

    def roll(self, topics: Iterable[TopicStats], now_ns: int) -> Iterator[None]:
        """Close the window. A generator: take it to its end, pausing where it yields."""
        seconds = (now_ns - self._rolled_ns) / 1e9
        if seconds <= 0:
            return
        previous: dict[str, TopicStats] = {}
        windows: dict[str, TopicWindow] = {}
        counts = NO_LATENCIES
        total_ms = 0.0
        for number, stats in enumerate(topics, 1):
            before = self._previous.get(stats.topic)
            if before is None or before.entries_added > stats.entries_added or before.msgs_in > stats.msgs_in:
                before = TopicStats(namespace=stats.namespace, topic=stats.topic)
            window = _topic_window(before, stats, seconds)
            counts = tuple(map(add, counts, window.write_latency))
            total_ms += window.write_latency_sum_ms
            windows[stats.topic] = window
            previous[stats.topic] = stats
            if number % SLICE_TOPICS == 0:
                yield
        self._rolled_ns = now_ns
        self._previous = previous
        self._windows = windows
        self.write_latency_ms = Histogram(WRITE_LATENCY_BOUNDS_MS, counts, total_ms)


class BrokerWindow:
    """The last whole window of what the broker counts as one: cache rates, times to open a topic."""

    def __init__(self, started_ns: int) -> None:
        self._rolled_ns = started_ns
        self._previous = BrokerStats()
        self._loads_seen = 0
        self.hits_rate = 0.0
        self.hits_throughput = 0.0
        self.misses_rate = 0.0
        self.misses_throughput = 0.0
        self.evictions = 0
        """Size-eviction runs."""
        self.topic_loads_ms: list[float] = []
        """Sorted."""

    def roll(self, stats: BrokerStats, now_ns: int) -> None:
        seconds = (now_ns - self._rolled_ns) / 1e9
        if seconds <= 0:
            return
        before, now = self._previous.cache, stats.cache
        self.hits_rate = _grown(before.hits, now.hits) / seconds
        self.hits_throughput = _grown(before.hit_bytes, now.hit_bytes) / seconds
        self.misses_rate = _grown(before.misses, now.misses) / seconds
        self.misses_throughput = _grown(before.miss_bytes, now.miss_bytes) / seconds
        self.evictions = _grown(before.size_passes, now.size_passes)
        new = min(stats.topic_loads - self._loads_seen, len(stats.topic_loads_ms))
        self.topic_loads_ms = sorted(stats.topic_loads_ms[len(stats.topic_loads_ms) - new :])
        self._loads_seen = stats.topic_loads
        self._rolled_ns = now_ns
        self._previous = stats


def quantile(histogram: Histogram, q: float) -> float:
    """The value below which a share `q` (0 to 1) of all values lies, taken as spread evenly in its bucket.

    NaN without values, as Prometheus clients say it; the last bucket has no end and answers its lower bound.
    """
    rank = q * sum(histogram.counts)
    if not any(histogram.counts):
        return float("nan")
    lower = seen = 0.0
    for bound, count in zip(histogram.bounds, histogram.counts, strict=False):
        if count and seen + count >= rank:
            return lower + (bound - lower) * (rank - seen) / count
        seen += count
        lower = bound
    return lower


def quantile_of(values: Sequence[float], q: float) -> float:
    """The same for sorted values, exactly."""
    return values[min(int(q * len(values)), len(values) - 1)] if values else float("nan")


def _grown(before: int, now: int) -> int:
    return now - before if now >= before else now


def _minus(now: Sequence[int], before: Sequence[int]) -> tuple[int, ...]:
    return tuple(map(sub, now, before))


def _topic_window(before: TopicStats, now: TopicStats, seconds: float) -> TopicWindow:
    msgs_in = now.msgs_in - before.msgs_in
    bytes_in = now.bytes_in - before.bytes_in
    added = now.entries_added - before.entries_added
    added_bytes = now.entry_bytes_added - before.entry_bytes_added
    read = now.entries_read - before.entries_read
    return TopicWindow(
        rate_in=msgs_in / seconds,
        throughput_in=bytes_in / seconds,
        rate_out=_grown(before.msgs_out, now.msgs_out) / seconds,
        throughput_out=_grown(before.bytes_out, now.bytes_out) / seconds,
        average_msg_size=bytes_in / msgs_in if msgs_in else 0.0,
        write_rate=added / seconds,
        write_bytes_rate=added_bytes / seconds,
        read_rate=read / seconds,
        read_bytes_rate=(now.entry_bytes_read - before.entry_bytes_read) / seconds,
        cache_miss_rate=_grown(before.cache_misses, now.cache_misses) / seconds,
        added=added,
        added_bytes=added_bytes,
        add_errors=_grown(before.add_errors, now.add_errors),
        read=read,
        read_errors=_grown(before.read_errors, now.read_errors),
        write_latency_sum_ms=now.write_latency_sum_ms - before.write_latency_sum_ms,
        write_latency=_minus(now.write_latency, before.write_latency),
        entry_size=_minus(now.entry_size, before.entry_size),
        subscriptions=_subscription_windows(before.subscriptions, now.subscriptions, seconds),
        producers=_producer_windows(before.producer_stats, now.producer_stats, seconds),
    )


def _subscription_windows(
    before: Sequence[SubscriptionStats], now: Sequence[SubscriptionStats], seconds: float
) -> dict[str, SubscriptionWindow]:
    earlier = {stats.name: stats for stats in before}
    windows = {}
    for stats in now:
        then = earlier.get(stats.name)
        if then is None or then.msgs_out > stats.msgs_out:
            then = SubscriptionStats(name=stats.name)
        windows[stats.name] = SubscriptionWindow(
            (stats.msgs_out - then.msgs_out) / seconds,
            _grown(then.bytes_out, stats.bytes_out) / seconds,
            _grown(then.msgs_redelivered, stats.msgs_redelivered) / seconds,
            _grown(then.msgs_acked, stats.msgs_acked) / seconds,
            _grown(then.msgs_dropped, stats.msgs_dropped) / seconds,
            _consumer_windows(then.consumer_stats, stats.consumer_stats, seconds),
        )
    return windows


def _consumer_windows(
    before: Sequence[ConsumerStats], now: Sequence[ConsumerStats], seconds: float
) -> dict[tuple[str, int], ConsumerWindow]:
    earlier = {(stats.name, stats.consumer_id): stats for stats in before}
    windows = {}
    for stats in now:
        then = earlier.get((stats.name, stats.consumer_id)) or ConsumerStats(name="", consumer_id=0)
        windows[stats.name, stats.consumer_id] = ConsumerWindow(
            _grown(then.msgs_out, stats.msgs_out) / seconds,
            _grown(then.bytes_out, stats.bytes_out) / seconds,
            _grown(then.msgs_acked, stats.msgs_acked) / seconds,
            _grown(then.msgs_redelivered, stats.msgs_redelivered) / seconds,
        )
    return windows


def _producer_windows(
    before: Sequence[ProducerStats], now: Sequence[ProducerStats], seconds: float
) -> dict[str, ProducerWindow]:
    earlier = {stats.name: stats for stats in before}
    windows = {}
    for stats in now:
        then = earlier.get(stats.name) or ProducerStats(name="", producer_id=0)
        windows[stats.name] = ProducerWindow(
            _grown(then.msgs_in, stats.msgs_in) / seconds,
            _grown(then.bytes_in, stats.bytes_in) / seconds,
        )
    return windows
