"""Rates and buckets per window: the difference of two readings, divided by the time between them.

Pulsar's boards expect rates, latency and size buckets of the last whole window (60 s unless
`statsUpdateFrequencyInSecs` says otherwise), not since start. `roll` closes a window; its numbers stay the same until
the next call. The module is pure: the caller passes readings and time. A caller may pause between the slices of a roll,
so the new window replaces the old one only when it is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add, sub
from typing import NamedTuple

from broker.metrics.broker_reading import BrokerReading
from broker.metrics.readings import (
    NO_LATENCIES,
    NO_SIZES,
    WRITE_LATENCY_BOUNDS_MS,
    ConsumerReading,
    ProducerReading,
    SubscriptionReading,
    TopicReading,
)
from entry_cache.cache_stats import ReadStats

SLICE_TOPICS = 64
"""Topics between two pauses: about 1 ms."""


class Histogram(NamedTuple):
    """Values by bucket.

    `counts[i]` = values above `bounds[i - 1]`, up to and with `bounds[i]`; one count more for the rest.
    """

    bounds: Sequence[float]
    """Upper bounds, ascending."""
    counts: Sequence[int]
    """One count per bound, and one more."""
    total: float
    """The sum of all values."""


@dataclass(slots=True)
class ProducerWindow:
    """Rates of one producer per second."""

    rate_in: float = 0.0
    """Messages published."""
    throughput_in: float = 0.0
    """Bytes published."""


@dataclass(slots=True)
class ConsumerWindow:
    """Rates of one consumer per second."""

    rate_out: float = 0.0
    """Messages sent."""
    throughput_out: float = 0.0
    """Bytes sent."""
    ack_rate: float = 0.0
    """Messages acknowledged."""
    redeliver_rate: float = 0.0
    """Messages sent again."""


@dataclass(slots=True)
class SubscriptionWindow:
    """Rates of one subscription per second."""

    rate_out: float = 0.0
    """Messages sent."""
    throughput_out: float = 0.0
    """Bytes sent."""
    redeliver_rate: float = 0.0
    """Messages sent again."""
    ack_rate: float = 0.0
    """Messages acknowledged."""
    drop_rate: float = 0.0
    """Messages of a non-persistent topic that no consumer had a permit for."""
    expired_rate: float = 0.0
    """Entries that expired."""
    consumers: dict[tuple[str, int], ConsumerWindow] = field(default_factory=dict)
    """By name and id; empty unless consumers are read."""


@dataclass(slots=True)
class TopicWindow:
    """Rates of one topic per second, and counts of the window."""

    rate_in: float = 0.0
    """Messages published per second."""
    throughput_in: float = 0.0
    """Bytes published per second."""
    rate_out: float = 0.0
    """Messages sent to consumers per second."""
    throughput_out: float = 0.0
    """Bytes sent per second."""
    average_msg_size: float = 0.0
    """Mean bytes of a published message; 0 without messages."""
    write_rate: float = 0.0
    """Entries stored per second."""
    write_bytes_rate: float = 0.0
    """Bytes stored per second."""
    write_replica_bytes_rate: float = 0.0
    """Bytes stored per second, times the write quorum."""
    read_rate: float = 0.0
    """Entries read per second, from the cache or from storage."""
    read_bytes_rate: float = 0.0
    """Bytes read per second."""
    cache_miss_rate: float = 0.0
    """Entries read from storage per second."""
    added: int = 0
    """Entries stored in the window."""
    added_bytes: int = 0
    """Their bytes."""
    add_errors: int = 0
    """Adds that failed in the window."""
    read: int = 0
    """Entries read in the window."""
    read_errors: int = 0
    """Reads that failed in the window."""
    write_latency_sum_us: int = 0
    """The sum of the write latencies in the window, µs."""
    write_latency: tuple[int, ...] = NO_LATENCIES
    """Entries of the window by write latency."""
    entry_size: tuple[int, ...] = NO_SIZES
    """Entries of the window by size."""
    subscriptions: dict[str, SubscriptionWindow] = field(default_factory=dict)
    """By name."""
    producers: dict[str, ProducerWindow] = field(default_factory=dict)
    """By name; empty unless producers are read."""


NOTHING_YET = TopicWindow()
"""Stands for a topic that no whole window has seen."""
NO_DELIVERIES = SubscriptionWindow()
"""Stands for such a subscription."""
NO_CONSUMER = ConsumerWindow()
"""Stands for such a consumer."""
NO_PRODUCER = ProducerWindow()
"""Stands for such a producer."""


class TopicWindows:
    """The last whole window of every topic."""

    def __init__(self, started_ns: int) -> None:
        """The first window begins at `started_ns`."""
        self._rolled_ns = started_ns
        self._previous: dict[str, TopicReading] = {}
        self._windows: dict[str, TopicWindow] = {}
        self.write_latency_ms = Histogram(WRITE_LATENCY_BOUNDS_MS, NO_LATENCIES, 0.0)
        """Entries of all topics in the last whole window by write latency."""
        self.seconds = 0.0
        """Length of the last whole window; 0 before the first."""

    def of(self, topic: str) -> TopicWindow:
        """Returns the topic's last whole window, all zero if no whole window has seen it."""
        return self._windows.get(topic, NOTHING_YET)

    @property
    def readings(self) -> Mapping[str, TopicReading]:
        """By topic, the reading that the window under way begins with."""
        return self._previous

    def roll(self, topics: Iterable[TopicReading], now_ns: int) -> Iterator[None]:
        """Closes the window. Yields after every SLICE_TOPICS topics, so that the caller can give the loop a turn.

        A topic whose object is that of `readings` has counted nothing, and gets no window of its own. Does nothing when
        no time has passed since the last roll.
        """
        seconds = (now_ns - self._rolled_ns) / 1e9
        if seconds <= 0:
            return
        # Into new dictionaries: topics that are gone are forgotten, and `of` shows the old window until the end.
        previous: dict[str, TopicReading] = {}
        windows: dict[str, TopicWindow] = {}
        counts = NO_LATENCIES
        total_us = 0
        for number, reading in enumerate(topics, 1):
            if number % SLICE_TOPICS == 0:
                yield
            before = self._previous.get(reading.topic)
            previous[reading.topic] = reading
            if before is reading:
                continue
            # Counters that fell belong to a topic that was unloaded or made again: they count from 0.
            if (
                before is None
                or before.entries_added > reading.entries_added
                or before.msgs_in > reading.msgs_in
            ):
                before = TopicReading(namespace=reading.namespace, topic=reading.topic)
            window = _topic_window(before, reading, seconds)
            counts = tuple(map(add, counts, window.write_latency))
            total_us += window.write_latency_sum_us
            windows[reading.topic] = window
        self._rolled_ns = now_ns
        self.seconds = seconds
        self._previous = previous
        self._windows = windows
        self.write_latency_ms = Histogram(WRITE_LATENCY_BOUNDS_MS, counts, total_us / 1000)


class BrokerWindow:
    """The last whole window of the broker's own counters: cache rates, times to open a topic."""

    def __init__(self, started_ns: int) -> None:
        """The first window begins at `started_ns`."""
        self._rolled_ns = started_ns
        self._reads = ReadStats()
        self._size_evictions = 0
        self._loads_seen = 0
        self.hits_rate = 0.0
        """Entries per second read from the cache."""
        self.hits_throughput = 0.0
        """Their bytes per second."""
        self.misses_rate = 0.0
        """Entries per second read from storage."""
        self.misses_throughput = 0.0
        """Their bytes per second."""
        self.evictions = 0
        """Size checks of the window that found bytes to free."""
        self.topic_loads_ms: list[float] = []
        """Times to open the topics that were opened in the window, sorted."""

    def roll(self, now: BrokerReading, now_ns: int) -> None:
        """Closes the window. Does nothing when no time has passed since the last roll."""
        seconds = (now_ns - self._rolled_ns) / 1e9
        if seconds <= 0:
            return
        before = self._reads
        self.hits_rate = (now.reads.hit_entries - before.hit_entries) / seconds
        self.hits_throughput = (now.reads.hit_bytes - before.hit_bytes) / seconds
        self.misses_rate = (now.reads.miss_entries - before.miss_entries) / seconds
        self.misses_throughput = (now.reads.miss_bytes - before.miss_bytes) / seconds
        size_evictions = now.manager.stats.size_evictions
        self.evictions = size_evictions - self._size_evictions
        # Only the last times are kept; more topics than that may have been opened in the window.
        times = list(now.topic_loads_ms)
        new = min(now.topic_loads - self._loads_seen, len(times))
        self.topic_loads_ms = sorted(times[len(times) - new :])
        self._loads_seen = now.topic_loads
        self._rolled_ns = now_ns
        self._reads = now.reads
        self._size_evictions = size_evictions


def quantile(histogram: Histogram, q: float) -> float:
    """Returns the value below which a share `q` (0 to 1) of all values lies.

    Values are taken as spread evenly over their bucket. Returns NaN without values, as Prometheus clients do; the last
    bucket has no end, so a value in it is returned as its lower bound.
    """
    rank = q * sum(histogram.counts)
    if not any(histogram.counts):
        return float("nan")
    lower = seen = 0.0
    # Not strict: there is one count more than bounds, and it is the case after the loop.
    for bound, count in zip(histogram.bounds, histogram.counts, strict=False):
        if count and seen + count >= rank:
            return lower + (bound - lower) * (rank - seen) / count
        seen += count
        lower = bound
    return lower


def quantile_of(values: Sequence[float], q: float) -> float:
    """Returns the exact quantile of sorted values; NaN without values."""
    return values[min(int(q * len(values)), len(values) - 1)] if values else float("nan")


def _grown(before: int, now: int) -> int:
    """Returns the growth of a counter; one that fell was begun again and counts from 0."""
    return now - before if now >= before else now


def _minus(now: Sequence[int], before: Sequence[int]) -> tuple[int, ...]:
    return tuple(map(sub, now, before))


def _topic_window(before: TopicReading, now: TopicReading, seconds: float) -> TopicWindow:
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
        write_replica_bytes_rate=(now.replica_bytes_added - before.replica_bytes_added) / seconds,
        read_rate=read / seconds,
        read_bytes_rate=(now.entry_bytes_read - before.entry_bytes_read) / seconds,
        cache_miss_rate=_grown(before.cache_misses, now.cache_misses) / seconds,
        added=added,
        added_bytes=added_bytes,
        add_errors=_grown(before.add_errors, now.add_errors),
        read=read,
        read_errors=_grown(before.read_errors, now.read_errors),
        write_latency_sum_us=now.write_latency_sum_us - before.write_latency_sum_us,
        write_latency=_minus(now.write_latency, before.write_latency),
        entry_size=_minus(now.entry_size, before.entry_size),
        subscriptions=_subscription_windows(before.subscriptions, now.subscriptions, seconds),
        producers=_producer_windows(before.producer_readings, now.producer_readings, seconds),
    )


def _subscription_windows(
    before: Sequence[SubscriptionReading], now: Sequence[SubscriptionReading], seconds: float
) -> dict[str, SubscriptionWindow]:
    earlier = {reading.name: reading for reading in before}
    windows = {}
    for reading in now:
        then = earlier.get(reading.name)
        # A subscription that was deleted and made again under its name counts from 0.
        if then is None or then.msgs_out > reading.msgs_out:
            then = SubscriptionReading(name=reading.name)
        windows[reading.name] = SubscriptionWindow(
            rate_out=(reading.msgs_out - then.msgs_out) / seconds,
            throughput_out=_grown(then.bytes_out, reading.bytes_out) / seconds,
            redeliver_rate=_grown(then.msgs_redelivered, reading.msgs_redelivered) / seconds,
            # Falls when a consumer leaves: a reading has the acknowledgements of connected consumers alone.
            ack_rate=_grown(then.msgs_acked, reading.msgs_acked) / seconds,
            drop_rate=_grown(then.msgs_dropped, reading.msgs_dropped) / seconds,
            expired_rate=_grown(then.expired, reading.expired) / seconds,
            consumers=_consumer_windows(then.consumer_readings, reading.consumer_readings, seconds),
        )
    return windows


def _consumer_windows(
    before: Sequence[ConsumerReading], now: Sequence[ConsumerReading], seconds: float
) -> dict[tuple[str, int], ConsumerWindow]:
    earlier = {(reading.name, reading.consumer_id): reading for reading in before}
    windows = {}
    for reading in now:
        then = earlier.get((reading.name, reading.consumer_id)) or ConsumerReading(name="", consumer_id=0)
        windows[reading.name, reading.consumer_id] = ConsumerWindow(
            rate_out=_grown(then.msgs_out, reading.msgs_out) / seconds,
            throughput_out=_grown(then.bytes_out, reading.bytes_out) / seconds,
            ack_rate=_grown(then.msgs_acked, reading.msgs_acked) / seconds,
            redeliver_rate=_grown(then.msgs_redelivered, reading.msgs_redelivered) / seconds,
        )
    return windows


def _producer_windows(
    before: Sequence[ProducerReading], now: Sequence[ProducerReading], seconds: float
) -> dict[str, ProducerWindow]:
    earlier = {reading.name: reading for reading in before}
    windows = {}
    for reading in now:
        then = earlier.get(reading.name) or ProducerReading(name="", producer_id=0)
        windows[reading.name] = ProducerWindow(
            rate_in=_grown(then.msgs_in, reading.msgs_in) / seconds,
            throughput_in=_grown(then.bytes_in, reading.bytes_in) / seconds,
        )
    return windows
