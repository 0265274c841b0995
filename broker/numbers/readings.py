"""Readings of topics, subscriptions, consumers and producers at one moment, as rows in the order of their columns.

`TopicReader` fills them from the rooms' counters, once for each scrape and window. They are copies because a window
needs the numbers of its beginning when the counters have moved on, and because a scrape writes its text over several
turns of the loop. The broker's own counters need no copy: see `broker/metrics/broker_reading.py`.

The numbers are those that the families of `topic_families.py` ask for. Counters only grow; one that fell was begun again
and counts from 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.managed_ledger.stats import ADD_LATENCY_BOUNDS_NS, ENTRY_SIZE_BOUNDS
from broker.numbers.columns import Columns, Row
from broker.numbers.topic_families import (
    BACKLOG_AGE,
    COMPACTION,
    CONSUMER,
    NAMESPACE,
    OUT_TOTALS,
    PRODUCER,
    QUOTAS,
    REDELIVER,
    SUBSCRIPTION,
    SUBSCRIPTION_CACHE,
    TOPIC,
    TOTALS,
    TRANSACTIONS,
)

NO_LATENCIES: Final = (0,) * (len(ADD_LATENCY_BOUNDS_NS) + 1)
"""Latency buckets of a topic without entries."""
NO_SIZES: Final = (0,) * (len(ENTRY_SIZE_BOUNDS) + 1)
"""Size buckets of a topic without entries."""


class TopicSums(NamedTuple):
    """Numbers of a topic that are computed when it is read; the subscriptions' are sums over these."""

    subscriptions: int = 0
    """Subscriptions."""
    producers: int = 0
    """Connected producers."""
    consumers: int = 0
    """Connected consumers of all subscriptions."""
    messages_out: int = 0
    """Messages sent to consumers."""
    bytes_out: int = 0
    """Their bytes."""
    backlog: int = 0
    """Entries not acknowledged."""
    backlog_size: int = 0
    """Backlog of the slowest subscription in bytes, an estimate."""
    storage_size: int = 0
    """Bytes kept, times the write quorum."""
    storage_logical_size: int = 0
    """Bytes kept, each once."""
    offloaded_size: int = 0
    """Always 0: there is no tiered storage."""
    replica_bytes_added: int = 0
    """Bytes of stored entries, times the write quorum."""
    write_latency_sum_us: int = 0
    """The sum of all times from the add of an entry to its confirmation, µs."""


class SubscriptionSums(NamedTuple):
    """Numbers of a subscription that are computed when it is read, its present and former consumers together."""

    consumers: int = 0
    """Connected consumers."""
    backlog: int = 0
    """Entries not yet acknowledged, delayed ones included; 0 for a non-persistent topic."""
    delayed: int = 0
    """Entries that wait for their delivery time."""
    backlog_no_delayed: int = 0
    """The backlog without these."""
    holes_redelivered: int = 0
    """Entries that were pending at no consumer and are delivered again."""
    pending_holes_redelivered: int = 0
    """Entries that were pending at a consumer for too long before an acknowledged one and are delivered again."""
    awaits_acks: int = 0
    """1 while nothing new is sent before acknowledgements fit into the cursor's info."""
    messages_dropped: int = 0
    """Non-persistent topics: messages for which no consumer had a permit."""
    messages_out: int = 0
    """Messages sent."""
    bytes_out: int = 0
    """Their bytes."""
    messages_redelivered: int = 0
    """Messages sent again."""
    acked_messages: int = 0
    """Messages that the connected consumers acknowledged."""
    unacked: int = 0
    """Messages sent and not acknowledged."""
    blocked: int = 0
    """1 while too many unacknowledged messages stop the deliveries."""
    last_consumed_flow_ms: int = 0
    """Time of the last FLOW of any consumer, ms since 1970."""
    backlog_age_seconds: int = -1
    """Age of the oldest unacknowledged entry at the last look, -1 = not known or not asked for."""


class CompactionSums(NamedTuple):
    """Numbers of a topic's compactions that are computed when it is read."""

    read_throughput: float = 0.0
    """Bytes that the last one read per second, in both passes."""
    write_throughput: float = 0.0
    """Bytes that the last one wrote per second."""
    entries: int = 0
    """Entries of the compacted ledger."""
    size_bytes: int = 0
    """Bytes of those."""


TOPICS: Final = Columns(
    (*TOPIC, *OUT_TOTALS, *NAMESPACE, *TOTALS),
    *TopicSums._fields,
    extra=(
        "mean_size",
        *(f"write_latency.{place}" for place in range(len(NO_LATENCIES))),
        *(f"entry_size.{place}" for place in range(len(NO_SIZES))),
        "topics",  # Always 1, so that its sum is the number of topics.
    ),
    # A topic that is not stored has no age and no quotas.
    missing={"quotas.oldest_age_s": -1, "quotas.size.size_max": -1, "quotas.age.age_max_s": -1},
)
"""Rows of topics, and of sums over topics; chains begin at a `PersistentTopic`."""
SUBSCRIPTIONS: Final = Columns(
    (*SUBSCRIPTION, BACKLOG_AGE, REDELIVER, *SUBSCRIPTION_CACHE),
    *SubscriptionSums._fields,
    missing={"backlog_age_seconds": -1},
)
"""Rows of subscriptions; chains begin at a `Subscription`."""
CONSUMERS: Final = Columns(CONSUMER, "blocked")
"""Rows of consumers; chains begin at a `Consumer`."""
PRODUCERS: Final = Columns(PRODUCER)
"""Rows of producers; chains begin at a `Producer`."""
COMPACTIONS: Final = Columns(COMPACTION, *CompactionSums._fields)
"""Rows of compacted topics; chains begin at a `TopicCompaction`."""
BUFFERS: Final = Columns(TRANSACTIONS, "active")
"""Rows of topics with transactions; chains begin at a `TransactionBuffer`."""
EVICTIONS: Final = Columns(QUOTAS, "evictions", "evicted_entries")
"""Rows of the two quotas of a topic."""


class Chosen(NamedTuple):
    """The topics that a scrape asks for; none chosen stands for all."""

    namespaces: frozenset[str] = frozenset()
    """`tenant/namespace`"""
    topics: frozenset[str] = frozenset()
    """Full names."""


class PartReading(NamedTuple):
    """One subscription, consumer or producer."""

    key: tuple[str, int]
    """Name and id on its connection, both labels; the id of a subscription is 0."""
    row: Row
    """Its numbers."""
    parts: Sequence[PartReading] = ()
    """The consumers of a subscription; empty unless exposeConsumerLevelMetricsInPrometheus is set."""


class TopicReading(NamedTuple):
    """One topic."""

    namespace: str
    """`tenant/namespace`"""
    topic: str
    """`persistent://tenant/namespace/name`, with `-partition-N` where it has one."""
    row: Row
    """Its numbers."""
    subscriptions: Sequence[PartReading] = ()
    """In the order of their creation."""
    producers: Sequence[PartReading] = ()
    """Empty unless exposeProducerLevelMetricsInPrometheus is set."""
    write_latency: Sequence[int] = NO_LATENCIES
    """Entries by the time from the add to its confirmation; WRITE_LATENCY_BOUNDS_MS."""
    entry_size: Sequence[int] = NO_SIZES
    """Entries by size; ENTRY_SIZE_BOUNDS."""
    quotas: tuple[Row, Row] = (EVICTIONS.nothing, EVICTIONS.nothing)
    """Evictions by the quota by size and by that by age."""
    compaction: Row | None = None
    """None for a topic that was never compacted."""
    transactions: Row | None = None
    """None for a topic that no transaction has published to."""

    @property
    def rows(self) -> int:
        """Returns the number of rows: of the topic, its subscriptions and their consumers, and its producers."""
        consumers = sum([len(one.parts) for one in self.subscriptions])
        return 1 + len(self.subscriptions) + consumers + len(self.producers)
