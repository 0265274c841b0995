"""WebSocketSettings: the keys that sessions obey."""

from __future__ import annotations

from broker.config.fields import broker_key
from foundation.settings.fields import RoomSettings


class WebSocketSettings(RoomSettings):
    """Limits and times of WebSocket sessions."""

    text_bytes_max: int = broker_key.int("webSocketMaxTextFrameSize")
    """Bytes of one text that a client sends."""
    idle_s: float = broker_key.float("webSocketSessionIdleTimeoutMillis", "s")
    """Silence in both directions after which a session is closed."""
    ping_s: float = broker_key.float("webSocketPingDurationSeconds")
    """Time between two pings; 0 or less = none, and `idle_s` holds."""
    message_bytes_max: int = broker_key.int("maxMessageSize")
    """Metadata and payload of one message."""
    pending_publishes_max: int = broker_key.int("maxPendingPublishRequestsPerConnection")
    """Messages of one session without an answer at which it is not read."""
