"""Incoming: entries that were delivered to a session and whose messages have not all been sent. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.websocket.bodies import Message
from broker.websocket.consumer_lane import ConsumerLane
from foundation.model.entry import Entry
from foundation.model.position import PositionKey

BYTES_MAX: Final = 1 << 20
"""Bytes of waiting entries at which lanes deliver no more."""


class Queued(NamedTuple):
    """A delivered entry."""

    lane: ConsumerLane
    """The consumer that got it."""
    entry: Entry
    """Its bytes."""
    redeliveries: int
    """Earlier deliveries."""
    ack_set: Sequence[int]
    """Set bits are unacknowledged messages of the batch; () = all."""

    @property
    def key(self) -> PositionKey:
        """Position of the entry."""
        return self.entry.ledger_id, self.entry.entry_id


class Opened(NamedTuple):
    """The entry whose messages are being sent."""

    queued: Queued
    """The entry."""
    batch_size: int
    """Messages of the batch, 0 = no batch."""
    messages: deque[Message]
    """The messages that are still to be sent."""


class Incoming:
    """A queue of entries, and the opened one before them."""

    def __init__(self) -> None:
        self.opened: Opened | None = None
        """The entry whose messages are being sent; None when all were sent."""
        self._queue: deque[Queued] = deque()
        self._bytes = 0

    @property
    def full(self) -> bool:
        """True at BYTES_MAX."""
        return self._bytes >= BYTES_MAX

    def add(self, queued: Queued) -> None:
        """Adds an entry at the end."""
        self._queue.append(queued)
        self._bytes += queued.entry.size

    def take(self) -> Queued | None:
        """Removes the first entry; None when the queue is empty."""
        if not self._queue:
            return None
        queued = self._queue.popleft()
        self._bytes -= queued.entry.size
        return queued

    def close(self, key: PositionKey) -> None:
        """Forgets the opened entry if it has this position, because it will come again."""
        if self.opened is not None and self.opened.queued.key == key:
            self.opened = None

    def drop(self, lane: ConsumerLane) -> int:
        """Removes all entries of a lane. Returns the number of messages in those that were not opened."""
        dropped = [queued for queued in self._queue if queued.lane is lane]
        self._queue = deque(queued for queued in self._queue if queued.lane is not lane)
        self._bytes -= sum(queued.entry.size for queued in dropped)
        if self.opened is not None and self.opened.queued.lane is lane:
            self.opened = None
        return sum(max(1, queued.entry.messages) for queued in dropped)
