"""DispatchLimit: the rate at which messages of a broker, a topic or a subscription are delivered. Pure.

A dispatcher asks all limits over it (`DispatchLimits`) how much it may deliver now, delivers at most about that, and
counts what it has delivered. The last entry of a run may exceed the rest; the debt delays the next run.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.service.limits.token_bucket import SHORTEST_WAIT_NS, UNLIMITED, TokenBucket
from broker.service.policies.values import DispatchRate
from foundation.units import NS_PER_SECOND

Published = Callable[[], tuple[int, int]]
"""Returns the messages and bytes published to a topic so far."""


class DispatchLimit:
    """One rate with its tokens, shared by all dispatchers that it holds for."""

    __slots__ = (
        "_messages",
        "_published",
        "_sampled",
        "_sampled_ns",
        "_size",
        "bytes_counted",
        "messages_counted",
        "rate",
        "throttled_by_bytes",
        "throttled_by_messages",
    )

    def __init__(self, published: Published | None = None) -> None:
        """Limits nothing before `change`. `published` serves a rate relative to publishing; None ignores that."""
        self.rate = DispatchRate()
        """The rate in force."""
        self.messages_counted = 0
        """Messages counted since the start."""
        self.bytes_counted = 0
        """Their bytes."""
        self.throttled_by_messages = 0
        """Times that a dispatcher found no token for a message."""
        self.throttled_by_bytes = 0
        """Times that a dispatcher found no token for a byte."""
        self._published = published
        self._sampled = (0, 0)
        self._sampled_ns = 0
        self._messages: TokenBucket | None = None
        self._size: TokenBucket | None = None

    @property
    def active(self) -> bool:
        """True when there is a limit."""
        return self._messages is not None or self._size is not None

    def change(self, rate: DispatchRate, now_ns: int) -> None:
        """Sets another rate, with full buckets; the same rate changes nothing."""
        if rate == self.rate:
            return
        self.rate = rate
        # Pulsar takes a period of 0 for one second.
        period_ns = max(1, rate.period_s) * NS_PER_SECOND
        self._messages = TokenBucket(rate.messages, period_ns, now_ns) if rate.messages > 0 else None
        self._size = TokenBucket(rate.size, period_ns, now_ns) if rate.size > 0 else None
        self._sampled_ns = now_ns
        if self._published is not None:
            self._sampled = self._published()

    def take_share(self, rate: DispatchRate, now_ns: int) -> None:
        """Goes on with another part of a rate that several brokers divide: tokens that were used stay used."""
        for bucket, before, now in (
            (self._messages, self.rate.messages, rate.messages),
            (self._size, self.rate.size, rate.size),
        ):
            if bucket is not None and now != before:
                bucket.change(now, now_ns)
        self.rate = rate

    def available(self, now_ns: int) -> tuple[int, int]:
        """Returns messages and bytes that may be delivered now; 0 or less = wait."""
        if self.rate.relative:
            self._follow_publishing(now_ns)
        messages = UNLIMITED if self._messages is None else self._messages.available(now_ns)
        size = UNLIMITED if self._size is None else self._size.available(now_ns)
        self.throttled_by_messages += messages <= 0
        self.throttled_by_bytes += size <= 0
        return messages, size

    def take(self, messages: int, size: int, now_ns: int) -> None:
        """Counts what was delivered."""
        self.messages_counted += messages
        self.bytes_counted += size
        if self._messages is not None:
            self._messages.take(messages, now_ns)
        if self._size is not None:
            self._size.take(size, now_ns)

    def wait_ns(self, now_ns: int) -> int:
        """Returns the nanoseconds until both have a token."""
        return max(bucket.wait_ns(now_ns) if bucket else 0 for bucket in (self._messages, self._size))

    def _follow_publishing(self, now_ns: int) -> None:
        """Adds the publish rate of the last second to the limit."""
        elapsed = now_ns - self._sampled_ns
        # Over a shorter time one burst would look like a high rate.
        if self._published is None or elapsed < NS_PER_SECOND:
            return
        before, self._sampled = self._sampled, self._published()
        self._sampled_ns = now_ns
        rate = self.rate
        period_ns = max(1, rate.period_s) * NS_PER_SECOND
        for bucket, limit, count in zip(
            (self._messages, self._size),
            (rate.messages, rate.size),
            (now - then for now, then in zip(self._sampled, before, strict=True)),
            strict=True,
        ):
            if bucket is not None:
                bucket.change(limit + count * period_ns // elapsed, now_ns)


class DispatchLimits:
    """All rates that hold for one subscription: the broker's, the topic's and its own."""

    __slots__ = ("_limits",)

    def __init__(self, limits: tuple[DispatchLimit, ...]) -> None:
        """`limits` holds at least one."""
        self._limits = limits

    def available(self, now_ns: int) -> tuple[int, int]:
        """Returns messages and bytes that all of them allow now; 0 or less = wait."""
        messages = size = UNLIMITED
        for limit in self._limits:
            allowed_messages, allowed_size = limit.available(now_ns)
            messages, size = min(messages, allowed_messages), min(size, allowed_size)
        return messages, size

    def take(self, messages: int, size: int, now_ns: int) -> None:
        """Counts what was delivered against all of them."""
        for limit in self._limits:
            limit.take(messages, size, now_ns)

    def wait_ns(self, now_ns: int) -> int:
        """Returns the nanoseconds after which another look is worth it."""
        return max(SHORTEST_WAIT_NS, *(limit.wait_ns(now_ns) for limit in self._limits))
