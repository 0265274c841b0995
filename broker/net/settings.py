"""NetSettings: the keys of broker.conf that connections obey."""

from __future__ import annotations

from broker.config.fields import broker_key
from foundation.settings.fields import RoomSettings


class NetSettings(RoomSettings):
    """Limits, time-outs and buffers of client connections."""

    message_bytes_max: int = broker_key.int("maxMessageSize")
    keep_alive_s: float = broker_key.float("keepAliveIntervalSeconds")
    liveness_timeout_s: float = broker_key.float("connectionLivenessCheckTimeoutMillis", "s")
    pending_publishes_max: int = broker_key.int("maxPendingPublishRequestsPerConnection")
    publish_buffer_bytes_max: int = broker_key.int("maxMessagePublishBufferSizeInMB", "bytes")
    receive_buffer_min: int = broker_key.int("brokerAdaptiveRecvByteBufAllocatorMinimumSize")
    receive_buffer_initial: int = broker_key.int("brokerAdaptiveRecvByteBufAllocatorInitialSize")
    receive_buffer_max: int = broker_key.int("brokerAdaptiveRecvByteBufAllocatorMaximumSize")
    copy_entries: bool = broker_key.bool("managedLedgerCacheCopyEntries")
    expose_entry_metadata: bool = broker_key.bool("exposingBrokerEntryMetadataToClientEnabled")
    connections_max: int = broker_key.int("brokerMaxConnections")
    connections_max_per_host: int = broker_key.int("brokerMaxConnectionsPerIp")
    lookups_max: int = broker_key.int("maxConcurrentLookupRequest")
    consumer_metadata_max: int = broker_key.int("maxConsumerMetadataSize")
    evaluates_patterns: bool = broker_key.bool("enableBrokerSideSubscriptionPatternEvaluation")
    topic_watchers: bool = broker_key.bool("enableBrokerTopicListWatcher")
    pattern_length_max: int = broker_key.int("subscriptionPatternMaxLength")
    write_buffer_high_bytes: int = broker_key.int("pulsarChannelWriteBufferHighWaterMark")
    write_buffer_low_bytes: int = broker_key.int("pulsarChannelWriteBufferLowWaterMark")
    coordinators_watched: bool = broker_key.bool("transactionCoordinatorScalableTopicsEnabled")
    """Asked for only where there are coordinators."""
    scalable_topics: bool = broker_key.bool("scalableTopicsEnabled")
    share_grace_s: float = broker_key.float("scalableTopicConsumerSessionGracePeriodSeconds")
