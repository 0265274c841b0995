"""WebSocketSettings: the keys that sessions obey."""

from __future__ import annotations

from broker.config.fields import broker_key
from foundation.settings.fields import RoomSettings


class WebSocketSettings(RoomSettings):
    """Limits and times of WebSocket sessions."""

    text_bytes_max: int = broker_key.int("webSocketMaxTextFrameSize")
    idle_s: float = broker_key.float("webSocketSessionIdleTimeoutMillis", "s")
    ping_s: float = broker_key.float("webSocketPingDurationSeconds")
    message_bytes_max: int = broker_key.int("maxMessageSize")
    pending_publishes_max: int = broker_key.int("maxPendingPublishRequestsPerConnection")
