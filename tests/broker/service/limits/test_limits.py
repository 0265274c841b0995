"""Buckets and limits as pure objects: counts over time, without a loop and without a clock."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.service.limits import subscribe_limit
from broker.service.limits.dispatch_limit import DispatchLimit, DispatchLimits
from broker.service.limits.publish_limit import PublishLimit
from broker.service.limits.subscribe_limit import SubscribeLimit
from broker.service.limits.token_bucket import TokenBucket
from broker.service.limits.unacked_limit import UnackedLimit
from broker.service.policies.values import DispatchRate, PublishRate, SubscribeRate
from foundation.model.errors import NotAllowed
from foundation.units import NS_PER_SECOND
from tests.fakes.ports import FakeProducerPort

S = NS_PER_SECOND


@given(
    rate=st.integers(1, 10**6),
    period_s=st.integers(1, 60),
    steps=st.lists(st.tuples(st.integers(0, 3 * S), st.integers(1, 1000)), max_size=60),
)
def test_token_bucket_lets_through_the_rate_and_one_period_at_once(
    rate: int, period_s: int, steps: list[tuple[int, int]]
) -> None:
    bucket, now_ns, taken, largest = TokenBucket(rate, period_s * S, 0), 0, 0, 0
    for elapsed, count in steps:
        now_ns += elapsed
        if bucket.available(now_ns) > 0:
            assert bucket.wait_ns(now_ns) == 0
            bucket.take(count, now_ns)
            taken, largest = taken + count, max(largest, count)
        else:
            # The time named is the first at which a token is there.
            wait_ns = bucket.wait_ns(now_ns)
            assert wait_ns > 0
            now_ns += wait_ns - 1
            assert bucket.available(now_ns) <= 0
            now_ns += 1
            assert bucket.available(now_ns) == 1
        assert taken <= rate + rate * now_ns // (period_s * S) + largest


def test_token_bucket_ignores_a_clock_that_jumps_back() -> None:
    bucket = TokenBucket(10, S, 5 * S)
    bucket.take(10, 5 * S)
    assert bucket.available(0) == 0
    assert bucket.available(5 * S) == 0
    assert bucket.available(6 * S) == 10


class Clock:
    def __init__(self) -> None:
        self.now_ns = 0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def publish_limit(self, rate: PublishRate) -> PublishLimit:
        limit = PublishLimit(lambda: self.now_ns, lambda seconds, call: self.timers.append((seconds, call)))
        limit.change(rate)
        return limit

    def fire(self) -> None:
        [(seconds, call)], self.timers = self.timers, []
        self.now_ns += round(seconds * S)
        call()


def test_publish_limit_pauses_each_connection_once_and_lets_all_go_on_by_one_timer() -> None:
    clock = Clock()
    limit = clock.publish_limit(PublishRate(10, -1))
    first, second = FakeProducerPort(), FakeProducerPort()
    assert [limit.count(first, 1, 100) for _ in range(10)] == [False] * 9 + [True]
    assert limit.count(second, 1, 100)
    assert limit.count(second, 1, 100)
    assert (first.events, second.events) == (["pause"], ["pause"])
    # Two messages of debt: the first timer finds them not paid yet.
    while clock.timers:
        clock.fire()
    assert (first.events, second.events) == (["pause", "go on"], ["pause", "go on"])
    assert clock.now_ns == pytest.approx(3 * S / 10, rel=0.1)
    assert limit.count(first, 1, 100)


def test_publish_limit_counts_bytes_and_lets_go_on_when_it_is_lifted() -> None:
    clock = Clock()
    limit = clock.publish_limit(PublishRate(-1, 1000))
    port = FakeProducerPort()
    assert not limit.count(port, 1, 999)
    assert limit.count(port, 1, 5000)
    limit.change(PublishRate())
    assert port.events == ["pause", "go on"]
    assert not limit.active
    # The timer of the former rate has nothing to do any more.
    clock.fire()
    assert (port.events, clock.timers) == (["pause", "go on"], [])


def test_dispatch_limits_give_the_smallest_rest_and_the_longest_wait() -> None:
    topic, own = DispatchLimit(), DispatchLimit()
    topic.change(DispatchRate(100, 0, period_s=1), 0)
    own.change(DispatchRate(0, 1000, period_s=10), 0)
    limits = DispatchLimits((topic, own))
    assert limits.available(0) == (100, 1000)
    limits.take(30, 1500, 0)
    assert limits.available(0) == (70, -500)
    assert (topic.throttled_by_bytes, own.throttled_by_bytes, own.throttled_by_messages) == (0, 1, 0)
    assert limits.wait_ns(0) == 501 * 10 * S // 1000
    assert limits.available(limits.wait_ns(0)) == (100, 1)


def test_relative_dispatch_limit_adds_the_publish_rate() -> None:
    published = [0, 0]
    limit = DispatchLimit(lambda: (published[0], published[1]))
    limit.change(DispatchRate(10, 0, relative=True, period_s=1), 0)
    limit.take(10, 0, 0)
    published[0] = 500
    assert limit.available(S // 2)[0] == 5
    assert limit.available(S)[0] == 10
    assert limit.available(2 * S)[0] == 510 - 500
    published[0] = 1500
    # The second that ends brought 1,000 messages: from now on 1,010 tokens come back in a second.
    limit.available(3 * S)
    limit.take(1010, 0, 3 * S)
    before = limit.available(3 * S)[0]
    assert limit.available(7 * S // 2)[0] - before == 505


def test_subscribe_limit_counts_each_consumer_by_period(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscribe_limit, "CONSUMERS_KEPT", 2)
    limit = SubscribeLimit()
    limit.check(("h", "c", 1), 0)
    limit.change(SubscribeRate(2, 10))
    for _ in range(2):
        limit.check(("h", "c", 1), 0)
    with pytest.raises(NotAllowed):
        limit.check(("h", "c", 1), 10 * S - 1)
    limit.check(("h", "c", 2), 0)
    # Counts whose period is over make room for others.
    limit.check(("h", "c", 3), 10 * S)
    limit.check(("h", "c", 1), 10 * S)


def test_unacked_limit_blocks_until_fewer_than_half_are_left() -> None:
    limit, woken, states = UnackedLimit(100, 0.16), list[int](), list[bool]()
    assert limit.share == 16
    for change in (99, 1, -50, -1):
        limit.add(change)
        states.append(limit.blocked)
        if change == 1:
            limit.when_unblocked(lambda: woken.append(limit.unacked))
    assert states == [False, True, True, False]
    assert woken == [49]
