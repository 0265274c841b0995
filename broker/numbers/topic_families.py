"""The families of topics, their subscriptions, consumers and producers, and of sums over topics.

The one table of these numbers: each printer takes them from here by their Prometheus name. A source is the chain of
attributes from the topic, subscription, consumer or producer to the number, or the name of one that is computed
(`readings.py`); for buckets it has their place after it. `rate` and `grown` print its growth in the last whole window.
Two families may share a source where boards ask for a name that Pulsar itself prints differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from broker.managed_ledger.stats import ADD_LATENCY_BOUNDS_NS, ENTRY_SIZE_BOUNDS
from broker.numbers.family import Family, counter, gauge, grown, rate

WRITE_LATENCY_BOUNDS_MS: Final = tuple(bound / 1e6 for bound in ADD_LATENCY_BOUNDS_NS)
"""Upper bounds of Pulsar's latency buckets, inclusive; a tenth bucket takes the rest."""


def _bucket_names(bounds: Sequence[float]) -> tuple[str, ...]:
    """Returns Pulsar's names of buckets: `0.0_0.5`, `0.5_1.0` and so on; the last one has none."""
    edges = (0.0, *map(float, bounds))
    return tuple(f"{low}_{high}" for low, high in pairwise(edges))


LATENCY_SUFFIXES: Final = (
    *(f"le_{bound:g}".replace(".", "_") for bound in WRITE_LATENCY_BOUNDS_MS),
    "overflow",
)
"""Ends of the names of Pulsar's latency gauges, one per bucket."""
SIZE_SUFFIXES: Final = (
    "le_128",
    "le_512",
    "le_1_kb",
    "le_2_kb",
    "le_4_kb",
    "le_16_kb",
    "le_100_kb",
    "le_1_mb",
    "le_overflow",
)
"""Ends of the names of Pulsar's size gauges, one per bucket."""
assert len(SIZE_SUFFIXES) == len(ENTRY_SIZE_BOUNDS) + 1

TOPIC: Final = (
    gauge("pulsar_subscriptions_count", "subscriptions", "Subscriptions.", zero=True),
    gauge("pulsar_producers_count", "producers", "Connected producers.", zero=True),
    gauge("pulsar_consumers_count", "consumers", "Connected consumers.", zero=True),
    rate("pulsar_rate_in", "messages_in", "Messages published per second.", zero=True),
    rate("pulsar_rate_out", "messages_out", "Messages sent to consumers per second.", zero=True),
    rate("pulsar_throughput_in", "bytes_in", "Bytes published per second.", zero=True),
    rate("pulsar_throughput_out", "bytes_out", "Bytes sent per second.", zero=True),
    gauge("pulsar_average_msg_size", "mean_size", "Mean bytes of a message.", sums=False),
    counter("pulsar_in_messages_total", "messages_in", "Messages published."),
    counter("pulsar_in_bytes_total", "bytes_in", "Bytes published."),
    gauge(
        "pulsar_publish_rate_limit_times",
        "publish_rate_limited",
        "Messages after which a connection waited for a publish rate.",
    ),
    gauge("pulsar_msg_backlog", "backlog", "Entries not acknowledged, over all subscriptions.", zero=True),
    gauge("pulsar_storage_size", "storage_size", "Bytes kept, times the write quorum.", zero=True),
    gauge("pulsar_storage_logical_size", "storage_logical_size", "Bytes kept, each once."),
    gauge("pulsar_storage_offloaded_size", "offloaded_size", "Bytes with a copy in tiered storage."),
    gauge("pulsar_storage_backlog_size", "backlog_size", "Backlog of the slowest subscription in bytes."),
    gauge(
        "pulsar_storage_backlog_age_seconds",
        "quotas.oldest_age_s",
        "Age of the oldest unacknowledged entry, -1 if not known.",
        sums=False,
    ),
    gauge(
        "pulsar_storage_backlog_quota_limit",
        "quotas.size.size_max",
        "Backlog quota in bytes, -1 if there is none.",
        sums=False,
    ),
    gauge(
        "pulsar_storage_backlog_quota_limit_time",
        "quotas.age.age_max_s",
        "Backlog quota in seconds, -1 if there is none.",
        sums=False,
    ),
    gauge(
        "pulsar_delayed_message_index_size_bytes",
        "delays.entries.size_bytes",
        "Memory of the index of delayed entries, which all subscriptions share.",
    ),
    rate("pulsar_storage_write_rate", "ledger.stats.entries_added", "Entries stored per second.", zero=True),
    rate(
        "pulsar_storage_read_rate",
        "ledger.stats.entries_read",
        "Entries read per second, cached or not.",
        zero=True,
    ),
    grown("pulsar_storage_read_latency_count", "ledger.stats.entries_read", "Entries read in the window."),
    rate("pulsar_storage_read_cache_misses_rate", "ledger.reads.miss_entries", "Cache misses per second."),
    counter("pulsar_ml_cache_x_topic_hits_total", "ledger.reads.hit_entries", "Entries read from the cache."),
    counter(
        "pulsar_ml_cache_x_topic_misses_total",
        "ledger.reads.miss_entries",
        "Entries read from storage.",
    ),
    counter(
        "pulsar_ml_cache_x_topic_coalesced_total",
        "ledger.reads.coalesced_entries",
        "Entries received from a storage read that another reader had begun.",
    ),
    grown(
        "pulsar_storage_write_latency_count", "ledger.stats.entries_added", "Entries stored in the window."
    ),
    grown("pulsar_storage_write_latency_sum", "write_latency_sum_us", "Their write latency together, µs."),
    *(
        gauge(
            f"pulsar_storage_write_latency_{suffix}",
            f"write_latency.{place}",
            "Entries of the window by write latency in ms, not cumulative.",
        )
        for place, suffix in enumerate(LATENCY_SUFFIXES)
    ),
    grown("pulsar_entry_size_count", "ledger.stats.entries_added", "Entries stored in the window."),
    grown("pulsar_entry_size_sum", "ledger.stats.bytes_added", "Their bytes."),
    *(
        gauge(
            f"pulsar_entry_size_{suffix}",
            f"entry_size.{place}",
            "Entries of the window by size in bytes, not cumulative.",
        )
        for place, suffix in enumerate(SIZE_SUFFIXES)
    ),
    gauge(
        "pulsar_entry_size_overflow",
        f"entry_size.{len(ENTRY_SIZE_BOUNDS)}",
        "As pulsar_entry_size_le_overflow, under the name that boards ask for.",
    ),
)
"""Labels cluster, namespace, topic; `zero` marks those that are also printed with the cluster alone."""

OUT_TOTALS: Final = (
    counter("pulsar_out_messages_total", "messages_out", "Messages sent to consumers."),
    counter("pulsar_out_bytes_total", "bytes_out", "Bytes sent to consumers."),
)
"""Of subscriptions, as in Pulsar; of a namespace without `exposeTopicLevelMetricsInPrometheus`."""

SUBSCRIPTION: Final = (
    *OUT_TOTALS,
    gauge("pulsar_subscription_back_log", "backlog", "Entries not acknowledged."),
    gauge("pulsar_subscription_back_log_no_delayed", "backlog_no_delayed", "The same, without delayed ones."),
    gauge(
        "pulsar_subscription_delayed",
        "delayed",
        "Entries waiting for their delivery time.",
    ),
    gauge(
        "pulsar_subscription_delayed_message_index_size_bytes",
        "delayed_index_bytes",
        "The topic's index of delayed entries, for Shared and Key_Shared subscriptions.",
        sums=False,
    ),
    gauge("pulsar_subscription_in_replay", "waiting_for_redelivery", "Entries waiting to be sent again."),
    gauge("pulsar_subscription_unacked_messages", "unacked", "Messages sent and not acknowledged."),
    gauge(
        "pulsar_subscription_blocked_on_unacked_messages",
        "blocked",
        "1 while unacknowledged messages stop the deliveries.",
    ),
    gauge("pulsar_subscription_consumers_count", "consumers", "Connected consumers."),
    rate("pulsar_subscription_msg_rate_out", "messages_out", "Messages sent per second."),
    rate("pulsar_subscription_msg_throughput_out", "bytes_out", "Bytes sent per second."),
    rate("pulsar_subscription_msg_rate_redeliver", "messages_redelivered", "Messages sent again per second."),
    rate("pulsar_subscription_msg_ack_rate", "acked_messages", "Messages acknowledged per second."),
    rate("pulsar_subscription_msg_drop_rate", "messages_dropped", "Messages dropped per second."),
    rate("pulsar_subscription_msg_rate_expired", "expired.total", "Entries expired per second."),
    gauge("pulsar_subscription_total_msg_expired", "expired.total", "Entries expired."),
    gauge("pulsar_subscription_last_expire_timestamp", "expired.last_ms", "Last expiry, ms."),
    gauge("pulsar_subscription_last_consumed_flow_timestamp", "last_consumed_flow_ms", "Last FLOW, ms."),
    counter(
        "magnetar_subscription_holes_redelivered_total",
        "holes_redelivered",
        "Entries that were pending at no consumer and are delivered again.",
    ),
    counter(
        "magnetar_subscription_pending_holes_redelivered_total",
        "pending_holes_redelivered",
        "Entries that were pending at a consumer for too long before an acknowledged one and are delivered again.",
    ),
    gauge(
        "magnetar_subscription_acks_in_memory",
        "cursor.store.left_out",
        "Acknowledged entries that a crash would deliver again, because they did not fit into the cursor's info.",
    ),
    gauge(
        "magnetar_subscription_awaits_acks",
        "awaits_acks",
        "1 while nothing new is sent before acknowledgements fit (dispatcherPauseOnAckStatePersistentEnabled).",
    ),
)
"""Labels cluster, namespace, topic, subscription."""

BACKLOG_AGE: Final = gauge(
    "pulsar_subscription_storage_backlog_age_seconds",
    "backlog_age_seconds",
    "Age of its oldest unacknowledged entry (exposeSubscriptionBacklogAgeInPrometheus).",
)
"""Labels as SUBSCRIPTION; of durable subscriptions whose age is known (PIP-492)."""

COMPACTION: Final = (
    gauge("pulsar_compaction_removed_event_count", "counts.removed", "Messages that compactions removed."),
    gauge("pulsar_compaction_succeed_count", "counts.succeeded", "Compactions that succeeded."),
    gauge("pulsar_compaction_failed_count", "counts.failed", "Compactions that failed."),
    gauge(
        "pulsar_compaction_duration_time_in_mills",
        "counts.last_duration_ms",
        "Duration of the last compaction, ms.",
    ),
    gauge("pulsar_compaction_read_throughput", "read_throughput", "Bytes the last one read per second."),
    gauge("pulsar_compaction_write_throughput", "write_throughput", "Bytes the last one wrote per second."),
    gauge("pulsar_compaction_compacted_entries_count", "entries", "Entries of the compacted ledger."),
    gauge("pulsar_compaction_compacted_entries_size", "size_bytes", "Bytes of the compacted ledger."),
)
"""Labels as TOPIC; of topics that were compacted, or whose compaction failed."""

TRANSACTIONS: Final = (
    gauge("pulsar_txn_tb_active_total", "active", "Open transactions on the topic."),
    gauge("pulsar_txn_tb_committed_total", "commits", "Transactions committed on the topic."),
    gauge("pulsar_txn_tb_aborted_total", "aborts", "Transactions aborted on the topic."),
)
"""Labels as TOPIC; of topics that transactions have published to. Gauges, as Pulsar prints them."""

QUOTAS: Final = (
    counter(
        "pulsar_storage_backlog_quota_exceeded_evictions_total",
        "evictions",
        "Times that a backlog quota took messages from a subscription.",
    ),
    counter(
        "magnetar_backlog_quota_evicted_entries_total",
        "evicted_entries",
        "Entries that backlog quotas took from subscriptions.",
    ),
)
"""Labels as TOPIC, and quota_type: size or time."""

BROKER_QUOTAS: Final = counter(
    "pulsar_broker_storage_backlog_quota_exceeded_evictions_total",
    "evictions",
    "The same for all topics together.",
)
"""Labels cluster, quota_type."""

REDELIVER: Final = rate(
    "pulsar_consumer_msg_rate_redeliver", "messages_redelivered", "Messages sent again per second."
)
"""With consumer metrics off it is printed per subscription, because a stock board asks for it either way."""

SUBSCRIPTION_CACHE: Final = (
    counter(
        "pulsar_ml_cache_x_subscription_hits_total",
        "cursor.reader.reads.hit_entries",
        "Entries read from the cache.",
    ),
    counter(
        "pulsar_ml_cache_x_subscription_misses_total",
        "cursor.reader.reads.miss_entries",
        "Entries read from storage.",
    ),
    counter(
        "pulsar_ml_cache_x_subscription_coalesced_total",
        "cursor.reader.reads.coalesced_entries",
        "Entries received from a storage read that another reader had begun.",
    ),
)
"""Labels as SUBSCRIPTION; for those that have read most, as many as entryCacheSubscriptionMetricsMax."""

CACHE_SUBSCRIPTIONS_LEFT_OUT: Final = gauge(
    "pulsar_ml_cache_x_subscriptions_left_out",
    "",
    "Subscriptions that have read something and have no series of their own.",
)
"""Label cluster."""

CONSUMER: Final = (
    REDELIVER,
    gauge("pulsar_consumer_unacked_messages", "unacked", "Messages sent and not acknowledged."),
    gauge("pulsar_consumer_blocked_on_unacked_messages", "blocked", "1 while these stop the deliveries."),
    gauge("pulsar_consumer_available_permits", "permits", "Messages it may still be sent."),
    rate("pulsar_consumer_msg_rate_out", "messages_out", "Messages sent per second."),
    rate("pulsar_consumer_msg_throughput_out", "bytes_out", "Bytes sent per second."),
    rate("pulsar_consumer_msg_ack_rate", "acked_messages", "Messages acknowledged per second."),
    counter("pulsar_consumer_out_messages_total", "messages_out", "Messages sent."),
    counter("pulsar_consumer_out_bytes_total", "bytes_out", "Bytes sent."),
)
"""Labels as SUBSCRIPTION, and consumer_name, consumer_id."""

PRODUCER: Final = (
    rate("pulsar_producer_msg_rate_in", "messages_in", "Messages published per second."),
    rate("pulsar_producer_msg_throughput_in", "bytes_in", "Bytes published per second."),
)
"""Labels as TOPIC, and producer_name, producer_id."""

TOPICS_COUNT: Final = gauge("pulsar_topics_count", "topics", "Topics, open and dormant.", zero=True)
"""Labels cluster, namespace."""

NAMESPACE: Final = (
    rate("pulsar_ml_AddEntryBytesRate", "ledger.stats.bytes_added", "Bytes stored per second."),
    rate(
        "pulsar_ml_AddEntryWithReplicasBytesRate",
        "replica_bytes_added",
        "The same, times the write quorum.",
    ),
    rate("pulsar_ml_AddEntryMessagesRate", "ledger.stats.entries_added", "Entries stored per second."),
    grown("pulsar_ml_AddEntrySucceed", "ledger.stats.entries_added", "Entries stored in the window."),
    grown("pulsar_ml_AddEntryErrors", "ledger.stats.add_errors", "Failed adds in the window."),
    rate("pulsar_ml_ReadEntriesBytesRate", "ledger.stats.bytes_read", "Bytes read per second."),
    rate("pulsar_ml_ReadEntriesRate", "ledger.stats.entries_read", "Entries read per second."),
    grown("pulsar_ml_ReadEntriesSucceeded", "ledger.stats.entries_read", "Entries read in the window."),
    grown("pulsar_ml_ReadEntriesErrors", "ledger.stats.read_errors", "Failed reads in the window."),
    rate(
        "pulsar_ml_ReadEntriesOpsCacheMissesRate",
        "ledger.reads.miss_entries",
        "Cache misses per second.",
    ),
    gauge("pulsar_ml_NumberOfMessagesInBacklog", "backlog", "Entries not acknowledged."),
    gauge("pulsar_ml_StoredMessagesSize", "storage_logical_size", "Bytes kept."),
)
"""Sums over a namespace, labels cluster, namespace (exposeManagedLedgerMetricsInPrometheus).

The namespace has `/persistent` after it, as Pulsar prints it for managed ledgers.
"""

NAMESPACE_BUCKETS: Final = (
    (
        gauge(
            "pulsar_ml_AddEntryLatencyBuckets",
            "write_latency",
            "Entries per second by write latency, ms.",
        ),
        _bucket_names(WRITE_LATENCY_BOUNDS_MS),
    ),
    (
        gauge("pulsar_ml_EntrySizeBuckets", "entry_size", "Entries per second by size, bytes."),
        _bucket_names(ENTRY_SIZE_BOUNDS),
    ),
)
"""As NAMESPACE, with the bucket's name in the label `quantile`; the last bucket is a family of its own, as in Pulsar."""


def overflow_of(family: Family) -> Family:
    """Returns the family of the last bucket."""
    return replace(family, name=f"{family.name}_OVERFLOW")


TOTALS: Final = (
    gauge("pulsar_broker_topics_count", "topics", "Topics, open and dormant."),
    gauge("pulsar_broker_subscriptions_count", "subscriptions", "Subscriptions."),
    gauge("pulsar_broker_producers_count", "producers", "Connected producers."),
    gauge("pulsar_broker_consumers_count", "consumers", "Connected consumers."),
    rate("pulsar_broker_rate_in", "messages_in", "Messages published per second."),
    rate("pulsar_broker_rate_out", "messages_out", "Messages sent per second."),
    rate("pulsar_broker_throughput_in", "bytes_in", "Bytes published per second."),
    rate("pulsar_broker_throughput_out", "bytes_out", "Bytes sent per second."),
    counter("pulsar_broker_in_bytes_total", "bytes_in", "Bytes published."),
    counter("pulsar_broker_out_bytes_total", "bytes_out", "Bytes sent."),
    gauge("pulsar_broker_storage_size", "storage_size", "Bytes kept, times the write quorum."),
    gauge("pulsar_broker_storage_logical_size", "storage_logical_size", "Bytes kept, each once."),
    rate("pulsar_broker_storage_write_rate", "ledger.stats.entries_added", "Entries stored per second."),
    rate("pulsar_broker_storage_read_rate", "ledger.stats.entries_read", "Entries read per second."),
    rate(
        "pulsar_broker_storage_read_cache_misses_rate",
        "ledger.reads.miss_entries",
        "Cache misses per second.",
    ),
    gauge("pulsar_broker_msg_backlog", "backlog", "Entries not acknowledged."),
)
"""Sums over the broker, label cluster."""
