"""What the rooms say when they are asked for a scrape: counters since start and levels as they are now.

Filled by whoever composes the broker, from the plain integers that the rooms keep; read by windows and
exposition. Counters only ever grow (one that falls was begun anew and counts from nought); rates and
everything else "per window" is worked out here, never by the rooms. Sizes in bytes, latencies in
milliseconds, timestamps in milliseconds since 1970, -1 where a limit or an age does not exist.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

WRITE_LATENCY_BOUNDS_MS: Final = (0.5, 1, 5, 10, 20, 50, 100, 200, 1000)
"""Upper bounds, inclusive; a tenth bucket takes the rest."""

ENTRY_SIZE_BOUNDS: Final = (128, 512, 1024, 2048, 4096, 16384, 102400, 1048576)
"""Upper bounds in bytes, inclusive; a ninth bucket takes the rest."""

NO_LATENCIES: Final = (0,) * (len(WRITE_LATENCY_BOUNDS_MS) + 1)
NO_SIZES: Final = (0,) * (len(ENTRY_SIZE_BOUNDS) + 1)


class Histogram(NamedTuple):
    """Counts since start.

    `counts[i]` = values above `bounds[i - 1]`, up to and with `bounds[i]`; one count more for the rest.
    """

    bounds: Sequence[float]
    counts: Sequence[int]
    total: float
    """The sum of all values."""


@dataclass(slots=True, kw_only=True)
class ProducerStats:
    name: str
    producer_id: int
    msgs_in: int = 0
    bytes_in: int = 0


@dataclass(slots=True, kw_only=True)
class ConsumerStats:
    name: str
    consumer_id: int
    msgs_out: int = 0
    bytes_out: int = 0
    msgs_acked: int = 0
    msgs_redelivered: int = 0
    unacked: int = 0
    available_permits: int = 0
    blocked: int = 0
    """1 while too many unacknowledged messages stop the deliveries."""


@dataclass(slots=True, kw_only=True)
class SubscriptionStats:
    name: str
    backlog: int = 0
    """Entries not yet acknowledged, delayed ones included."""
    delayed: int = 0
    in_replay: int = 0
    unacked: int = 0
    blocked: int = 0
    """1 while too many unacknowledged messages stop the deliveries."""
    consumers: int = 0
    msgs_out: int = 0
    bytes_out: int = 0
    msgs_acked: int = 0
    msgs_redelivered: int = 0
    msgs_dropped: int = 0
    """Non-persistent topics: messages for which no consumer had a permit."""
    last_flow_ms: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    cache_coalesced: int = 0
    consumer_stats: Sequence[ConsumerStats] = ()
    """Needed only with exposeConsumerLevelMetricsInPrometheus."""

    @property
    def backlog_no_delayed(self) -> int:
        return self.backlog - self.delayed


@dataclass(slots=True, kw_only=True)
class TopicStats:
    namespace: str
    """`tenant/namespace`"""
    topic: str
    """`persistent://tenant/namespace/name`, with `-partition-N` where it has one."""
    producers: int = 0
    consumers: int = 0
    subscriptions: Sequence[SubscriptionStats] = ()
    msgs_in: int = 0
    bytes_in: int = 0
    msgs_out: int = 0
    bytes_out: int = 0
    backlog: int = 0
    """Entries, summed over the subscriptions."""
    backlog_size: int = 0
    """Bytes behind the slowest subscription."""
    backlog_age_seconds: int = -1
    backlog_quota_bytes: int = -1
    backlog_quota_seconds: int = -1
    storage_size: int = 0
    storage_logical_size: int = 0
    offloaded_size: int = 0
    entries_added: int = 0
    entry_bytes_added: int = 0
    add_errors: int = 0
    entries_read: int = 0
    """Entries that cursors read, wherever they came from."""
    entry_bytes_read: int = 0
    read_errors: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    cache_coalesced: int = 0
    write_latency: Sequence[int] = NO_LATENCIES
    """Entries by the time from the add to its confirmation; WRITE_LATENCY_BOUNDS_MS."""
    write_latency_sum_ms: float = 0.0
    entry_size: Sequence[int] = NO_SIZES
    """Entries by size; ENTRY_SIZE_BOUNDS."""
    producer_stats: Sequence[ProducerStats] = ()
    """Needed only with exposeProducerLevelMetricsInPrometheus."""

    @property
    def subscription_count(self) -> int:
        return len(self.subscriptions)


@dataclass(slots=True, kw_only=True)
class CacheStats:
    """The entry cache of the broker. Hits, misses and coalesced reads in entries; no entry is two of them."""

    used_bytes: int = 0
    max_bytes: int = 0
    entries: int = 0
    pinned_bytes: int = 0
    """Bytes of receive buffers kept alive by shared entries, beyond the entries' own length."""
    queue_length: int = 0
    tombstones: int = 0
    expected_entries: int = 0
    """Cached, with expected reads left."""
    expected_bytes: int = 0
    duplicates: int = 0
    hits: int = 0
    hit_bytes: int = 0
    misses: int = 0
    miss_bytes: int = 0
    coalesced: int = 0
    coalesced_bytes: int = 0
    insertions: int = 0
    evictions: Mapping[str, int] = field(default_factory=dict)
    """Entries removed, by reason: ttl, size, ledger, invalidate. Likewise the next three."""
    evicted_bytes: Mapping[str, int] = field(default_factory=dict)
    evicted_expected: Mapping[str, int] = field(default_factory=dict)
    evicted_expected_bytes: Mapping[str, int] = field(default_factory=dict)
    evicted_ages: Mapping[str, Histogram] = field(default_factory=dict)
    """By reason, ttl or size, in seconds. Likewise the next one."""
    evicted_idle: Mapping[str, Histogram] = field(default_factory=dict)
    passes: Mapping[str, int] = field(default_factory=dict)
    """By what they were for, ttl or size. Likewise the next one."""
    visits: Mapping[str, int] = field(default_factory=dict)
    pass_slices: Mapping[str, Histogram] = field(default_factory=dict)
    """By what made them due, periodic or insert, in seconds."""
    size_passes: int = 0
    """Runs of the removal queue for lack of room."""
    requeues: Mapping[str, int] = field(default_factory=dict)
    """Entries put back by the removal queue, by cause: expected_reads, recently_accessed."""
    joined_reads: Mapping[str, int] = field(default_factory=dict)
    """Entries seen by the read coalescer, under the names of JOINED_READS."""
    inflight_bytes: int = -1
    inflight_available_bytes: int = -1
    inflight_limit_bytes: int = -1
    reads_waiting: int = 0


@dataclass(slots=True, kw_only=True)
class RecordStats:
    """The access record; all 0 where nothing is recorded."""

    rows: int = 0
    dropped: int = 0
    size_bytes: int = 0
    """Of complete files, like `files`."""
    files: int = 0
    errors: int = 0


@dataclass(slots=True, kw_only=True)
class BrokerStats:
    cache: CacheStats = field(default_factory=CacheStats)
    record: RecordStats = field(default_factory=RecordStats)
    ledgers_open: int = 0
    """Managed ledgers, one per open persistent topic."""
    connections_active: int = 0
    connections_created: int = 0
    connections_closed: int = 0
    topic_loads: int = 0
    """Topics opened since the start."""
    topic_loads_ms: Sequence[float] = ()
    """How long each of the last ones took to open, in the order in which they were opened."""
