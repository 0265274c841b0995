"""NetSettings: the values of broker.conf for the data port; each field names its key."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NetSettings:
    """Settings of client connections."""

    message_bytes_max: int = 5 * 1024 * 1024
    """`maxMessageSize`"""
    keep_alive_s: float = 30
    """`keepAliveIntervalSeconds`; 0 = off"""
    liveness_timeout_s: float = 5
    """`connectionLivenessCheckTimeoutMillis`: time to answer the PING that is sent when another client needs
    its place; 0 or less = no PING is sent"""
    pending_publishes_max: int = 1000
    """`maxPendingPublishRequestsPerConnection`: from this number on the connection is not read until half are
    confirmed."""
    publish_buffer_bytes_max: int = 512 * 1024 * 1024
    """`maxMessagePublishBufferSizeInMB`: the same for all connections together; 0 or less = no limit."""
    receive_buffer_min: int = 1024
    """`brokerAdaptiveRecvByteBufAllocatorMinimumSize`"""
    receive_buffer_initial: int = 16384
    """`brokerAdaptiveRecvByteBufAllocatorInitialSize`"""
    receive_buffer_max: int = 1048576
    """`brokerAdaptiveRecvByteBufAllocatorMaximumSize`"""
    copy_entries: bool = False
    """`managedLedgerCacheCopyEntries`: entries are copied out of the receive buffer instead of pinning it."""
    expose_entry_metadata: bool = False
    """`exposingBrokerEntryMetadataToClientEnabled`"""
    connections_max: int = 0
    """`brokerMaxConnections`; 0 = no limit"""
    write_buffer_high_bytes: int = 64 * 1024
    """`pulsarChannelWriteBufferHighWaterMark`: unsent bytes from which a client counts as slow; it gets no more
    entries and is not read."""
    write_buffer_low_bytes: int = 32 * 1024
    """`pulsarChannelWriteBufferLowWaterMark`: unsent bytes from which a slow client is served again."""
