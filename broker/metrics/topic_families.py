"""The families of topics, their subscriptions, consumers and producers, and of sums over topics.

`exposition.py` prints them. A source is `now.` and a field of the reading (`readings.py`), or `window.` and a field of
the last whole window (`window.py`), with a place in its buckets behind it where it has some. Two families may share a
source where boards ask for a name that Pulsar itself prints differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from broker.metrics.family import Family, counter, gauge
from broker.metrics.readings import ENTRY_SIZE_BOUNDS, WRITE_LATENCY_BOUNDS_MS


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
    gauge("pulsar_subscriptions_count", "now.subscription_count", "Subscriptions.", zero=True),
    gauge("pulsar_producers_count", "now.producers", "Connected producers.", zero=True),
    gauge("pulsar_consumers_count", "now.consumers", "Connected consumers.", zero=True),
    gauge("pulsar_rate_in", "window.rate_in", "Messages published per second.", zero=True),
    gauge("pulsar_rate_out", "window.rate_out", "Messages sent to consumers per second.", zero=True),
    gauge("pulsar_throughput_in", "window.throughput_in", "Bytes published per second.", zero=True),
    gauge("pulsar_throughput_out", "window.throughput_out", "Bytes sent per second.", zero=True),
    gauge("pulsar_average_msg_size", "window.average_msg_size", "Mean bytes of a message.", sums=False),
    counter("pulsar_in_messages_total", "now.msgs_in", "Messages published."),
    counter("pulsar_in_bytes_total", "now.bytes_in", "Bytes published."),
    gauge(
        "pulsar_publish_rate_limit_times",
        "now.publish_rate_limited",
        "Messages after which a connection waited for a publish rate.",
    ),
    gauge(
        "pulsar_msg_backlog", "now.backlog", "Entries not acknowledged, over all subscriptions.", zero=True
    ),
    gauge("pulsar_storage_size", "now.storage_size", "Bytes kept, times the write quorum.", zero=True),
    gauge("pulsar_storage_logical_size", "now.storage_logical_size", "Bytes kept, each once."),
    gauge(
        "pulsar_storage_offloaded_size", "now.offloaded_size", "Bytes in tiered storage; 0: there is none."
    ),
    gauge("pulsar_storage_backlog_size", "now.backlog_size", "Bytes behind the slowest subscription."),
    gauge(
        "pulsar_storage_backlog_age_seconds",
        "now.backlog_age_seconds",
        "Age of the oldest unacknowledged entry, -1 if not known.",
        sums=False,
    ),
    gauge(
        "pulsar_storage_backlog_quota_limit",
        "now.backlog_quota_bytes",
        "Backlog quota in bytes, -1 if there is none.",
        sums=False,
    ),
    gauge(
        "pulsar_storage_backlog_quota_limit_time",
        "now.backlog_quota_seconds",
        "Backlog quota in seconds, -1 if there is none.",
        sums=False,
    ),
    gauge(
        "pulsar_delayed_message_index_size_bytes",
        "now.delayed_index_bytes",
        "Memory of the index of delayed entries, which all subscriptions share.",
    ),
    gauge("pulsar_storage_write_rate", "window.write_rate", "Entries stored per second.", zero=True),
    gauge(
        "pulsar_storage_read_rate", "window.read_rate", "Entries read per second, cached or not.", zero=True
    ),
    gauge("pulsar_storage_read_latency_count", "window.read", "Entries read in the window."),
    gauge("pulsar_storage_read_cache_misses_rate", "window.cache_miss_rate", "Cache misses per second."),
    counter("pulsar_ml_cache_x_topic_hits_total", "now.cache_hits", "Entries read from the cache."),
    counter("pulsar_ml_cache_x_topic_misses_total", "now.cache_misses", "Entries read from storage."),
    counter(
        "pulsar_ml_cache_x_topic_coalesced_total",
        "now.cache_coalesced",
        "Entries received from a storage read that another reader had begun.",
    ),
    gauge("pulsar_storage_write_latency_count", "window.added", "Entries stored in the window."),
    gauge(
        "pulsar_storage_write_latency_sum", "window.write_latency_sum_us", "Their write latency together, µs."
    ),
    *(
        gauge(
            f"pulsar_storage_write_latency_{suffix}",
            f"window.write_latency.{place}",
            "Entries of the window by write latency in ms, not cumulative.",
        )
        for place, suffix in enumerate(LATENCY_SUFFIXES)
    ),
    gauge("pulsar_entry_size_count", "window.added", "Entries stored in the window."),
    gauge("pulsar_entry_size_sum", "window.added_bytes", "Their bytes."),
    *(
        gauge(
            f"pulsar_entry_size_{suffix}",
            f"window.entry_size.{place}",
            "Entries of the window by size in bytes, not cumulative.",
        )
        for place, suffix in enumerate(SIZE_SUFFIXES)
    ),
    gauge(
        "pulsar_entry_size_overflow",
        f"window.entry_size.{len(ENTRY_SIZE_BOUNDS)}",
        "As pulsar_entry_size_le_overflow, under the name that boards ask for.",
    ),
)
"""Labels cluster, namespace, topic; `zero` marks those that are also printed with the cluster alone."""

OUT_TOTALS: Final = (
    counter("pulsar_out_messages_total", "now.msgs_out", "Messages sent to consumers."),
    counter("pulsar_out_bytes_total", "now.bytes_out", "Bytes sent to consumers."),
)
"""Of subscriptions, as in Pulsar; of a namespace without `exposeTopicLevelMetricsInPrometheus`."""

SUBSCRIPTION: Final = (
    *OUT_TOTALS,
    gauge("pulsar_subscription_back_log", "now.backlog", "Entries not acknowledged."),
    gauge(
        "pulsar_subscription_back_log_no_delayed", "now.backlog_no_delayed", "The same, without delayed ones."
    ),
    gauge(
        "pulsar_subscription_delayed",
        "now.delayed",
        "Entries waiting for their delivery time.",
    ),
    gauge(
        "pulsar_subscription_delayed_message_index_size_bytes",
        "now.delayed_index_bytes",
        "The topic's index of delayed entries, for Shared and Key_Shared subscriptions.",
        sums=False,
    ),
    gauge("pulsar_subscription_in_replay", "now.in_replay", "Entries waiting to be sent again."),
    gauge("pulsar_subscription_unacked_messages", "now.unacked", "Messages sent and not acknowledged."),
    gauge(
        "pulsar_subscription_blocked_on_unacked_messages",
        "now.blocked",
        "1 while unacknowledged messages stop the deliveries.",
    ),
    gauge("pulsar_subscription_consumers_count", "now.consumers", "Connected consumers."),
    gauge("pulsar_subscription_msg_rate_out", "window.rate_out", "Messages sent per second."),
    gauge("pulsar_subscription_msg_throughput_out", "window.throughput_out", "Bytes sent per second."),
    gauge(
        "pulsar_subscription_msg_rate_redeliver", "window.redeliver_rate", "Messages sent again per second."
    ),
    gauge("pulsar_subscription_msg_ack_rate", "window.ack_rate", "Messages acknowledged per second."),
    gauge("pulsar_subscription_msg_drop_rate", "window.drop_rate", "Messages dropped per second."),
    gauge("pulsar_subscription_msg_rate_expired", "window.expired_rate", "Entries expired per second."),
    gauge("pulsar_subscription_total_msg_expired", "now.expired", "Entries expired."),
    gauge("pulsar_subscription_last_expire_timestamp", "now.last_expired_ms", "Last expiry, ms."),
    gauge("pulsar_subscription_last_consumed_flow_timestamp", "now.last_flow_ms", "Last FLOW, ms."),
    counter(
        "magnetar_subscription_holes_redelivered_total",
        "now.holes_redelivered",
        "Entries that were pending at no consumer and are delivered again.",
    ),
    gauge(
        "magnetar_subscription_acks_in_memory",
        "now.acks_in_memory",
        "Acknowledged entries that a crash would deliver again, because they did not fit into the cursor's info.",
    ),
    gauge(
        "magnetar_subscription_awaits_acks",
        "now.awaits_acks",
        "1 while nothing new is sent before acknowledgements fit (dispatcherPauseOnAckStatePersistentEnabled).",
    ),
)
"""Labels cluster, namespace, topic, subscription."""

COMPACTION: Final = (
    gauge("pulsar_compaction_removed_event_count", "now.removed", "Messages that compactions removed."),
    gauge("pulsar_compaction_succeed_count", "now.succeeded", "Compactions that succeeded."),
    gauge("pulsar_compaction_failed_count", "now.failed", "Compactions that failed."),
    gauge(
        "pulsar_compaction_duration_time_in_mills", "now.duration_ms", "Duration of the last compaction, ms."
    ),
    gauge("pulsar_compaction_read_throughput", "now.read_throughput", "Bytes the last one read per second."),
    gauge(
        "pulsar_compaction_write_throughput", "now.write_throughput", "Bytes the last one wrote per second."
    ),
    gauge("pulsar_compaction_compacted_entries_count", "now.entries", "Entries of the compacted ledger."),
    gauge("pulsar_compaction_compacted_entries_size", "now.size_bytes", "Bytes of the compacted ledger."),
)
"""Labels as TOPIC; of topics that were compacted, or whose compaction failed."""

TRANSACTIONS: Final = (
    gauge("pulsar_txn_tb_active_total", "now.active", "Open transactions on the topic."),
    gauge("pulsar_txn_tb_committed_total", "now.committed", "Transactions committed on the topic."),
    gauge("pulsar_txn_tb_aborted_total", "now.aborted", "Transactions aborted on the topic."),
)
"""Labels as TOPIC; of topics that transactions have published to. Gauges, as Pulsar prints them."""

QUOTAS: Final = (
    counter(
        "pulsar_storage_backlog_quota_exceeded_evictions_total",
        "now.evictions",
        "Times that a backlog quota took messages from a subscription.",
    ),
    counter(
        "magnetar_backlog_quota_evicted_entries_total",
        "now.evicted_entries",
        "Entries that backlog quotas took from subscriptions.",
    ),
)
"""Labels as TOPIC, and quota_type: size or time."""

BROKER_QUOTAS: Final = counter(
    "pulsar_broker_storage_backlog_quota_exceeded_evictions_total",
    "now.evictions",
    "The same for all open topics together.",
)
"""Labels cluster, quota_type."""

REDELIVER: Final = gauge(
    "pulsar_consumer_msg_rate_redeliver", "window.redeliver_rate", "Messages sent again per second."
)
"""With consumer metrics off it is printed per subscription, because a stock board asks for it either way."""

SUBSCRIPTION_CACHE: Final = (
    counter("pulsar_ml_cache_x_subscription_hits_total", "now.cache_hits", "Entries read from the cache."),
    counter("pulsar_ml_cache_x_subscription_misses_total", "now.cache_misses", "Entries read from storage."),
    counter(
        "pulsar_ml_cache_x_subscription_coalesced_total",
        "now.cache_coalesced",
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
    gauge("pulsar_consumer_unacked_messages", "now.unacked", "Messages sent and not acknowledged."),
    gauge("pulsar_consumer_blocked_on_unacked_messages", "now.blocked", "1 while these stop the deliveries."),
    gauge("pulsar_consumer_available_permits", "now.available_permits", "Messages it may still be sent."),
    gauge("pulsar_consumer_msg_rate_out", "window.rate_out", "Messages sent per second."),
    gauge("pulsar_consumer_msg_throughput_out", "window.throughput_out", "Bytes sent per second."),
    gauge("pulsar_consumer_msg_ack_rate", "window.ack_rate", "Messages acknowledged per second."),
    counter("pulsar_consumer_out_messages_total", "now.msgs_out", "Messages sent."),
    counter("pulsar_consumer_out_bytes_total", "now.bytes_out", "Bytes sent."),
)
"""Labels as SUBSCRIPTION, and consumer_name, consumer_id."""

PRODUCER: Final = (
    gauge("pulsar_producer_msg_rate_in", "window.rate_in", "Messages published per second."),
    gauge("pulsar_producer_msg_throughput_in", "window.throughput_in", "Bytes published per second."),
)
"""Labels as TOPIC, and producer_name, producer_id."""

TOPICS_COUNT: Final = gauge("pulsar_topics_count", "topics", "Open topics.", zero=True)
"""Labels cluster, namespace."""

NAMESPACE: Final = (
    gauge("pulsar_ml_AddEntryBytesRate", "window.write_bytes_rate", "Bytes stored per second."),
    gauge(
        "pulsar_ml_AddEntryWithReplicasBytesRate",
        "window.write_replica_bytes_rate",
        "The same, times the write quorum.",
    ),
    gauge("pulsar_ml_AddEntryMessagesRate", "window.write_rate", "Entries stored per second."),
    gauge("pulsar_ml_AddEntrySucceed", "window.added", "Entries stored in the window."),
    gauge("pulsar_ml_AddEntryErrors", "window.add_errors", "Failed adds in the window."),
    gauge("pulsar_ml_ReadEntriesBytesRate", "window.read_bytes_rate", "Bytes read per second."),
    gauge("pulsar_ml_ReadEntriesRate", "window.read_rate", "Entries read per second."),
    gauge("pulsar_ml_ReadEntriesSucceeded", "window.read", "Entries read in the window."),
    gauge("pulsar_ml_ReadEntriesErrors", "window.read_errors", "Failed reads in the window."),
    gauge("pulsar_ml_ReadEntriesOpsCacheMissesRate", "window.cache_miss_rate", "Cache misses per second."),
    gauge("pulsar_ml_NumberOfMessagesInBacklog", "now.backlog", "Entries not acknowledged."),
    gauge("pulsar_ml_StoredMessagesSize", "now.storage_logical_size", "Bytes kept."),
)
"""Sums over a namespace, labels cluster, namespace (exposeManagedLedgerMetricsInPrometheus).

The namespace has `/persistent` behind it, as Pulsar prints it for managed ledgers.
"""

NAMESPACE_BUCKETS: Final = (
    (
        gauge(
            "pulsar_ml_AddEntryLatencyBuckets",
            "window.write_latency",
            "Entries per second by write latency, ms.",
        ),
        _bucket_names(WRITE_LATENCY_BOUNDS_MS),
    ),
    (
        gauge("pulsar_ml_EntrySizeBuckets", "window.entry_size", "Entries per second by size, bytes."),
        _bucket_names(ENTRY_SIZE_BOUNDS),
    ),
)
"""As NAMESPACE, with the bucket's name in the label `quantile`; the last bucket is a family of its own, as in Pulsar."""


def overflow_of(family: Family) -> Family:
    """Returns the family of the last bucket."""
    return replace(family, name=f"{family.name}_OVERFLOW")


TOTALS: Final = (
    gauge("pulsar_broker_topics_count", "topics", "Open topics."),
    gauge("pulsar_broker_subscriptions_count", "now.subscription_count", "Subscriptions."),
    gauge("pulsar_broker_producers_count", "now.producers", "Connected producers."),
    gauge("pulsar_broker_consumers_count", "now.consumers", "Connected consumers."),
    gauge("pulsar_broker_rate_in", "window.rate_in", "Messages published per second."),
    gauge("pulsar_broker_rate_out", "window.rate_out", "Messages sent per second."),
    gauge("pulsar_broker_throughput_in", "window.throughput_in", "Bytes published per second."),
    gauge("pulsar_broker_throughput_out", "window.throughput_out", "Bytes sent per second."),
    counter("pulsar_broker_in_bytes_total", "now.bytes_in", "Bytes published, of open topics."),
    counter("pulsar_broker_out_bytes_total", "now.bytes_out", "Bytes sent, of open topics."),
    gauge("pulsar_broker_storage_size", "now.storage_size", "Bytes kept, times the write quorum."),
    gauge("pulsar_broker_storage_logical_size", "now.storage_logical_size", "Bytes kept, each once."),
    gauge("pulsar_broker_storage_write_rate", "window.write_rate", "Entries stored per second."),
    gauge("pulsar_broker_storage_read_rate", "window.read_rate", "Entries read per second."),
    gauge(
        "pulsar_broker_storage_read_cache_misses_rate", "window.cache_miss_rate", "Cache misses per second."
    ),
    gauge("pulsar_broker_msg_backlog", "now.backlog", "Entries not acknowledged."),
)
"""Sums over the broker, label cluster."""
