"""The families of the broker as a whole: cache, connections, access record, constants.

`collectors.py` prints them through prometheus-client's registry. A source is a chain of fields from a `BrokerReading`,
or from the broker's last whole window where it begins with `window.` (`collectors.py` has the root of both).
"""

from __future__ import annotations

from typing import Final

from broker.numbers.family import Family, Kind, by, counter, gauge, histogram
from broker.service.transactions.coordinator import DURATION_CLASSES

_UNLESS_RECORDED: Final = "; 0 while entryCacheRecordDirectory is not set."

BROKER: Final = (
    gauge("pulsar_ml_count", "ledgers_open", "Open managed ledgers."),
    gauge("pulsar_active_connections", "connections_active", "Open client connections."),
    # Gauges, though they only grow: as counters the library would print them with `_total` at the end.
    gauge("pulsar_connection_created_total_count", "connections.created", "Connections accepted."),
    gauge("pulsar_connection_closed_total_count", "connections.closed", "Connections closed."),
    counter(
        "magnetar_corrupt_sends_total",
        "connections.corrupt_sends",
        "Messages of producers refused because their checksum was wrong: a network or a client damages them.",
    ),
    gauge("pulsar_broker_lookup_pending_requests", "lookups_pending", "Lookups not yet answered."),
    gauge("pulsar_ml_cache_used_size", "manager.used_bytes", "Bytes of the entries in the cache."),
    gauge("pulsar_ml_cache_entries", "manager.entries", "Entries in the cache."),
    counter(
        "pulsar_ml_cache_inserted_entries_total", "cache.inserted_entries", "Entries put into the cache."
    ),
    counter("pulsar_ml_cache_evicted_entries_total", "evicted_entries", "Entries removed for any reason."),
    gauge("pulsar_ml_cache_evictions", "window.evictions", "Size evictions in the window."),
    gauge("pulsar_ml_cache_hits_rate", "window.hits_rate", "Entries per second found in the cache."),
    gauge("pulsar_ml_cache_misses_rate", "window.misses_rate", "Entries per second read from storage."),
    gauge("pulsar_ml_cache_hits_throughput", "window.hits_throughput", "Bytes per second from the cache."),
    gauge("pulsar_ml_cache_misses_throughput", "window.misses_throughput", "Bytes per second from storage."),
    gauge("pulsar_ml_reads_inflight_bytes", "inflight_bytes", "Bytes being read, -1 without a limit."),
    gauge(
        "pulsar_ml_reads_available_inflight_bytes",
        "inflight_available_bytes",
        "Bytes that further reads may request, -1 without a limit.",
    ),
    counter(
        "pulsar_expired_token_total",
        "authentication.expired",
        "Tokens refused because their time is over.",
    ),
    gauge(
        "magnetar_event_loop_lag_seconds",
        "loop_lag_s",
        "Longest time for which the event loop was held in the last ten to twenty seconds.",
    ),
    gauge("magnetar_dormant_topics", "dormant.count", "Topics that are closed and have a record in memory."),
    gauge(
        "magnetar_dormant_topics_filling",
        "dormant.filling",
        "1 while topics on disk that this broker owns lack their records: sums over topics are too small until then.",
    ),
    counter(
        "magnetar_deletions_resumed_total",
        "deletions.resumed",
        "Deletions that were interrupted or had failed, and were finished later.",
    ),
    gauge(
        "magnetar_deletion_oldest_age_seconds",
        "deletions.oldest_age_s",
        "Time since the decision of the oldest deletion that is not finished; 0 without one.",
    ),
    gauge(
        "magnetar_audit_time_seconds",
        "last_audit.time_s",
        "Time of the last result of `magnetar admin audit`, in seconds since 1970; 0 before the first one.",
    ),
    gauge(
        "magnetar_cluster_brokers",
        "cluster.brokers",
        "Brokers on the metadata store, as this one has read last.",
    ),
    gauge(
        "magnetar_cluster_has_leader",
        "cluster.has_leader",
        "1 while one of these brokers leads; without a leader each broker chooses owners for itself.",
    ),
    gauge("magnetar_cluster_leases", "cluster.leases", "Bundles that this broker owns by a lease."),
    gauge(
        "magnetar_cluster_serving",
        "cluster.is_serving",
        "1 while new topics open: the metadata store answers, and all leases are of the present session.",
    ),
    counter(
        "magnetar_cluster_sessions_ended_total",
        "cluster.sessions_ended",
        "Sessions with the metadata store that have ended while the broker was running.",
    ),
    gauge(
        "magnetar_cluster_bundles_without_owner",
        "cluster.waited_for",
        "Bundles of dead brokers: lookups here wait until the metadata store ends the owner's session.",
    ),
    *(
        kind(f"pulsar_lb_{name}_{end}", f"cluster.{source}", text)
        for kind, end in ((gauge, "count"), (counter, "total"))
        for name, source, text in (
            (
                "unload_broker",
                "shed_brokers",
                "Busy brokers that this one, as the leader, took bundles from.",
            ),
            ("unload_bundle", "shed_bundles", "Bundles that this broker, as the leader, moved for balance."),
            ("bundles_split", "divided_bundles", "Bundles that this broker, as the leader, divided."),
        )
    ),
    # From here on ours. Some repeat a number of Pulsar's, so that a board can be made of this prefix alone.
    counter("pulsar_ml_cache_x_hits_total", "reads.hit_entries", "Entries found in the cache."),
    counter("pulsar_ml_cache_x_hit_bytes_total", "reads.hit_bytes", "Their bytes."),
    counter("pulsar_ml_cache_x_misses_total", "reads.miss_entries", "Entries read from storage."),
    counter("pulsar_ml_cache_x_miss_bytes_total", "reads.miss_bytes", "Their bytes."),
    counter(
        "pulsar_ml_cache_x_coalesced_total",
        "reads.coalesced_entries",
        "Entries received from a storage read that another reader had begun.",
    ),
    counter("pulsar_ml_cache_x_coalesced_bytes_total", "reads.coalesced_bytes", "Their bytes."),
    counter(
        "pulsar_ml_cache_x_duplicates_total",
        "manager.stats.refused_entries",
        "Entries offered for a position that was cached already.",
    ),
    counter("pulsar_ml_cache_x_insertions_total", "cache.inserted_entries", "Entries put into the cache."),
    gauge("pulsar_ml_cache_x_used_bytes", "manager.used_bytes", "Bytes of the entries in the cache."),
    gauge(
        "pulsar_ml_cache_x_max_bytes",
        "manager.settings.size_bytes_max",
        "managedLedgerCacheSizeMB, in bytes.",
    ),
    gauge("pulsar_ml_cache_x_entries", "manager.entries", "Entries in the cache."),
    gauge(
        "pulsar_ml_cache_x_pinned_bytes",
        "cache.pinned_bytes",
        "Receive-buffer bytes kept alive by shared entries beyond their own length.",
    ),
    gauge(
        "pulsar_ml_cache_x_charged_bytes",
        "cache.charged_bytes",
        "Bytes that count against managedLedgerCacheSizeMB.",
    ),
    gauge(
        "pulsar_ml_cache_x_memory_bytes",
        "cache.memory_bytes",
        "Memory of the cached entries: their bytes, 510 for the objects of each, and the pinned bytes.",
    ),
    gauge("pulsar_ml_cache_x_removal_queue_length", "cache.queue_length", "Entries in the removal queue."),
    gauge(
        "pulsar_ml_cache_x_tombstones",
        "cache.tombstones",
        "Of these, entries that were invalidated before.",
    ),
    gauge(
        "pulsar_ml_cache_x_expected_entries",
        "expected.entries",
        "Cached entries with expected reads left.",
    ),
    gauge("pulsar_ml_cache_x_expected_bytes", "expected.size_bytes", "Their bytes."),
    gauge(
        "pulsar_ml_cache_x_reads_inflight_limit_bytes",
        "inflight_limit_bytes",
        "managedLedgerMaxReadsInFlightSizeInMB, in bytes, -1 without a limit.",
    ),
    counter(
        "pulsar_broker_managed_ledger_cursor_persist_unacked_ranges_truncated_total",
        "ack_cuts.ranges",
        "Writes of cursors that left acknowledged entries out, which a crash would deliver again.",
    ),
    counter(
        "pulsar_broker_managed_ledger_cursor_persist_batch_deleted_indexes_truncated_total",
        "ack_cuts.batches",
        "Writes of cursors that left batches acknowledged in part out, of which a crash would deliver messages again.",
    ),
    counter(
        "magnetar_broker_timestamps_clamped_total",
        "clock_clamps.entries",
        "Entries that got the broker timestamp of the entry before them, because the broker's clock had gone back.",
    ),
    counter(
        "magnetar_time_searches_total",
        "time_searches.count",
        "Searches for an entry by time: seeks, expiry, backlog quotas by time, requests of the admin interface.",
    ),
    counter(
        "magnetar_time_search_reads_total",
        "time_searches.reads",
        "Entries that searches by time have read, from the cache or from storage.",
    ),
    gauge("pulsar_ml_cache_x_reads_waiting", "limiter.queued", "Reads that wait for bytes in flight."),
    counter(
        "pulsar_ml_cache_x_size_passes_total",
        "manager.stats.size_evictions",
        "Size evictions: checks of the size that found bytes to free.",
    ),
    *(
        counter(f"pulsar_ml_cache_x_record_{name}_total", f"record.{source}", f"{text}{_UNLESS_RECORDED}")
        for name, source, text in (
            ("rows", "rows", "Rows of the access record that were accepted for writing"),
            (
                "dropped_rows",
                "dropped",
                "Rows that were lost because the buffer was full or the disk refused",
            ),
            ("bytes", "bytes", "Bytes of its complete files"),
            ("files", "files", "Its complete files"),
            ("errors", "errors", "Failed attempts to write it"),
        )
    ),
)
"""Label cluster; served through the registry."""

_ENDED = "Transactions that ended, by the time since their begin in ms, not cumulative."


_ENDINGS: Final[tuple[tuple[str, Kind], ...]] = (("total", "counter"), ("count", "gauge"))
"""The ends of a coordinator's counters: Pulsar prints the first, its boards ask for the second."""


def _of_coordinators(name: str, source: str, text: str, *, kind: Kind = "counter") -> Family:
    return Family(f"pulsar_txn_{name}", kind, f"coordinators.*.{source}", text, label="coordinator_id")


COORDINATORS: Final = (
    _of_coordinators("active_count", "active", "Transactions that are not over.", kind="gauge"),
    *(
        _of_coordinators(f"{name}_{ending}", source, text, kind=kind)
        for name, source, text in (
            ("created", "counters.begun", "Transactions begun."),
            ("committed", "counters.committed", "Transactions committed."),
            ("aborted", "counters.aborted", "Transactions aborted, those that timed out included."),
            ("timeout", "counters.timed_out", "Transactions that timed out."),
            ("append_log", "journal.appended", "Records appended to the log."),
        )
        for ending, kind in _ENDINGS
    ),
    *(
        _of_coordinators(f"execution_latency_{name}", f"counters.ended_in.{name}", _ENDED, kind="gauge")
        for name in DURATION_CLASSES
    ),
)
"""Labels cluster, coordinator_id; only with `transactionCoordinatorEnabled=true`."""

OWNED_BUNDLES: Final = (
    "caffeine_cache_estimated_size",
    "owned-bundles",
    "Bundles with open topics, under the name of Pulsar's cache of them.",
)
"""Name of a gauge, the value of its label `cache`, and its help. Labels cluster, cache."""

CURVE: Final = (
    Family(
        "pulsar_ml_cache_x_curve_miss_ratio",
        "gauge",
        "curve.*.miss_ratio",
        "Share of reads that a cache of another size would miss, by its share of the present size.",
        label="factor",
    ),
    Family(
        "pulsar_ml_cache_x_curve_standard_error",
        "gauge",
        "curve.*.standard_error",
        "Standard error of these shares, which come from a sample.",
        label="factor",
    ),
)
"""Labels cluster, factor; while somebody looks at the console's page of the cache, and 10 minutes longer."""

BROKER_BY: Final = (
    Family(
        "pulsar_ml_cache_x_policy_info",
        "gauge",
        "policies",
        "1 for the cache policy in use.",
        label="policy",
    ),
    Family(
        "magnetar_audit_findings",
        "gauge",
        "last_audit.findings",
        "Findings of the last `magnetar admin audit` that could reach this broker, by class; no series before it.",
        label="class",
    ),
    by(
        "provider_name auth_method",
        "",
        "pulsar_authentication_success_total",
        "authentication.successes",
        "Connections and requests that have proven a role.",
    ),
    by(
        "provider_name auth_method reason",
        "",
        "pulsar_authentication_failures_total",
        "authentication.failures",
        "Attempts to prove a role that failed.",
    ),
    Family(
        "magnetar_cluster_moves_total",
        "counter",
        "cluster.moves",
        "Bundles that this broker took, gave up, lost to another one after the end of its session, or decided about as the"
        " leader.",
        label="kind",
        values=("taken", "given up", "lost", "decided"),
    ),
    by(
        "reason",
        "ttl size ledger invalidate",
        "pulsar_ml_cache_x_evicted_total",
        "manager.stats.evicted_entries",
        "Entries removed, by reason.",
    ),
    by(
        "reason",
        "ttl size ledger invalidate",
        "pulsar_ml_cache_x_evicted_bytes_total",
        "manager.stats.evicted_bytes",
        "Their bytes.",
    ),
    by(
        "reason",
        "ttl size ledger invalidate",
        "pulsar_ml_cache_x_evicted_expected_total",
        "evictions.evicted_expected_entries",
        "Entries removed although they had expected reads left, by reason.",
    ),
    by(
        "reason",
        "ttl size ledger invalidate",
        "pulsar_ml_cache_x_evicted_expected_bytes_total",
        "evictions.evicted_expected_bytes",
        "Their bytes.",
    ),
    by(
        "reason",
        "ttl size",
        "pulsar_ml_cache_x_passes_total",
        "evictions.passes.*.passes",
        "Passes over the removal queue that have ended.",
    ),
    by(
        "reason",
        "ttl size",
        "pulsar_ml_cache_x_visits_total",
        "evictions.passes.*.visits",
        "Slots that passes looked at; under magnetar other work of about the same cost counts too.",
    ),
    by(
        "cause",
        "expected_reads recently_accessed",
        "pulsar_ml_cache_x_requeues_total",
        "manager.policy.requeues",
        "Entries requeued by passes, by cause.",
    ),
)
"""Labels cluster and one more, its values being the keys of the source."""

HISTOGRAMS: Final = (
    histogram(
        "trigger",
        "periodic insert",
        "pulsar_ml_cache_x_pass_slice_seconds",
        "evictions.slices",
        "Time for which slices of passes held the loop, by trigger.",
    ),
    histogram(
        "reason",
        "ttl size",
        "pulsar_ml_cache_x_evicted_age_seconds",
        "evictions.passes.*.age",
        "From the insertion of entries to their removal by a pass.",
    ),
    histogram(
        "reason",
        "ttl size",
        "pulsar_ml_cache_x_evicted_idle_seconds",
        "evictions.passes.*.idle",
        "From the insertion of entries, or from their last requeue, to their removal by a pass.",
    ),
)
"""Label cluster and one more; cumulative since the start, unlike the buckets that Pulsar has."""

QUOTA_CHECKS: Final = (
    "pulsar_storage_backlog_quota_check_duration_seconds",
    "Durations of the comparisons of all backlogs with their quotas.",
)
"""Name and help of a histogram. Label cluster."""

JOINED_READS: Final = tuple(
    Family(
        f"pulsar_ml_cache_pendingreads_{name}_total",
        "counter",
        f"manager.stats.pending_reads.{source}",
        "Entries seen by the read coalescer.",
    )
    for name, source in (
        ("entries_read", "read"),
        ("entries_notread", "not_read"),
        ("matched", "matched"),
        ("matched_included", "matched_included"),
        ("missed", "missed"),
        ("matched_overlapping_miss_left", "overlapping.left"),
        ("matched_overlapping_miss_right", "overlapping.right"),
        ("matched_overlapping_miss_both", "overlapping.both"),
    )
)
"""Label cluster; served through the registry."""

CONSTANTS: Final = (
    *(
        (gauge(f"pulsar_ml_cache_pool_{name}", "", "Always -1: entries are not in a pool of their own."), -1)
        for name in (
            "allocated",
            "used",
            "active_allocations",
            "active_allocations_small",
            "active_allocations_normal",
            "active_allocations_huge",
        )
    ),
)
"""Families that boards ask for and that have one possible value here: family, value."""

QUANTILES: Final = (0.0, 0.5, 0.95, 0.99, 0.999, 0.9999, 1.0)
"""Quantiles of the summaries, Pulsar's."""
SUMMARIES: Final = (
    ("pulsar_broker_publish_latency", "From an entry's add to its confirmation in the window, ms."),
    ("pulsar_instance_publish_latency", "As pulsar_broker_publish_latency."),
    ("pulsar_topic_load_times", "Time to open a topic in the window, ms."),
)
"""Name and help. Labels cluster, quantile."""
