"""From broker.conf's keys to what each room is handed: the only place that knows both."""

from __future__ import annotations

import re
from pathlib import Path

from broker.entry_cache.settings import EntryCacheSettings
from broker.ledger_client.settings import LedgerSettings, QuarantineSettings
from broker.managed_ledger.inflight_reads_limiter import InflightReadsLimiter
from broker.managed_ledger.settings import NS_PER_SECOND, ManagedLedgerSettings
from broker.net.settings import NetSettings
from broker.recorder.settings import RecordSettings
from broker.service.settings import ServiceSettings
from protocol.broker_entry_metadata import INDEX_INTERCEPTOR, TIMESTAMP_INTERCEPTOR
from protocol.ledger_metadata import DigestType
from settings.settings import Settings

MIB = 1 << 20
NS_PER_MS = 1_000_000


def service_settings(settings: Settings) -> ServiceSettings:
    interceptors = settings.list("brokerEntryMetadataInterceptors")
    partitioned = settings.str("allowAutoTopicCreationType") == "partitioned"
    return ServiceSettings(
        cluster=settings.str("clusterName"),
        auto_topic_creation=settings.bool("allowAutoTopicCreation"),
        auto_topic_partitions=settings.int("defaultNumPartitions") if partitioned else 0,
        auto_subscription_creation=settings.bool("allowAutoSubscriptionCreation"),
        partitions_max=settings.int("maxNumPartitionsPerPartitionedTopic"),
        deduplication=settings.bool("brokerDeduplicationEnabled"),
        deduplication_snapshot_entries=settings.int("brokerDeduplicationEntriesInterval"),
        deduplication_producers_max=settings.int("brokerDeduplicationMaxNumberOfProducers"),
        batch_index_acks=settings.bool("acknowledgmentAtBatchIndexLevelEnabled"),
        redelivery_tracker=settings.bool("subscriptionRedeliveryTrackerEnabled"),
        read_entries_max=settings.int("dispatcherMaxReadBatchSize"),
        read_bytes_max=settings.int("dispatcherMaxReadSizeBytes"),
        round_robin_entries_max=settings.int("dispatcherMaxRoundRobinBatchSize"),
        unacked_max_per_consumer=settings.int("maxUnackedMessagesPerConsumer"),
        unacked_max_per_subscription=settings.int("maxUnackedMessagesPerSubscription"),
        producers_max=settings.int("maxProducersPerTopic"),
        consumers_max_per_topic=settings.int("maxConsumersPerTopic"),
        consumers_max_per_subscription=settings.int("maxConsumersPerSubscription"),
        subscriptions_max=settings.int("maxSubscriptionsPerTopic"),
        failover_delay_ms=settings.int("activeConsumerFailoverDelayTimeMillis"),
        failover_consistent_hashing=settings.bool("activeConsumerFailoverConsistentHashing"),
        key_shared_consistent_hashing=settings.bool("subscriptionKeySharedUseConsistentHashing"),
        key_shared_points=settings.int("subscriptionKeySharedConsistentHashingReplicaPoints"),
        look_ahead_per_consumer=settings.int("keySharedLookAheadMsgInReplayThresholdPerConsumer"),
        look_ahead_per_subscription=settings.int("keySharedLookAheadMsgInReplayThresholdPerSubscription"),
        entry_timestamp=TIMESTAMP_INTERCEPTOR in interceptors,
        entry_index=INDEX_INTERCEPTOR in interceptors,
    )


def ledger_settings(settings: Settings) -> ManagedLedgerSettings:
    minute_ns = 60 * NS_PER_SECOND
    continue_ms = settings.int("managedLedgerContinueCachingAddedEntriesAfterLastActiveCursorLeavesMillis")
    return ManagedLedgerSettings(
        entries_per_ledger_max=settings.int("managedLedgerMaxEntriesPerLedger"),
        ledger_bytes_max=settings.int("managedLedgerMaxSizePerLedgerMbytes") * MIB,
        rollover_ns_min=settings.int("managedLedgerMinLedgerRolloverTimeMinutes") * minute_ns,
        rollover_ns_max=settings.int("managedLedgerMaxLedgerRolloverTimeMinutes") * minute_ns,
        mark_delete_rate=settings.float("managedLedgerDefaultMarkDeleteRateLimit"),
        ack_ranges_max=settings.int("managedLedgerMaxUnackedRangesToPersist"),
        batch_ack_sets_max=settings.int("managedLedgerMaxBatchDeletedIndexToPersist"),
        read_bytes_max=min(settings.int("dispatcherMaxReadSizeBytes"), settings.int("maxMessageSize")),
        track_mark_delete=settings.bool("cacheEvictionByMarkDeletedPosition"),
        expected_reads=settings.bool("cacheEvictionByExpectedReadCount"),
        continue_caching_ns=continue_ms * NS_PER_MS,
        backlog_cursors_min_for_caching=settings.int("managedLedgerMinimumBacklogCursorsForCaching"),
        backlog_entries_min_for_caching=settings.int("managedLedgerMinimumBacklogEntriesForCaching"),
        backlog_between_cursors_max_for_caching=settings.int(
            "managedLedgerMaxBacklogBetweenCursorsForCaching"
        ),
        cursor_backlogged_threshold=settings.int("managedLedgerCursorBackloggedThreshold"),
        read_timeout_s=settings.int("managedLedgerReadEntryTimeoutSeconds"),
    )


def ensemble_settings(settings: Settings, *, alone: bool) -> LedgerSettings:
    """`alone`: there is one bookie, embedded or in memory perhaps, whatever the quorums say."""
    digest = settings.str("managedLedgerDigestType")
    return LedgerSettings(
        ensemble_size=1 if alone else settings.int("managedLedgerDefaultEnsembleSize"),
        write_quorum=1 if alone else settings.int("managedLedgerDefaultWriteQuorum"),
        ack_quorum=1 if alone else settings.int("managedLedgerDefaultAckQuorum"),
        digest_type=DigestType.HMAC if digest == "MAC" else DigestType[digest],
        password=settings.str("managedLedgerPassword").encode(),
        sticky_reads=settings.bool("bookkeeperEnableStickyReads"),
        speculative_read_s=settings.int("bookkeeperClientSpeculativeReadTimeoutInMillis") / 1000,
        opportunistic_striping=settings.bool("bookkeeper_opportunisticStriping"),
    )


def quarantine_settings(settings: Settings) -> QuarantineSettings:
    enabled = settings.bool("bookkeeperClientHealthCheckEnabled")
    return QuarantineSettings(
        errors=settings.int("bookkeeperClientHealthCheckErrorThresholdPerInterval"),
        interval_s=settings.int("bookkeeperClientHealthCheckIntervalSeconds"),
        quarantine_s=settings.int("bookkeeperClientHealthCheckQuarantineTimeInSeconds") if enabled else 0,
    )


def reads_limiter(settings: Settings) -> InflightReadsLimiter:
    return InflightReadsLimiter(
        settings.int("managedLedgerMaxReadsInFlightSizeInMB") * MIB,
        settings.int("managedLedgerMaxReadsInFlightPermitsAcquireQueueSize"),
        settings.int("managedLedgerMaxReadsInFlightPermitsAcquireTimeoutMillis") * NS_PER_MS,
    )


def cache_settings(settings: Settings) -> EntryCacheSettings:
    return EntryCacheSettings(
        size_bytes_max=settings.int("managedLedgerCacheSizeMB") * MIB,
        watermark=settings.float("managedLedgerCacheEvictionWatermark"),
        ttl_ns=settings.int("managedLedgerCacheEvictionTimeThresholdMillis") * NS_PER_MS,
        requeues_max=settings.int(
            "managedLedgerCacheEvictionExtendTTLOfEntriesWithRemainingExpectedReadsMaxTimes"
        ),
        extend_recently_accessed=settings.bool("managedLedgerCacheEvictionExtendTTLOfRecentlyAccessed"),
        copy_entries=settings.bool("managedLedgerCacheCopyEntries"),
        policy=settings.str("entryCachePolicy"),
        profile="5.0" if settings.profile == "5.0" else "4.2",
        ttl_max_ns=settings.int("managedLedgerCacheEvictionTimeThresholdMillisMax") * NS_PER_MS,
        topic_quota_bytes=settings.int("entryCacheTopicQuotaMB") * MIB,
        pinned_ratio_max=settings.float("entryCachePinnedRatioMax"),
    )


def record_settings(settings: Settings) -> RecordSettings | None:
    """None where nothing is to be recorded."""
    directory = settings.str("entryCacheRecordDirectory")
    if not directory:
        return None
    name = f"{settings.str('advertisedAddress')}-{settings.int('brokerServicePort')}"
    return RecordSettings(
        directory=Path(directory),
        broker=re.sub(r"[^\w.-]", "_", name),
        sample=settings.float("entryCacheRecordSample"),
        file_bytes=settings.int("entryCacheRecordFileMB") * MIB,
        file_seconds=settings.int("entryCacheRecordFileSeconds"),
        buffer_rows=settings.int("entryCacheRecordBufferRows"),
        kept_bytes=settings.int("entryCacheRecordKeptMB") * MIB,
    )


def net_settings(settings: Settings) -> NetSettings:
    publish_mb = settings.int("maxMessagePublishBufferSizeInMB")
    return NetSettings(
        message_bytes_max=settings.int("maxMessageSize"),
        keep_alive_s=settings.int("keepAliveIntervalSeconds"),
        liveness_timeout_s=settings.int("connectionLivenessCheckTimeoutMillis") / 1000,
        pending_publishes_max=settings.int("maxPendingPublishRequestsPerConnection"),
        publish_buffer_bytes_max=publish_mb * MIB if publish_mb > 0 else 0,
        receive_buffer_min=settings.int("brokerAdaptiveRecvByteBufAllocatorMinimumSize"),
        receive_buffer_initial=settings.int("brokerAdaptiveRecvByteBufAllocatorInitialSize"),
        receive_buffer_max=settings.int("brokerAdaptiveRecvByteBufAllocatorMaximumSize"),
        copy_entries=settings.bool("managedLedgerCacheCopyEntries"),
        expose_entry_metadata=settings.bool("exposingBrokerEntryMetadataToClientEnabled"),
        connections_max=settings.int("brokerMaxConnections"),
        write_buffer_high_bytes=settings.int("pulsarChannelWriteBufferHighWaterMark"),
        write_buffer_low_bytes=settings.int("pulsarChannelWriteBufferLowWaterMark"),
    )
