"""Readings of topics, subscriptions, consumers and producers at one moment.

`TopicReader` fills them from the rooms' counters, once for each scrape and window. They are copies because a window
needs the numbers of its beginning when the counters have moved on, and because a scrape writes its text over several
turns of the loop. The broker's own counters need no copy: see `broker_reading.py`.

Counters only grow; one that fell was begun again and counts from 0. Sizes in bytes, latencies in ms, timestamps in
ms since 1970, -1 for a limit or an age that does not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

WRITE_LATENCY_BOUNDS_MS: Final = (0.5, 1, 5, 10, 20, 50, 100, 200, 1000)
"""Upper bounds of Pulsar's latency buckets, inclusive; a tenth bucket takes the rest."""

ENTRY_SIZE_BOUNDS: Final = (128, 512, 1024, 2048, 4096, 16384, 102400, 1048576)
"""Upper bounds of Pulsar's size buckets in bytes, inclusive; a ninth bucket takes the rest."""

NO_LATENCIES: Final = (0,) * (len(WRITE_LATENCY_BOUNDS_MS) + 1)
"""Latency buckets of a topic without entries."""
NO_SIZES: Final = (0,) * (len(ENTRY_SIZE_BOUNDS) + 1)
"""Size buckets of a topic without entries."""


@dataclass(slots=True, kw_only=True)
class ProducerReading:
    """One producer's counters."""

    name: str
    """The producer's name, a label."""
    producer_id: int
    """The id on its connection, a label."""
    msgs_in: int = 0
    """Messages published."""
    bytes_in: int = 0
    """Their bytes."""


@dataclass(slots=True, kw_only=True)
class ConsumerReading:
    """One consumer's counters and levels."""

    name: str
    """The consumer's name, a label; empty if the client gave none."""
    consumer_id: int
    """The id on its connection, a label."""
    msgs_out: int = 0
    """Messages sent to it."""
    bytes_out: int = 0
    """Their bytes."""
    msgs_acked: int = 0
    """Messages that it acknowledged."""
    msgs_redelivered: int = 0
    """Messages sent to it that had been sent before."""
    unacked: int = 0
    """Messages sent and not acknowledged."""
    available_permits: int = 0
    """Messages that it may still be sent."""
    blocked: int = 0
    """1 while too many unacknowledged messages stop the deliveries."""


@dataclass(slots=True, kw_only=True)
class SubscriptionReading:
    """One subscription's counters and levels, its present and former consumers together."""

    name: str
    """The subscription's name, a label."""
    backlog: int = 0
    """Entries not yet acknowledged, delayed ones included."""
    delayed: int = 0
    """Entries that wait for their delivery time."""
    delayed_index_bytes: int = 0
    """Memory of the topic's index of such entries; 0 for types that deliver at once."""
    in_replay: int = 0
    """Entries that wait for redelivery; Pulsar's metric calls this queue replay."""
    unacked: int = 0
    """Messages sent and not acknowledged."""
    blocked: int = 0
    """1 while too many unacknowledged messages stop the deliveries."""
    consumers: int = 0
    """Connected consumers."""
    msgs_out: int = 0
    """Messages sent."""
    bytes_out: int = 0
    """Their bytes."""
    msgs_acked: int = 0
    """Messages that the connected consumers acknowledged."""
    msgs_redelivered: int = 0
    """Messages sent again."""
    expired: int = 0
    """Entries that expired."""
    last_expired_ms: int = 0
    """Time of the last expiry."""
    holes_redelivered: int = 0
    """Entries that were pending at no consumer and are delivered again."""
    acks_in_memory: int = 0
    """Acknowledged entries that did not fit into the cursor's info."""
    awaits_acks: int = 0
    """1 while nothing new is sent before acknowledgements fit into the cursor's info."""
    msgs_dropped: int = 0
    """Non-persistent topics: messages for which no consumer had a permit."""
    last_flow_ms: int = 0
    """Time of the last FLOW of any connected consumer."""
    cache_hits: int = 0
    """Entries read from the cache."""
    cache_misses: int = 0
    """Entries read from storage."""
    cache_coalesced: int = 0
    """Entries received from a storage read that another reader had begun."""
    consumer_readings: Sequence[ConsumerReading] = ()
    """Empty unless exposeConsumerLevelMetricsInPrometheus is set."""

    @property
    def backlog_no_delayed(self) -> int:
        """The backlog without delayed messages, a metric of its own in Pulsar."""
        return self.backlog - self.delayed


@dataclass(slots=True, kw_only=True)
class CompactionReading:
    """The compactions of one topic since it was opened, and the compacted ledger in use."""

    removed: int = 0
    """Messages that compactions removed."""
    succeeded: int = 0
    """Compactions that succeeded."""
    failed: int = 0
    """Compactions that failed."""
    duration_ms: int = 0
    """Duration of the last one."""
    read_throughput: float = 0.0
    """Bytes that the last one read per second, in both passes."""
    write_throughput: float = 0.0
    """Bytes that the last one wrote per second."""
    entries: int = 0
    """Entries of the compacted ledger."""
    size_bytes: int = 0
    """Bytes of those."""


@dataclass(slots=True, kw_only=True)
class TransactionsReading:
    """The transactions of one topic since it was opened."""

    active: int = 0
    """Open transactions."""
    committed: int = 0
    """Transactions committed."""
    aborted: int = 0
    """Transactions aborted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaReading:
    """Evictions by one backlog quota of a topic since the topic was opened."""

    evictions: int = 0
    """Times that it took messages from a subscription."""
    evicted_entries: int = 0
    """Entries taken."""


NO_EVICTIONS: Final = QuotaReading()
"""A quota that has taken nothing."""


@dataclass(slots=True, kw_only=True)
class TopicReading:
    """One topic's counters and levels."""

    namespace: str
    """`tenant/namespace`"""
    topic: str
    """`persistent://tenant/namespace/name`, with `-partition-N` where it has one."""
    producers: int = 0
    """Connected producers."""
    consumers: int = 0
    """Connected consumers of all subscriptions."""
    subscriptions: Sequence[SubscriptionReading] = ()
    """In the order of their creation."""
    msgs_in: int = 0
    """Messages published."""
    bytes_in: int = 0
    """Their bytes."""
    msgs_out: int = 0
    """Messages sent to consumers."""
    bytes_out: int = 0
    """Their bytes."""
    publish_rate_limited: int = 0
    """SENDs after which a connection had to wait for a publish rate."""
    backlog: int = 0
    """Entries, summed over the subscriptions."""
    backlog_size: int = 0
    """Bytes behind the slowest subscription."""
    backlog_age_seconds: int = -1
    """Age of the oldest unacknowledged message at the last look, -1 = not known."""
    backlog_quota_bytes: int = -1
    """Quota by size, -1 = none."""
    backlog_quota_seconds: int = -1
    """Quota by age, -1 = none."""
    size_quota: QuotaReading = NO_EVICTIONS
    """Evictions by the quota by size."""
    time_quota: QuotaReading = NO_EVICTIONS
    """Evictions by the quota by age."""
    storage_size: int = 0
    """Bytes kept, times the write quorum."""
    storage_logical_size: int = 0
    """Bytes kept, each once."""
    delayed_index_bytes: int = 0
    """Memory of the index of delayed entries."""
    offloaded_size: int = 0
    """Always 0: there is no tiered storage."""
    entries_added: int = 0
    """Entries stored."""
    entry_bytes_added: int = 0
    """Their bytes."""
    replica_bytes_added: int = 0
    """Their bytes, times the write quorum."""
    add_errors: int = 0
    """Adds that failed."""
    entries_read: int = 0
    """Entries that cursors read, from the cache or from storage."""
    entry_bytes_read: int = 0
    """Their bytes."""
    read_errors: int = 0
    """Reads that failed."""
    cache_hits: int = 0
    """Entries read from the cache."""
    cache_misses: int = 0
    """Entries read from storage."""
    cache_coalesced: int = 0
    """Entries received from a storage read that another reader had begun."""
    write_latency: Sequence[int] = NO_LATENCIES
    """Entries by the time from the add to its confirmation; WRITE_LATENCY_BOUNDS_MS."""
    write_latency_sum_us: int = 0
    """The sum of these times, µs."""
    entry_size: Sequence[int] = NO_SIZES
    """Entries by size; ENTRY_SIZE_BOUNDS."""
    producer_readings: Sequence[ProducerReading] = ()
    """Empty unless exposeProducerLevelMetricsInPrometheus is set."""
    compaction: CompactionReading | None = None
    """None for a topic that was never compacted."""
    transactions: TransactionsReading | None = None
    """None for a topic that no transaction has published to."""

    @property
    def subscription_count(self) -> int:
        """The number of subscriptions."""
        return len(self.subscriptions)
