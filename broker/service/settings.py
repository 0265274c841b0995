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
    """Name of the cluster."""
    auto_topic_creation: bool = broker_key.bool("allowAutoTopicCreation")
    """Create a topic for its first producer or consumer."""
    auto_topic_partitions: int = broker_key.rule(_auto_topic_partitions)
    """Partitions of a topic created so; 0 = a topic without partitions."""
    auto_subscription_creation: bool = broker_key.bool("allowAutoSubscriptionCreation")
    """Create a subscription for its first consumer."""
    partitions_max: int = broker_key.int("maxNumPartitionsPerPartitionedTopic")
    """Partitions of one topic; 0 = no limit."""
    tenants_max: int = broker_key.int("maxTenants")
    """Tenants that may be created; 0 = no limit."""
    namespaces_max: int = broker_key.int("maxNamespacesPerTenant")
    """Namespaces of one tenant; 0 = no limit."""
    force_delete_tenants: bool = broker_key.bool("forceDeleteTenantAllowed")
    """Tenants may be deleted with everything in them."""
    force_delete_namespaces: bool = broker_key.bool("forceDeleteNamespaceAllowed")
    """Namespaces may be deleted with their topics."""
    bundles: int = broker_key.int("defaultNumberOfNamespaceBundles")
    """Bundles of a namespace that is created without a number of them."""
    persistent_topics: bool = broker_key.bool("enablePersistentTopics")
    """Serve topics of the domain `persistent`."""
    non_persistent_topics: bool = broker_key.bool("enableNonPersistentTopics")
    """Serve topics of the domain `non-persistent`."""
    delete_inactive: bool = broker_key.bool("brokerDeleteInactiveTopicsEnabled")
    """Delete unused topics."""
    inactive_mode: str = broker_key.str("brokerDeleteInactiveTopicsMode")
    """Condition under which a topic counts as unused."""
    inactive_after_s: int = broker_key.int("brokerDeleteInactiveTopicsMaxInactiveDurationSeconds")
    """Seconds without use after which a topic is deleted."""
    inactive_frequency_s: int = broker_key.int("brokerDeleteInactiveTopicsFrequencySeconds")
    """Seconds between two looks for unused topics."""
    delete_inactive_partitioned_metadata: bool = broker_key.bool(
        "brokerDeleteInactivePartitionedTopicMetadataEnabled"
    )
    """Delete a partitioned topic as well when the last of its partitions was deleted as unused."""
    deduplication: bool = broker_key.bool("brokerDeduplicationEnabled")
    """Confirm a message with a known sequence id without storing it."""
    deduplication_snapshot_entries: int = broker_key.int("brokerDeduplicationEntriesInterval")
    """Entries between two deduplication snapshots."""
    deduplication_snapshot_s: int = broker_key.int("brokerDeduplicationSnapshotIntervalSeconds")
    """Seconds after which sequence ids are saved although few entries came; 0 or less = not by time."""
    deduplication_producers_max: int = broker_key.int("brokerDeduplicationMaxNumberOfProducers")
    """Producers in a deduplication snapshot."""
    schema_strategy: str = broker_key.rule(_schema_strategy)
    """Compatibility strategy of schemas where no policy names one."""
    system_schema_strategy: str = broker_key.str("systemTopicSchemaCompatibilityStrategy")
    """The same for system topics, which no policy changes."""
    schema_updates: bool = broker_key.bool("isAllowAutoUpdateSchemaEnabled")
    """Producers and consumers may add versions of a schema."""
    schema_validation: bool = broker_key.bool("isSchemaValidationEnforced")
    """A topic with a schema refuses producers without one."""
    delayed_delivery: bool = broker_key.bool("delayedDeliveryEnabled")
    """Hold messages back until the time that their producer asked for."""
    delayed_tick_ms: int = broker_key.int("delayedDeliveryTickTimeMillis")
    """Time between two looks at delayed messages."""
    delayed_strict: bool = broker_key.bool("isDelayedDeliveryDeliverAtTimeStrict")
    """Deliver no message before its time; otherwise up to a tick before it."""
    delay_max_ms: int = broker_key.int("delayedDeliveryMaxDelayInMillis")
    """Longest delay that a producer may ask for; 0 = no limit."""
    delayed_look_ahead: int = broker_key.int("delayedDeliveryFixedDelayDetectionLookahead")
    """Delayed messages of a fixed delay at which a subscription reads no further; 0 = never."""
    batch_index_acks: bool = broker_key.bool("acknowledgmentAtBatchIndexLevelEnabled")
    """Accept acknowledgements of single messages inside a batch."""
    redelivery_tracker: bool = broker_key.bool("subscriptionRedeliveryTrackerEnabled")
    """Count redeliveries and tell the consumer."""
    read_entries_max: int = broker_key.int("dispatcherMaxReadBatchSize")
    """Entries of one read."""
    read_bytes_max: int = broker_key.int("dispatcherMaxReadSizeBytes")
    """Bytes of one read."""
    round_robin_entries_max: int = broker_key.int("dispatcherMaxRoundRobinBatchSize")
    """Messages for one consumer of a Shared subscription before the next consumer's turn."""
    unacked_max_per_consumer: int = broker_key.int("maxUnackedMessagesPerConsumer")
    """Unacknowledged messages at which a consumer receives no further ones; 0 = no limit."""
    unacked_max_per_subscription: int = broker_key.int("maxUnackedMessagesPerSubscription")
    """Unacknowledged messages at which a subscription pauses until half are left; 0 = no limit."""
    transactions: bool = broker_key.bool("transactionCoordinatorEnabled")
    """Run transaction coordinators; without them every request for a transaction is refused."""
    open_transactions_max: int = broker_key.int("maxActiveTransactionsPerCoordinator")
    """Open transactions of one coordinator; 0 = 20,000."""
    role_transactions_max: int = broker_key.int("maxActiveTransactionsPerRole")
    """Open transactions of one role at one coordinator; 0 = a tenth of the coordinator's."""
    connection_transactions_max: int = broker_key.int("maxActiveTransactionsPerConnection")
    """Open transactions that one connection has begun; 0 = no limit."""
    transaction_timeout_max_s: int = broker_key.int("transactionTimeoutMaxSeconds")
    """Longest time-out of a transaction."""
    transaction_snapshot_entries: int = broker_key.int("transactionBufferSnapshotMaxTransactionCount")
    """Entries of a topic with transactions between two snapshots, at most."""
    transaction_snapshot_ms: int = broker_key.int("transactionBufferSnapshotMinTimeInMillis")
    """Time from a change of such a topic to the snapshot that has it, at most."""
    unacked_max_per_broker: int = broker_key.int("maxUnackedMessagesPerBroker")
    """Unacknowledged messages of the broker at which large subscriptions pause; 0 = no limit."""
    unacked_share_when_blocked: float = broker_key.float("maxUnackedMessagesPerSubscriptionOnBrokerBlocked")
    """Share of that limit which one subscription may hold meanwhile, 0 to 1."""
    broker_publish_messages: int = broker_key.int("brokerPublisherThrottlingMaxMessageRate")
    """Messages per second published to all topics together; 0 = no limit."""
    broker_publish_bytes: int = broker_key.int("brokerPublisherThrottlingMaxByteRate")
    """Bytes of them per second; 0 = no limit."""
    topic_publish_messages: int = broker_key.int("maxPublishRatePerTopicInMessages")
    """Messages per second published to one topic; 0 = no limit."""
    topic_publish_bytes: int = broker_key.int("maxPublishRatePerTopicInBytes")
    """Bytes of them per second; 0 = no limit."""
    broker_dispatch_messages: int = broker_key.int("dispatchThrottlingRateInMsg")
    """Messages per second delivered from all topics together; 0 = no limit."""
    broker_dispatch_bytes: int = broker_key.int("dispatchThrottlingRateInByte")
    """Bytes of them per second; 0 = no limit."""
    topic_dispatch_messages: int = broker_key.int("dispatchThrottlingRatePerTopicInMsg")
    """Messages per second delivered from one topic; 0 = no limit."""
    topic_dispatch_bytes: int = broker_key.int("dispatchThrottlingRatePerTopicInByte")
    """Bytes of them per second; 0 = no limit."""
    subscription_dispatch_messages: int = broker_key.int("dispatchThrottlingRatePerSubscriptionInMsg")
    """Messages per second delivered to one subscription; 0 = no limit."""
    subscription_dispatch_bytes: int = broker_key.int("dispatchThrottlingRatePerSubscriptionInByte")
    """Bytes of them per second; 0 = no limit."""
    dispatch_relative: bool = broker_key.bool("dispatchThrottlingRateRelativeToPublishRate")
    """Add the publish rate of a topic to these rates of topics and subscriptions."""
    throttle_caught_up: bool = broker_key.bool("dispatchThrottlingOnNonBacklogConsumerEnabled")
    """Hold delivery rates also while a subscription has little backlog."""
    caught_up_entries: int = broker_key.int("managedLedgerCursorBackloggedThreshold")
    """Entries of backlog up to which a subscription counts as caught up."""
    throttle_entries: bool = broker_key.bool("dispatchThrottlingOnBatchMessageEnabled")
    """Count a batch as one message in delivery rates."""
    subscribes_per_consumer: int = broker_key.int("subscribeThrottlingRatePerConsumer")
    """Subscribe requests of one consumer per period; 0 = no limit."""
    subscribe_period_s: int = broker_key.int("subscribeRatePeriodPerConsumerInSecond")
    """Seconds of that period."""
    producers_max: int = broker_key.int("maxProducersPerTopic")
    """Producers of a topic; 0 = no limit."""
    consumers_max_per_topic: int = broker_key.int("maxConsumersPerTopic")
    """Consumers of a topic; 0 = no limit."""
    consumers_max_per_subscription: int = broker_key.int("maxConsumersPerSubscription")
    """Consumers of a subscription; 0 = no limit."""
    subscriptions_max: int = broker_key.int("maxSubscriptionsPerTopic")
    """Subscriptions of a topic; 0 = no limit."""
    topics_max_per_namespace: int = broker_key.int("maxTopicsPerNamespace")
    """Topics of a namespace, each partition counted; 0 = no limit."""
    topic_policies: bool = broker_key.bool("topicLevelPoliciesEnabled")
    """Policies of single topics may be set and are obeyed."""
    encryption_required: bool = broker_key.bool("encryptionRequireOnProducer")
    """Refuse producers that do not encrypt."""
    subscription_types: tuple[str, ...] = broker_key.rule(_subscription_types)
    """Names of the subscription types that are allowed."""
    key_shared: bool = broker_key.bool("subscriptionKeySharedEnable")
    """Allow Key_Shared subscriptions, whatever the types say."""
    failover_delay_ms: int = broker_key.int("activeConsumerFailoverDelayTimeMillis")
    """Time between the choice of another active consumer and the first message to it."""
    failover_consistent_hashing: bool = broker_key.bool("activeConsumerFailoverConsistentHashing")
    """Choose the active consumer by a hash ring over consumer names."""
    key_shared_consistent_hashing: bool = broker_key.bool("subscriptionKeySharedUseConsistentHashing")
    """Assign keys by a hash ring; otherwise by ranges of hashes that are split."""
    key_shared_points: int = broker_key.int("subscriptionKeySharedConsistentHashingReplicaPoints")
    """Points per consumer on that ring."""
    look_ahead_per_consumer: int = broker_key.int("keySharedLookAheadMsgInReplayThresholdPerConsumer")
    """Messages per consumer that may wait for their key while later ones are read; 0 or less = no limit."""
    look_ahead_per_subscription: int = broker_key.int("keySharedLookAheadMsgInReplayThresholdPerSubscription")
    """Messages of a subscription that may wait for their key; 0 or less = no limit."""
    pause_on_ack_state: bool = broker_key.bool("dispatcherPauseOnAckStatePersistentEnabled")
    """Deliver nothing more to a subscription whose acknowledgements cannot be stored."""
    compaction_threshold_bytes: int = broker_key.int("brokerServiceCompactionThresholdInBytes")
    """Bytes published since the last compaction at which the next one begins by itself; 0 = never."""
    compaction_read_timeout_s: int = broker_key.int("brokerServiceCompactionPhaseOneLoopTimeInSeconds")
    """Limit on one read of a compaction."""
    compaction_retains_null_keys: bool = broker_key.bool("topicCompactionRetainNullKey")
    """Compaction keeps messages without a key."""
    compaction_memory_bytes: int = broker_key.int("magnetarCompactionMemoryLimitMB", "bytes")
    """Memory for the keys of a compaction; more keys take more rounds over the entries."""
    retention_minutes: int = broker_key.int("defaultRetentionTimeInMinutes")
    """Minutes that acknowledged entries are kept; -1 = for ever."""
    retention_mib: int = broker_key.int("defaultRetentionSizeInMB")
    """MiB of a topic up to which acknowledged entries are kept; -1 = all."""
    ttl_s: int = broker_key.int("ttlDurationDefaultInSeconds")
    """Age at which an unread message counts as acknowledged; 0 = never."""
    ttl_interval_min: int = broker_key.int("messageExpiryCheckIntervalInMinutes")
    """Minutes between two searches for such messages."""
    ttl_ignores_delays: bool = broker_key.bool("messageExpiryIgnoresDeliveryTime")
    """Delayed messages may expire before their delivery time."""
    subscription_expires_min: int = broker_key.int("subscriptionExpirationTimeMinutes")
    """Minutes without a consumer after which a subscription is deleted; 0 = never."""
    subscription_interval_min: int = broker_key.int("subscriptionExpiryCheckIntervalInMinutes")
    """Minutes between two searches for such subscriptions."""
    hole_redelivery: bool = broker_key.bool("unackedHoleRedeliveryEnabled")
    """Deliver entries again that were read, are unacknowledged and are pending at no consumer."""
    hole_period_s: int = broker_key.int("unackedHoleRedeliveryPeriodSeconds")
    """Seconds after which an entry that was read counts for that."""
    quotas_checked: bool = broker_key.bool("backlogQuotaCheckEnabled")
    """Backlog quotas have an effect."""
    quota_interval_s: int = broker_key.int("backlogQuotaCheckIntervalInSeconds")
    """Seconds between two looks at the backlogs."""
    quota_bytes: int = broker_key.rule(_quota_bytes)
    """Bytes of backlog that a topic may have; -1 = no limit."""
    quota_age_s: int = broker_key.int("backlogQuotaDefaultLimitSecond")
    """Age that the oldest unacknowledged message may reach; -1 = no limit."""
    quota_reaction: str = broker_key.str("backlogQuotaDefaultRetentionPolicy")
    """Pulsar's word for the action at a quota."""
    quota_age_precise: bool = broker_key.bool("preciseTimeBasedBacklogQuotaCheck")
    """Take the age from the message and not from its ledger."""
    ensemble_size: int = broker_key.int("managedLedgerDefaultEnsembleSize")
    """Bookies of a ledger."""
    write_quorum: int = broker_key.int("managedLedgerDefaultWriteQuorum")
    """Bookies that get each entry."""
    ack_quorum: int = broker_key.int("managedLedgerDefaultAckQuorum")
    """Bookies that must confirm an entry."""
    mark_delete_rate: float = broker_key.float("managedLedgerDefaultMarkDeleteRateLimit")
    """Times per second that a cursor's position is written."""
    entry_timestamp: bool = broker_key.rule(_entry_timestamp)
    """Stamp entries with the broker's clock."""
    entry_index: bool = broker_key.rule(_entry_index)
    """Stamp entries with the index of their last message in the topic."""
