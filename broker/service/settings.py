"""ServiceSettings: the keys of broker.conf about topics, subscriptions and dispatching."""

from __future__ import annotations

from broker.config.fields import broker_key
from broker.config.server_keys import INDEX_INTERCEPTOR, TIMESTAMP_INTERCEPTOR
from foundation.settings.fields import RoomSettings
from foundation.settings.settings import Settings


def _auto_topic_partitions(settings: Settings) -> int:
    if settings.str("allowAutoTopicCreationType") != "partitioned":
        return 0
    return settings.int("defaultNumPartitions")


def _schema_strategy(settings: Settings) -> str:
    word = settings.str("schemaCompatibilityStrategy")
    # Pulsar's word for "no choice" means its default.
    return "FULL" if word == "UNDEFINED" else word


def _entry_timestamp(settings: Settings) -> bool:
    return TIMESTAMP_INTERCEPTOR in settings.list("brokerEntryMetadataInterceptors")


def _entry_index(settings: Settings) -> bool:
    return INDEX_INTERCEPTOR in settings.list("brokerEntryMetadataInterceptors")


def _subscription_types(settings: Settings) -> tuple[str, ...]:
    return settings.list("subscriptionTypesEnabled")


def _quota_bytes(settings: Settings) -> int:
    # Pulsar's own order: GiB, its older key, counts before bytes.
    gib = settings.float("backlogQuotaDefaultLimitGB")
    return int(gib * (1 << 30)) if gib > 0 else settings.int("backlogQuotaDefaultLimitBytes")


class ServiceSettings(RoomSettings):
    """Creation of topics and subscriptions, their limits, and the rules of dispatching."""

    cluster: str = broker_key.str("clusterName")
    auto_topic_creation: bool = broker_key.bool("allowAutoTopicCreation")
    auto_topic_partitions: int = broker_key.rule(_auto_topic_partitions)
    """Partitions of a topic created so; 0 = a topic without partitions."""
    auto_subscription_creation: bool = broker_key.bool("allowAutoSubscriptionCreation")
    partitions_max: int = broker_key.int("maxNumPartitionsPerPartitionedTopic")
    tenants_max: int = broker_key.int("maxTenants")
    namespaces_max: int = broker_key.int("maxNamespacesPerTenant")
    force_delete_tenants: bool = broker_key.bool("forceDeleteTenantAllowed")
    force_delete_namespaces: bool = broker_key.bool("forceDeleteNamespaceAllowed")
    bundles: int = broker_key.int("defaultNumberOfNamespaceBundles")
    persistent_topics: bool = broker_key.bool("enablePersistentTopics")
    non_persistent_topics: bool = broker_key.bool("enableNonPersistentTopics")
    delete_inactive: bool = broker_key.bool("brokerDeleteInactiveTopicsEnabled")
    inactive_mode: str = broker_key.str("brokerDeleteInactiveTopicsMode")
    inactive_after_s: int = broker_key.int("brokerDeleteInactiveTopicsMaxInactiveDurationSeconds")
    replicator_prefix: str = broker_key.str("replicatorPrefix")
    replicators_update_schemas: bool = broker_key.rule(lambda settings: settings.profile == "5.0")
    """Pulsar's default for namespaces, which is no key of its own: 4.2 lacks the policy, 5.0 begins with true (PIP-433)."""
    close_inactive: bool = broker_key.bool("brokerCloseInactiveTopicsEnabled")
    inactive_frequency_s: int = broker_key.int("brokerDeleteInactiveTopicsFrequencySeconds")
    delete_inactive_partitioned_metadata: bool = broker_key.bool(
        "brokerDeleteInactivePartitionedTopicMetadataEnabled"
    )
    deduplication: bool = broker_key.bool("brokerDeduplicationEnabled")
    deduplication_snapshot_entries: int = broker_key.int("brokerDeduplicationEntriesInterval")
    deduplication_snapshot_s: int = broker_key.int("brokerDeduplicationSnapshotIntervalSeconds")
    deduplication_producers_max: int = broker_key.int("brokerDeduplicationMaxNumberOfProducers")
    schema_strategy: str = broker_key.rule(_schema_strategy)
    """Compatibility strategy of schemas where no policy names one."""
    system_schema_strategy: str = broker_key.str("systemTopicSchemaCompatibilityStrategy")
    schema_updates: bool = broker_key.bool("isAllowAutoUpdateSchemaEnabled")
    schema_validation: bool = broker_key.bool("isSchemaValidationEnforced")
    delayed_delivery: bool = broker_key.bool("delayedDeliveryEnabled")
    delayed_tick_ms: int = broker_key.int("delayedDeliveryTickTimeMillis")
    delayed_strict: bool = broker_key.bool("isDelayedDeliveryDeliverAtTimeStrict")
    delay_max_ms: int = broker_key.int("delayedDeliveryMaxDelayInMillis")
    delayed_look_ahead: int = broker_key.int("delayedDeliveryFixedDelayDetectionLookahead")
    batch_index_acks: bool = broker_key.bool("acknowledgmentAtBatchIndexLevelEnabled")
    redelivery_tracker: bool = broker_key.bool("subscriptionRedeliveryTrackerEnabled")
    read_entries_max: int = broker_key.int("dispatcherMaxReadBatchSize")
    read_bytes_max: int = broker_key.int("dispatcherMaxReadSizeBytes")
    round_robin_entries_max: int = broker_key.int("dispatcherMaxRoundRobinBatchSize")
    unacked_max_per_consumer: int = broker_key.int("maxUnackedMessagesPerConsumer")
    unacked_max_per_subscription: int = broker_key.int("maxUnackedMessagesPerSubscription")
    transactions: bool = broker_key.bool("transactionCoordinatorEnabled")
    open_transactions_max: int = broker_key.int("maxActiveTransactionsPerCoordinator")
    role_transactions_max: int = broker_key.int("maxActiveTransactionsPerRole")
    connection_transactions_max: int = broker_key.int("maxActiveTransactionsPerConnection")
    transaction_timeout_max_s: int = broker_key.int("transactionTimeoutMaxSeconds")
    transaction_snapshot_entries: int = broker_key.int("transactionBufferSnapshotMaxTransactionCount")
    transaction_snapshot_ms: int = broker_key.int("transactionBufferSnapshotMinTimeInMillis")
    unacked_max_per_broker: int = broker_key.int("maxUnackedMessagesPerBroker")
    unacked_share_when_blocked: float = broker_key.float("maxUnackedMessagesPerSubscriptionOnBrokerBlocked")
    broker_publish_messages: int = broker_key.int("brokerPublisherThrottlingMaxMessageRate")
    broker_publish_bytes: int = broker_key.int("brokerPublisherThrottlingMaxByteRate")
    topic_publish_messages: int = broker_key.int("maxPublishRatePerTopicInMessages")
    topic_publish_bytes: int = broker_key.int("maxPublishRatePerTopicInBytes")
    broker_dispatch_messages: int = broker_key.int("dispatchThrottlingRateInMsg")
    broker_dispatch_bytes: int = broker_key.int("dispatchThrottlingRateInByte")
    topic_dispatch_messages: int = broker_key.int("dispatchThrottlingRatePerTopicInMsg")
    topic_dispatch_bytes: int = broker_key.int("dispatchThrottlingRatePerTopicInByte")
    subscription_dispatch_messages: int = broker_key.int("dispatchThrottlingRatePerSubscriptionInMsg")
    subscription_dispatch_bytes: int = broker_key.int("dispatchThrottlingRatePerSubscriptionInByte")
    dispatch_relative: bool = broker_key.bool("dispatchThrottlingRateRelativeToPublishRate")
    throttle_caught_up: bool = broker_key.bool("dispatchThrottlingOnNonBacklogConsumerEnabled")
    caught_up_entries: int = broker_key.int("managedLedgerCursorBackloggedThreshold")
    throttle_entries: bool = broker_key.bool("dispatchThrottlingOnBatchMessageEnabled")
    subscribes_per_consumer: int = broker_key.int("subscribeThrottlingRatePerConsumer")
    subscribe_period_s: int = broker_key.int("subscribeRatePeriodPerConsumerInSecond")
    producers_max: int = broker_key.int("maxProducersPerTopic")
    consumers_max_per_topic: int = broker_key.int("maxConsumersPerTopic")
    consumers_max_per_subscription: int = broker_key.int("maxConsumersPerSubscription")
    subscriptions_max: int = broker_key.int("maxSubscriptionsPerTopic")
    topics_max_per_namespace: int = broker_key.int("maxTopicsPerNamespace")
    topic_policies: bool = broker_key.bool("topicLevelPoliciesEnabled")
    encryption_required: bool = broker_key.bool("encryptionRequireOnProducer")
    subscription_types: tuple[str, ...] = broker_key.rule(_subscription_types)
    """Names of the subscription types that are allowed."""
    key_shared: bool = broker_key.bool("subscriptionKeySharedEnable")
    failover_delay_ms: int = broker_key.int("activeConsumerFailoverDelayTimeMillis")
    failover_consistent_hashing: bool = broker_key.bool("activeConsumerFailoverConsistentHashing")
    key_shared_consistent_hashing: bool = broker_key.bool("subscriptionKeySharedUseConsistentHashing")
    key_shared_points: int = broker_key.int("subscriptionKeySharedConsistentHashingReplicaPoints")
    look_ahead_per_consumer: int = broker_key.int("keySharedLookAheadMsgInReplayThresholdPerConsumer")
    look_ahead_per_subscription: int = broker_key.int("keySharedLookAheadMsgInReplayThresholdPerSubscription")
    pause_on_ack_state: bool = broker_key.bool("dispatcherPauseOnAckStatePersistentEnabled")
    compaction_threshold_bytes: int = broker_key.int("brokerServiceCompactionThresholdInBytes")
    compaction_read_timeout_s: int = broker_key.int("brokerServiceCompactionPhaseOneLoopTimeInSeconds")
    compaction_retains_null_keys: bool = broker_key.bool("topicCompactionRetainNullKey")
    compaction_memory_bytes: int = broker_key.int("magnetarCompactionMemoryLimitMB", "bytes")
    retention_minutes: int = broker_key.int("defaultRetentionTimeInMinutes")
    trim_interval_s: int = broker_key.int("retentionCheckIntervalInSeconds")
    dormant_after_s: int = broker_key.int("dormantTopicsAfterSeconds")
    retention_mib: int = broker_key.int("defaultRetentionSizeInMB")
    ttl_s: int = broker_key.int("ttlDurationDefaultInSeconds")
    ttl_interval_min: int = broker_key.int("messageExpiryCheckIntervalInMinutes")
    ttl_ignores_delays: bool = broker_key.bool("messageExpiryIgnoresDeliveryTime")
    subscription_expires_min: int = broker_key.int("subscriptionExpirationTimeMinutes")
    subscription_interval_min: int = broker_key.int("subscriptionExpiryCheckIntervalInMinutes")
    hole_redelivery: bool = broker_key.bool("unackedHoleRedeliveryEnabled")
    hole_period_s: int = broker_key.int("unackedHoleRedeliveryPeriodSeconds")
    hole_pending_s: int = broker_key.int("unackedHoleRedeliveryPendingSeconds")
    quotas_checked: bool = broker_key.bool("backlogQuotaCheckEnabled")
    quota_interval_s: int = broker_key.int("backlogQuotaCheckIntervalInSeconds")
    quota_bytes: int = broker_key.rule(_quota_bytes)
    """Bytes of backlog that a topic may have; -1 = no limit."""
    quota_age_s: int = broker_key.int("backlogQuotaDefaultLimitSecond")
    quota_reaction: str = broker_key.str("backlogQuotaDefaultRetentionPolicy")
    quota_age_precise: bool = broker_key.bool("preciseTimeBasedBacklogQuotaCheck")
    subscription_ages: bool = broker_key.bool("exposeSubscriptionBacklogAgeInPrometheus")
    ensemble_size: int = broker_key.int("managedLedgerDefaultEnsembleSize")
    write_quorum: int = broker_key.int("managedLedgerDefaultWriteQuorum")
    ack_quorum: int = broker_key.int("managedLedgerDefaultAckQuorum")
    mark_delete_rate: float = broker_key.float("managedLedgerDefaultMarkDeleteRateLimit")
    entry_timestamp: bool = broker_key.rule(_entry_timestamp)
    """Stamp entries with the broker's clock."""
    entry_index: bool = broker_key.rule(_entry_index)
    """Stamp entries with the index of their last message in the topic."""
