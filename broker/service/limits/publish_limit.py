"""PublishLimit: pauses connections whose producers publish faster than a rate.

There is no error: the connection is not read until tokens return, so TCP slows the client down. A connection is paused as
a whole, as in Pulsar, and its other producers and consumers wait with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker.service.limits.token_bucket import SHORTEST_WAIT_NS, TokenBucket
from broker.service.policies.values import PublishRate
from foundation.loop.clock import CallLater
from foundation.units import NS_PER_SECOND


class Pausable(Protocol):
    """A producer's side of its connection."""

    def pause(self) -> None:
        """Stops reading the connection; each call needs one `go_on`."""
        ...

    def go_on(self) -> None:
        """Ends one `pause`."""
        ...


class PublishLimit:
    """Counts the messages of one topic, or of all topics of the broker, against a rate."""

    __slots__ = (
        "_call_later",
        "_messages",
        "_now_ns",
        "_paused",
        "_size",
        "_timer_runs",
        "bytes_counted",
        "messages_counted",
        "rate",
        "throttled",
    )

    def __init__(self, now_ns: Callable[[], int], call_later: CallLater) -> None:
        """Limits nothing before `change`."""
        self.rate = PublishRate()
        """The rate in force."""
        self.messages_counted = 0
        """Messages counted since the start."""
        self.bytes_counted = 0
        """Their bytes."""
        self.throttled = 0
        """Times that a SEND found no token left for the next one."""
        self._now_ns = now_ns
        self._call_later = call_later
        self._messages: TokenBucket | None = None
        self._size: TokenBucket | None = None
        # A dict as an ordered set: the connection that waited longest goes on first.
        self._paused: dict[Pausable, None] = {}
        self._timer_runs = False

    @property
    def active(self) -> bool:
        """True when there is a limit."""
        return self._messages is not None or self._size is not None

    def change(self, rate: PublishRate) -> None:
        """Sets another rate and lets paused connections go on; the same rate changes nothing."""
        if rate == self.rate:
            return
        self.rate = rate
        now_ns = self._now_ns()
        self._messages = _bucket(rate.messages, now_ns)
        self._size = _bucket(rate.size, now_ns)
        self._release()

    def take_share(self, rate: PublishRate) -> None:
        """Goes on with another part of a rate that several brokers divide: tokens that were used stay used."""
        now_ns = self._now_ns()
        for bucket, before, now in (
            (self._messages, self.rate.messages, rate.messages),
            (self._size, self.rate.size, rate.size),
        ):
            if bucket is not None and now != before:
                bucket.change(now, now_ns)
        self.rate = rate

    def count(self, port: Pausable, messages: int, size: int) -> bool:
        """Counts one SEND, which is accepted in any case. Returns True when no token is left for another one."""
        now_ns = self._now_ns()
        self.messages_counted += messages
        self.bytes_counted += size
        if self._messages is not None:
            self._messages.take(messages, now_ns)
        if self._size is not None:
            self._size.take(size, now_ns)
        wait_ns = self._wait_ns(now_ns)
        if not wait_ns:
            return False
        self.throttled += 1
        if port not in self._paused:
            self._paused[port] = None
            port.pause()
        self._start_timer(wait_ns)
        return True

    def _wait_ns(self, now_ns: int) -> int:
        messages = 0 if self._messages is None else self._messages.wait_ns(now_ns)
        size = 0 if self._size is None else self._size.wait_ns(now_ns)
        return max(messages, size)

    def _start_timer(self, wait_ns: int) -> None:
        if not self._timer_runs:
            self._timer_runs = True
            self._call_later(max(wait_ns, SHORTEST_WAIT_NS) / NS_PER_SECOND, self._look)

    def _look(self) -> None:
        self._timer_runs = False
        wait_ns = self._wait_ns(self._now_ns())
        if not wait_ns:
            self._release()
        elif self._paused:
            self._start_timer(wait_ns)

    def _release(self) -> None:
        # Emptied first: a connection that goes on may be paused again at once.
        paused, self._paused = self._paused, {}
        for port in paused:
            port.go_on()


def _bucket(rate: int, now_ns: int) -> TokenBucket | None:
    return TokenBucket(rate, NS_PER_SECOND, now_ns) if rate > 0 else None
