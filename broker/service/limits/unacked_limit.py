"""UnackedLimit: bounds the unacknowledged messages of all subscriptions of the broker together.

At `maxUnackedMessagesPerBroker` the broker is blocked until fewer than half are left. Meanwhile a subscription with more
than its share (`maxUnackedMessagesPerSubscriptionOnBrokerBlocked`) gets nothing until it has acknowledged half of the
share; smaller ones go on.
"""

from __future__ import annotations

from collections.abc import Callable


class UnackedLimit:
    """The broker's count of unacknowledged messages, and the dispatchers that wait for it."""

    def __init__(self, limit: int, share: float) -> None:
        """`limit` messages, above 0; `share` is the part of them that one subscription may hold when blocked."""
        self._limit = limit
        self.share = int(limit * share)
        """Unacknowledged messages of one subscription above which it waits while the broker is blocked."""
        self.unacked = 0
        """Unacknowledged messages of all Shared and Key_Shared subscriptions."""
        self.blocked = False
        """True from the limit until fewer than half are left."""
        self._waiting: list[Callable[[], None]] = []

    def add(self, messages: int) -> None:
        """Counts delivered messages, or acknowledged ones as a negative number; wakes all who wait below half."""
        self.unacked += messages
        if self.unacked >= self._limit:
            self.blocked = True
        elif self.blocked and self.unacked < self._limit // 2:
            self.blocked = False
            waiting, self._waiting = self._waiting, []
            for wake in waiting:
                wake()

    def when_unblocked(self, wake: Callable[[], None]) -> None:
        """Calls `wake` once, when the broker is no longer blocked."""
        if wake not in self._waiting:
            self._waiting.append(wake)
