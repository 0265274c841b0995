"""NegativeAcks: entries that are to be delivered again after a delay. Pure."""

from __future__ import annotations

from broker.websocket.consumer_lane import ConsumerLane
from foundation.model.position import PositionKey


class NegativeAcks:
    """Positions in the order in which their times come; the delay is the same for all of a session."""

    def __init__(self) -> None:
        self._due: dict[PositionKey, tuple[int, ConsumerLane]] = {}

    def __bool__(self) -> bool:
        """Returns True while one waits."""
        return bool(self._due)

    def __len__(self) -> int:
        """Entries that wait."""
        return len(self._due)

    def add(self, key: PositionKey, lane: ConsumerLane, at_ms: int) -> None:
        """Adds an entry."""
        self._due[key] = at_ms, lane

    def forget(self, key: PositionKey) -> None:
        """Drops an entry that was acknowledged, or has come again."""
        self._due.pop(key, None)

    def forget_lane(self, lane: ConsumerLane) -> None:
        """Drops the entries of a lane, because all of them come again."""
        self._due = {key: due for key, due in self._due.items() if due[1] is not lane}

    def take_due(self, now_ms: int) -> dict[ConsumerLane, list[PositionKey]]:
        """Removes and returns the entries whose time has come."""
        due: dict[ConsumerLane, list[PositionKey]] = {}
        for key, (at_ms, lane) in list(self._due.items()):
            if at_ms > now_ms:
                break
            del self._due[key]
            due.setdefault(lane, []).append(key)
        return due
