"""ServiceSettings: the values of broker.conf for topics and subscriptions; each field names its key."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """Settings of topics, subscriptions and dispatchers."""

    cluster: str = "standalone"
    """`clusterName`"""
    auto_topic_creation: bool = True
    """`allowAutoTopicCreation`"""
    auto_topic_partitions: int = 0
    """`defaultNumPartitions` when `allowAutoTopicCreationType=partitioned`; 0 = topics without partitions."""
    auto_subscription_creation: bool = True
    """`allowAutoSubscriptionCreation`"""
    partitions_max: int = 0
    """`maxNumPartitionsPerPartitionedTopic`; 0 = no limit"""
    deduplication: bool = False
    """`brokerDeduplicationEnabled`"""
    deduplication_snapshot_entries: int = 1000
    """`brokerDeduplicationEntriesInterval`"""
    deduplication_producers_max: int = 10_000
    """`brokerDeduplicationMaxNumberOfProducers`"""
    batch_index_acks: bool = True
    """`acknowledgmentAtBatchIndexLevelEnabled`"""
    redelivery_tracker: bool = True
    """`subscriptionRedeliveryTrackerEnabled`"""
    read_entries_max: int = 100
    """`dispatcherMaxReadBatchSize`"""
    read_bytes_max: int = 5 * 1024 * 1024
    """`dispatcherMaxReadSizeBytes`"""
    round_robin_entries_max: int = 20
    """`dispatcherMaxRoundRobinBatchSize`"""
    unacked_max_per_consumer: int = 50_000
    """`maxUnackedMessagesPerConsumer`; 0 = no limit"""
    unacked_max_per_subscription: int = 200_000
    """`maxUnackedMessagesPerSubscription`; 0 = no limit"""
    producers_max: int = 0
    """`maxProducersPerTopic`; 0 = no limit"""
    consumers_max_per_topic: int = 0
    """`maxConsumersPerTopic`; 0 = no limit"""
    consumers_max_per_subscription: int = 0
    """`maxConsumersPerSubscription`; 0 = no limit"""
    subscriptions_max: int = 0
    """`maxSubscriptionsPerTopic`; 0 = no limit"""
    failover_delay_ms: int = 1000
    """`activeConsumerFailoverDelayTimeMillis`"""
    failover_consistent_hashing: bool = False
    """`activeConsumerFailoverConsistentHashing`"""
    key_shared_consistent_hashing: bool = True
    """`subscriptionKeySharedUseConsistentHashing`"""
    key_shared_points: int = 100
    """`subscriptionKeySharedConsistentHashingReplicaPoints`"""
    look_ahead_per_consumer: int = 2000
    """`keySharedLookAheadMsgInReplayThresholdPerConsumer`"""
    look_ahead_per_subscription: int = 20_000
    """`keySharedLookAheadMsgInReplayThresholdPerSubscription`"""
    entry_timestamp: bool = True
    """`brokerEntryMetadataInterceptors` names the timestamp interceptor"""
    entry_index: bool = True
    """`brokerEntryMetadataInterceptors` names the index interceptor"""
