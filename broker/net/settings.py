"""What the edge needs of broker.conf; each field names its key."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NetSettings:
    message_bytes_max: int = 5 * 1024 * 1024
    """`maxMessageSize`"""
    keep_alive_s: float = 30
    """`keepAliveIntervalSeconds`; 0 = off"""
    liveness_timeout_s: float = 5
    """`connectionLivenessCheckTimeoutMillis`: how long a client may take to answer the PING that is sent when another
    one wants its place; 0 or less = it is not asked"""
    pending_publishes_max: int = 1000
    """`maxPendingPublishRequestsPerConnection`: beyond it the connection is not read until half of them are done."""
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
    """`pulsarChannelWriteBufferHighWaterMark`: unsent bytes at which a client counts as slow: nothing more is
    dispatched to it, and it is not read."""
    write_buffer_low_bytes: int = 32 * 1024
    """`pulsarChannelWriteBufferLowWaterMark`: unsent bytes at which it goes on."""
