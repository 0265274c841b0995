"""Every metric family of the broker: name, kind, where its value comes from, and what it means.

Names are Pulsar's, so that existing boards work; `pulsar_ml_cache_x_` marks ours. One line per family;
`docs/reference/metrics.md` is held against these tables by a test. A source names a field: `now.` of the snapshot,
`window.` of the last whole window, a number behind a field is a place in its buckets. Two families may
share a source where boards ask for a name that Pulsar itself prints differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from broker.metrics.snapshot import ENTRY_SIZE_BOUNDS, WRITE_LATENCY_BOUNDS_MS

Kind = Literal["gauge", "counter", "histogram"]


@dataclass(frozen=True, slots=True)
class Family:
    name: str
    kind: Kind
    source: str
    help: str
    zero: bool = False
    """Also printed as 0 with the cluster alone, so that an idle broker shows up on the boards."""
    sums: bool = True
    """May be summed over the topics of a namespace."""
    label: str = ""
    """The label that tells the values of a mapping apart."""
    values: tuple[str, ...] = ()
    """The label values that are printed even before something was counted under them."""


def _gauge(name: str, source: str, text: str, *, zero: bool = False, sums: bool = True) -> Family:
    return Family(name, "gauge", source, text, zero, sums)


def _counter(name: str, source: str, text: str) -> Family:
    return Family(name, "counter", source, text)


def _by(label: str, values: str, name: str, source: str, text: str) -> Family:
    return Family(name, "counter", source, text, label=label, values=tuple(values.split()))


def _histogram(label: str, values: str, name: str, source: str, text: str) -> Family:
    """Times in seconds, by one label."""
    return Family(name, "histogram", source, text, label=label, values=tuple(values.split()))


def _bucket_names(bounds: Sequence[float]) -> tuple[str, ...]:
    """`0.0_0.5`, `0.5_1.0` … `OVERFLOW`"""
    edges = (0.0, *map(float, bounds))
    return (*(f"{low}_{high}" for low, high in pairwise(edges)), "OVERFLOW")


LATENCY_SUFFIXES: Final = (
    *(f"le_{bound:g}".replace(".", "_") for bound in WRITE_LATENCY_BOUNDS_MS),
    "overflow",
)
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
assert len(SIZE_SUFFIXES) == len(ENTRY_SIZE_BOUNDS) + 1

UNLESS_RECORDED: Final = "; 0 while entryCacheRecordDirectory is not set."

TOPIC: Final = (
    _gauge("pulsar_subscriptions_count", "now.subscription_count", "Subscriptions.", zero=True),
    _gauge("pulsar_producers_count", "now.producers", "Connected producers.", zero=True),
    _gauge("pulsar_consumers_count", "now.consumers", "Connected consumers.", zero=True),
    _gauge("pulsar_rate_in", "window.rate_in", "Messages published per second.", zero=True),
    _gauge("pulsar_rate_out", "window.rate_out", "Messages sent to consumers per second.", zero=True),
    _gauge("pulsar_throughput_in", "window.throughput_in", "Bytes published per second.", zero=True),
    _gauge("pulsar_throughput_out", "window.throughput_out", "Bytes sent per second.", zero=True),
    _gauge("pulsar_average_msg_size", "window.average_msg_size", "Mean bytes of a message.", sums=False),
    _counter("pulsar_in_messages_total", "now.msgs_in", "Messages published."),
    _counter("pulsar_in_bytes_total", "now.bytes_in", "Bytes published."),
    _counter("pulsar_out_messages_total", "now.msgs_out", "Messages sent to consumers."),
    _counter("pulsar_out_bytes_total", "now.bytes_out", "Bytes sent to consumers."),
    _gauge(
        "pulsar_msg_backlog", "now.backlog", "Entries not acknowledged, over all subscriptions.", zero=True
    ),
    _gauge("pulsar_storage_size", "now.storage_size", "Bytes kept, times the write quorum.", zero=True),
    _gauge("pulsar_storage_logical_size", "now.storage_logical_size", "Bytes kept, each once."),
    _gauge(
        "pulsar_storage_offloaded_size", "now.offloaded_size", "Bytes in tiered storage; 0: there is none."
    ),
    _gauge("pulsar_storage_backlog_size", "now.backlog_size", "Bytes behind the slowest subscription."),
    _gauge(
        "pulsar_storage_backlog_age_seconds",
        "now.backlog_age_seconds",
        "Age of the oldest unacknowledged entry, -1 if not known.",
        sums=False,
    ),
    _gauge(
        "pulsar_storage_backlog_quota_limit",
        "now.backlog_quota_bytes",
        "Backlog quota in bytes, -1 if there is none.",
        sums=False,
    ),
    _gauge(
        "pulsar_storage_backlog_quota_limit_time",
        "now.backlog_quota_seconds",
        "Backlog quota in seconds, -1 if there is none.",
        sums=False,
    ),
    _gauge("pulsar_storage_write_rate", "window.write_rate", "Entries stored per second.", zero=True),
    _gauge(
        "pulsar_storage_read_rate", "window.read_rate", "Entries read per second, cached or not.", zero=True
    ),
    _gauge("pulsar_storage_read_latency_count", "window.read", "Entries read in the window."),
    _gauge("pulsar_storage_read_cache_misses_rate", "window.cache_miss_rate", "Cache misses per second."),
    _counter("pulsar_ml_cache_x_topic_hits_total", "now.cache_hits", "Entries read from the cache."),
    _counter("pulsar_ml_cache_x_topic_misses_total", "now.cache_misses", "Entries read from storage."),
    _counter(
        "pulsar_ml_cache_x_topic_coalesced_total",
        "now.cache_coalesced",
        "Entries received from a storage read that another reader had begun.",
    ),
    _gauge("pulsar_storage_write_latency_count", "window.added", "Entries stored in the window."),
    _gauge(
        "pulsar_storage_write_latency_sum", "window.write_latency_sum_ms", "Their write latency together, ms."
    ),
    *(
        _gauge(
            f"pulsar_storage_write_latency_{suffix}",
            f"window.write_latency.{place}",
            "Entries of the window by write latency in ms, not cumulative.",
        )
        for place, suffix in enumerate(LATENCY_SUFFIXES)
    ),
    _gauge("pulsar_entry_size_count", "window.added", "Entries stored in the window."),
    _gauge("pulsar_entry_size_sum", "window.added_bytes", "Their bytes."),
    *(
        _gauge(
            f"pulsar_entry_size_{suffix}",
            f"window.entry_size.{place}",
            "Entries of the window by size in bytes, not cumulative.",
        )
        for place, suffix in enumerate(SIZE_SUFFIXES)
    ),
    _gauge(
        "pulsar_entry_size_overflow",
        f"window.entry_size.{len(ENTRY_SIZE_BOUNDS)}",
        "As pulsar_entry_size_le_overflow, under the name that boards ask for.",
    ),
)
"""Labels cluster, namespace, topic."""

SUBSCRIPTION: Final = (
    _gauge("pulsar_subscription_back_log", "now.backlog", "Entries not acknowledged."),
    _gauge(
        "pulsar_subscription_back_log_no_delayed", "now.backlog_no_delayed", "The same, without delayed ones."
    ),
    _gauge(
        "pulsar_subscription_delayed",
        "now.delayed",
        "Messages waiting for their delivery time; 0: deliveries are not delayed yet.",
    ),
    _gauge("pulsar_subscription_in_replay", "now.in_replay", "Entries waiting to be sent again."),
    _gauge("pulsar_subscription_unacked_messages", "now.unacked", "Messages sent and not acknowledged."),
    _gauge(
        "pulsar_subscription_blocked_on_unacked_messages",
        "now.blocked",
        "1 while unacknowledged messages stop the deliveries.",
    ),
    _gauge("pulsar_subscription_consumers_count", "now.consumers", "Connected consumers."),
    _gauge("pulsar_subscription_msg_rate_out", "window.rate_out", "Messages sent per second."),
    _gauge("pulsar_subscription_msg_throughput_out", "window.throughput_out", "Bytes sent per second."),
    _gauge(
        "pulsar_subscription_msg_rate_redeliver", "window.redeliver_rate", "Messages sent again per second."
    ),
    _gauge("pulsar_subscription_msg_ack_rate", "window.ack_rate", "Messages acknowledged per second."),
    _gauge("pulsar_subscription_msg_drop_rate", "window.drop_rate", "Messages dropped per second."),
    _gauge("pulsar_subscription_last_consumed_flow_timestamp", "now.last_flow_ms", "Last FLOW, ms."),
)
"""Labels cluster, namespace, topic, subscription."""

REDELIVER: Final = _gauge(
    "pulsar_consumer_msg_rate_redeliver", "window.redeliver_rate", "Messages sent again per second."
)
"""With consumer metrics off it is printed per subscription, because a stock board asks for it either way."""

SUBSCRIPTION_CACHE: Final = (
    _counter("pulsar_ml_cache_x_subscription_hits_total", "now.cache_hits", "Entries read from the cache."),
    _counter("pulsar_ml_cache_x_subscription_misses_total", "now.cache_misses", "Entries read from storage."),
    _counter(
        "pulsar_ml_cache_x_subscription_coalesced_total",
        "now.cache_coalesced",
        "Entries received from a storage read that another reader had begun.",
    ),
)
"""Labels as SUBSCRIPTION; for those that have read most, as many as entryCacheSubscriptionMetricsMax."""

CACHE_SUBSCRIPTIONS_LEFT_OUT: Final = _gauge(
    "pulsar_ml_cache_x_subscriptions_left_out",
    "",
    "Subscriptions that have read something and have no series of their own.",
)
"""Label cluster."""

CONSUMER: Final = (
    REDELIVER,
    _gauge("pulsar_consumer_unacked_messages", "now.unacked", "Messages sent and not acknowledged."),
    _gauge(
        "pulsar_consumer_blocked_on_unacked_messages", "now.blocked", "1 while these stop the deliveries."
    ),
    _gauge("pulsar_consumer_available_permits", "now.available_permits", "Messages it may still be sent."),
    _gauge("pulsar_consumer_msg_rate_out", "window.rate_out", "Messages sent per second."),
    _gauge("pulsar_consumer_msg_throughput_out", "window.throughput_out", "Bytes sent per second."),
    _gauge("pulsar_consumer_msg_ack_rate", "window.ack_rate", "Messages acknowledged per second."),
    _counter("pulsar_consumer_out_messages_total", "now.msgs_out", "Messages sent."),
    _counter("pulsar_consumer_out_bytes_total", "now.bytes_out", "Bytes sent."),
)
"""Labels as SUBSCRIPTION, and consumer_name, consumer_id."""

PRODUCER: Final = (
    _gauge("pulsar_producer_msg_rate_in", "window.rate_in", "Messages published per second."),
    _gauge("pulsar_producer_msg_throughput_in", "window.throughput_in", "Bytes published per second."),
)
"""Labels as TOPIC, and producer_name, producer_id."""

TOPICS_COUNT: Final = _gauge("pulsar_topics_count", "topics", "Open topics.", zero=True)

NAMESPACE: Final = (
    _gauge("pulsar_ml_AddEntryBytesRate", "window.write_bytes_rate", "Bytes stored per second."),
    _gauge("pulsar_ml_AddEntryWithReplicasBytesRate", "window.write_bytes_rate", "The same; one replica."),
    _gauge("pulsar_ml_AddEntryMessagesRate", "window.rate_in", "Messages stored per second."),
    _gauge("pulsar_ml_AddEntrySucceed", "window.write_rate", "Entries stored per second."),
    _gauge("pulsar_ml_AddEntryErrors", "window.add_errors", "Failed adds in the window."),
    _gauge("pulsar_ml_ReadEntriesBytesRate", "window.read_bytes_rate", "Bytes read per second."),
    _gauge("pulsar_ml_ReadEntriesRate", "window.read_rate", "Entries read per second."),
    _gauge("pulsar_ml_ReadEntriesSucceeded", "window.read_rate", "Entries read per second."),
    _gauge("pulsar_ml_ReadEntriesErrors", "window.read_errors", "Failed reads in the window."),
    _gauge("pulsar_ml_ReadEntriesOpsCacheMissesRate", "window.cache_miss_rate", "Cache misses per second."),
    _gauge("pulsar_ml_NumberOfMessagesInBacklog", "now.backlog", "Entries not acknowledged."),
    _gauge("pulsar_ml_StoredMessagesSize", "now.storage_logical_size", "Bytes kept."),
)
"""Sums over a namespace, labels cluster, namespace (exposeManagedLedgerMetricsInPrometheus)."""

NAMESPACE_BUCKETS: Final = (
    (
        _gauge("pulsar_ml_AddEntryLatencyBuckets", "window.write_latency", "Entries by write latency, ms."),
        _bucket_names(WRITE_LATENCY_BOUNDS_MS),
    ),
    (
        _gauge("pulsar_ml_EntrySizeBuckets", "window.entry_size", "Entries by size, bytes."),
        _bucket_names(ENTRY_SIZE_BOUNDS),
    ),
)
"""As NAMESPACE, with the bucket's name in `quantile`."""

TOTALS: Final = (
    _gauge("pulsar_broker_topics_count", "topics", "Open topics."),
    _gauge("pulsar_broker_subscriptions_count", "now.subscription_count", "Subscriptions."),
    _gauge("pulsar_broker_producers_count", "now.producers", "Connected producers."),
    _gauge("pulsar_broker_consumers_count", "now.consumers", "Connected consumers."),
    _gauge("pulsar_broker_rate_in", "window.rate_in", "Messages published per second."),
    _gauge("pulsar_broker_rate_out", "window.rate_out", "Messages sent per second."),
    _gauge("pulsar_broker_throughput_in", "window.throughput_in", "Bytes published per second."),
    _gauge("pulsar_broker_throughput_out", "window.throughput_out", "Bytes sent per second."),
    _gauge("pulsar_broker_storage_size", "now.storage_size", "Bytes kept, times the write quorum."),
    _gauge("pulsar_broker_storage_logical_size", "now.storage_logical_size", "Bytes kept, each once."),
    _gauge("pulsar_broker_storage_write_rate", "window.write_rate", "Entries stored per second."),
    _gauge("pulsar_broker_storage_read_rate", "window.read_rate", "Entries read per second."),
    _gauge("pulsar_broker_msg_backlog", "now.backlog", "Entries not acknowledged."),
)
"""Sums over the broker, label cluster."""

BROKER: Final = (
    _gauge("pulsar_ml_count", "now.ledgers_open", "Open managed ledgers."),
    _gauge("pulsar_active_connections", "now.connections_active", "Open client connections."),
    _gauge("pulsar_connection_created_total_count", "now.connections_created", "Connections accepted."),
    _gauge("pulsar_connection_closed_total_count", "now.connections_closed", "Connections closed."),
    _gauge("pulsar_ml_cache_used_size", "cache.used_bytes", "Bytes of the entries in the cache."),
    _gauge("pulsar_ml_cache_entries", "cache.entries", "Entries in the cache."),
    _counter("pulsar_ml_cache_inserted_entries_total", "cache.insertions", "Entries put into the cache."),
    _counter("pulsar_ml_cache_evicted_entries_total", "evicted", "Entries removed, whatever the reason."),
    _gauge("pulsar_ml_cache_evictions", "window.evictions", "Size-eviction runs in the window."),
    _gauge("pulsar_ml_cache_hits_rate", "window.hits_rate", "Entries per second found in the cache."),
    _gauge("pulsar_ml_cache_misses_rate", "window.misses_rate", "Entries per second read from storage."),
    _gauge("pulsar_ml_cache_hits_throughput", "window.hits_throughput", "Bytes per second from the cache."),
    _gauge("pulsar_ml_cache_misses_throughput", "window.misses_throughput", "Bytes per second from storage."),
    _gauge("pulsar_ml_reads_inflight_bytes", "cache.inflight_bytes", "Bytes being read, -1 without a limit."),
    _gauge(
        "pulsar_ml_reads_available_inflight_bytes",
        "cache.inflight_available_bytes",
        "Bytes that may still be asked for, -1 without a limit.",
    ),
    _counter("pulsar_ml_cache_x_hits_total", "cache.hits", "Entries found in the cache."),
    _counter("pulsar_ml_cache_x_hit_bytes_total", "cache.hit_bytes", "Their bytes."),
    _counter("pulsar_ml_cache_x_misses_total", "cache.misses", "Entries read from storage."),
    _counter("pulsar_ml_cache_x_miss_bytes_total", "cache.miss_bytes", "Their bytes."),
    _counter(
        "pulsar_ml_cache_x_coalesced_total",
        "cache.coalesced",
        "Entries received from a storage read that another reader had begun.",
    ),
    _counter("pulsar_ml_cache_x_coalesced_bytes_total", "cache.coalesced_bytes", "Their bytes."),
    _counter(
        "pulsar_ml_cache_x_duplicates_total",
        "cache.duplicates",
        "Entries offered for a position that was cached already.",
    ),
    _counter("pulsar_ml_cache_x_insertions_total", "cache.insertions", "Entries put into the cache."),
    _gauge("pulsar_ml_cache_x_used_bytes", "cache.used_bytes", "Bytes of the entries in the cache."),
    _gauge("pulsar_ml_cache_x_max_bytes", "cache.max_bytes", "managedLedgerCacheSizeMB, in bytes."),
    _gauge("pulsar_ml_cache_x_entries", "cache.entries", "Entries in the cache."),
    _gauge(
        "pulsar_ml_cache_x_pinned_bytes",
        "cache.pinned_bytes",
        "Receive-buffer bytes kept alive by shared entries beyond their own length.",
    ),
    _gauge("pulsar_ml_cache_x_removal_queue_length", "cache.queue_length", "Entries in the removal queue."),
    _gauge(
        "pulsar_ml_cache_x_tombstones", "cache.tombstones", "Of these, entries that were invalidated before."
    ),
    _gauge(
        "pulsar_ml_cache_x_expected_entries",
        "cache.expected_entries",
        "Cached entries with expected reads left.",
    ),
    _gauge("pulsar_ml_cache_x_expected_bytes", "cache.expected_bytes", "Their bytes."),
    _gauge(
        "pulsar_ml_cache_x_reads_inflight_limit_bytes",
        "cache.inflight_limit_bytes",
        "managedLedgerMaxReadsInFlightSizeInMB, in bytes, -1 without a limit.",
    ),
    _gauge("pulsar_ml_cache_x_reads_waiting", "cache.reads_waiting", "Reads that wait for bytes in flight."),
    _counter("pulsar_ml_cache_x_size_passes_total", "cache.size_passes", "Size-eviction runs."),
    *(
        _counter(f"pulsar_ml_cache_x_record_{name}_total", f"record.{source}", f"{text}{UNLESS_RECORDED}")
        for name, source, text in (
            ("rows", "rows", "Rows of the access record that were taken up to be written"),
            (
                "dropped_rows",
                "dropped",
                "Rows that were not, because the buffer was full or the disk refused",
            ),
            ("bytes", "size_bytes", "Bytes of its complete files"),
            ("files", "files", "Its complete files"),
            ("errors", "errors", "Times that it could not be written"),
        )
    ),
)
"""Label cluster; served through the registry."""

BROKER_BY: Final = (
    _by(
        "reason",
        "ttl size ledger invalidate",
        "pulsar_ml_cache_x_evicted_total",
        "cache.evictions",
        "Entries removed, by reason.",
    ),
    _by(
        "reason",
        "ttl size ledger invalidate",
        "pulsar_ml_cache_x_evicted_bytes_total",
        "cache.evicted_bytes",
        "Their bytes.",
    ),
    _by(
        "reason",
        "ttl size ledger invalidate",
        "pulsar_ml_cache_x_evicted_expected_total",
        "cache.evicted_expected",
        "Entries removed although they had expected reads left, by reason.",
    ),
    _by(
        "reason",
        "ttl size ledger invalidate",
        "pulsar_ml_cache_x_evicted_expected_bytes_total",
        "cache.evicted_expected_bytes",
        "Their bytes.",
    ),
    _by(
        "reason",
        "ttl size",
        "pulsar_ml_cache_x_passes_total",
        "cache.passes",
        "Passes over the removal queue that have ended.",
    ),
    _by(
        "reason",
        "ttl size",
        "pulsar_ml_cache_x_visits_total",
        "cache.visits",
        "What passes have looked at, in slots of the removal queue; under magnetar in units of about that cost.",
    ),
    _by(
        "cause",
        "expected_reads recently_accessed",
        "pulsar_ml_cache_x_requeues_total",
        "cache.requeues",
        "Entries that the removal queue put back, by cause.",
    ),
)

HISTOGRAMS: Final = (
    _histogram(
        "trigger",
        "periodic insert",
        "pulsar_ml_cache_x_pass_slice_seconds",
        "cache.pass_slices",
        "How long slices of passes held the loop, by what made them due.",
    ),
    _histogram(
        "reason",
        "ttl size",
        "pulsar_ml_cache_x_evicted_age_seconds",
        "cache.evicted_ages",
        "From the insertion of entries to their removal by a pass.",
    ),
    _histogram(
        "reason",
        "ttl size",
        "pulsar_ml_cache_x_evicted_idle_seconds",
        "cache.evicted_idle",
        "From the insertion of entries, or the last time that they were put back, to their removal by a pass.",
    ),
)
"""Label cluster and one more; cumulative since the start, unlike the buckets that Pulsar has."""

JOINED_READS: Final = (
    "entries_read",
    "entries_notread",
    "matched",
    "matched_included",
    "missed",
    "matched_overlapping_miss_left",
    "matched_overlapping_miss_right",
    "matched_overlapping_miss_both",
)
"""pulsar_ml_cache_pendingreads_<name>_total: entries seen by the read coalescer."""

CONSTANTS: Final = (
    *(
        (_gauge(f"pulsar_ml_cache_pool_{name}", "", "Always -1: entries are not in a pool of their own."), -1)
        for name in (
            "allocated",
            "used",
            "active_allocations",
            "active_allocations_small",
            "active_allocations_normal",
            "active_allocations_huge",
        )
    ),
    *(
        (_gauge(f"pulsar_lb_{name}", "", "Always 0: one broker, nothing to balance."), 0)
        for name in ("unload_broker_count", "unload_bundle_count", "bundles_split_count")
    ),
    *(
        (Family(f"pulsar_lb_{name}", "counter", "", "Always 0: one broker, nothing to balance."), 0)
        for name in ("unload_broker_total", "unload_bundle_total", "bundles_split_total")
    ),
)

QUANTILES: Final = (0.0, 0.5, 0.95, 0.99, 0.999, 0.9999, 1.0)
SUMMARIES: Final = (
    ("pulsar_broker_publish_latency", "From an entry's add to its confirmation in the window, ms."),
    ("pulsar_instance_publish_latency", "As pulsar_broker_publish_latency."),
    ("pulsar_topic_load_times", "Time to open a topic in the window, ms."),
)
"""Name, help. Labels cluster, quantile."""
