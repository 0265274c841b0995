"""NetSettings: the keys of broker.conf that connections obey."""

from __future__ import annotations

from broker.config.fields import broker_key
from foundation.settings.fields import RoomSettings


class NetSettings(RoomSettings):
    """Limits, time-outs and buffers of client connections."""

    message_bytes_max: int = broker_key.int("maxMessageSize")
    """Metadata and payload of one message; a frame may be 10 KiB longer."""
    keep_alive_s: float = broker_key.float("keepAliveIntervalSeconds")
    """Silence before a PING, and again before the connection is closed."""
    liveness_timeout_s: float = broker_key.float("connectionLivenessCheckTimeoutMillis", "s")
    """Time to answer the PING that is sent when another client wants this one's place; 0 or less = no PING."""
    pending_publishes_max: int = broker_key.int("maxPendingPublishRequestsPerConnection")
    """Publishes without receipt at which a connection is not read until half of them are done."""
    publish_buffer_bytes_max: int = broker_key.int("maxMessagePublishBufferSizeInMB", "bytes")
    """Payload without receipt of all connections together at which they are not read; 0 or less = no limit."""
    receive_buffer_min: int = broker_key.int("brokerAdaptiveRecvByteBufAllocatorMinimumSize")
    """Bytes of the smallest receive buffer."""
    receive_buffer_initial: int = broker_key.int("brokerAdaptiveRecvByteBufAllocatorInitialSize")
    """Bytes of a new connection's receive buffer."""
    receive_buffer_max: int = broker_key.int("brokerAdaptiveRecvByteBufAllocatorMaximumSize")
    """Bytes of the largest receive buffer."""
    copy_entries: bool = broker_key.bool("managedLedgerCacheCopyEntries")
    """Copy entries out of the receive buffer; otherwise a cached entry keeps the whole buffer alive."""
    expose_entry_metadata: bool = broker_key.bool("exposingBrokerEntryMetadataToClientEnabled")
    """Send the broker entry metadata to clients that announce support for it."""
    connections_max: int = broker_key.int("brokerMaxConnections")
    """Connections of the broker; 0 = no limit."""
    connections_max_per_host: int = broker_key.int("brokerMaxConnectionsPerIp")
    """Connections from one address; 0 = no limit."""
    lookups_max: int = broker_key.int("maxConcurrentLookupRequest")
    """Lookups, and queries of partitions and topics, that may be in progress in the broker."""
    consumer_metadata_max: int = broker_key.int("maxConsumerMetadataSize")
    """Characters of a consumer's metadata."""
    evaluates_patterns: bool = broker_key.bool("enableBrokerSideSubscriptionPatternEvaluation")
    """Choose the topics of a pattern for clients; otherwise they get all names and choose themselves."""
    pattern_length_max: int = broker_key.int("subscriptionPatternMaxLength")
    """Characters of a pattern that the broker evaluates."""
    write_buffer_high_bytes: int = broker_key.int("pulsarChannelWriteBufferHighWaterMark")
    """Unsent bytes at which a client counts as slow: no dispatch to it, and it is not read."""
    write_buffer_low_bytes: int = broker_key.int("pulsarChannelWriteBufferLowWaterMark")
    """Unsent bytes at which a slow client is served again."""
    scalable_topics: bool = broker_key.bool("scalableTopicsEnabled")
    """Answer clients of Pulsar 5.0 on ordinary topics."""
