"""SubscribeLimit: refuses consumers that subscribe again and again. Pure.

Each subscribe may rewind a cursor and read old entries from disk, so a client that loops over it would load the bookies.
"""

from __future__ import annotations

from typing import Final

from broker.service.policies.values import SubscribeRate
from foundation.model.errors import NotAllowed
from foundation.units import NS_PER_SECOND

CONSUMERS_KEPT: Final = 10_000
"""Consumers of one topic whose requests are counted; above, those whose period is over are forgotten."""

ConsumerKey = tuple[str, str, int]
"""(host, consumer name, consumer id), by which Pulsar counts too."""


class SubscribeLimit:
    """Counts subscribe requests of each consumer of a topic in periods that begin with its first one."""

    __slots__ = ("_periods", "rate")

    def __init__(self) -> None:
        """Limits nothing before `change`."""
        self.rate = SubscribeRate()
        """The rate in force."""
        # By consumer: begin of its period, and requests in it.
        self._periods: dict[ConsumerKey, tuple[int, int]] = {}

    def change(self, rate: SubscribeRate) -> None:
        """Sets another rate and forgets the counts; the same rate changes nothing."""
        if rate != self.rate:
            self.rate = rate
            self._periods.clear()

    def check(self, consumer: ConsumerKey, now_ns: int) -> None:
        """Counts one request. Raises NotAllowed above the rate."""
        limit = self.rate.per_consumer
        if limit <= 0:
            return
        period_ns = max(1, self.rate.period_s) * NS_PER_SECOND
        began_ns, count = self._periods.get(consumer, (now_ns, 0))
        if now_ns - began_ns >= period_ns:
            began_ns, count = now_ns, 0
        if count >= limit:
            raise NotAllowed("Subscribe limited by subscribe rate limit per consumer.")
        if len(self._periods) >= CONSUMERS_KEPT:
            self._periods = {
                key: period for key, period in self._periods.items() if now_ns - period[0] < period_ns
            }
        self._periods[consumer] = (began_ns, count + 1)
