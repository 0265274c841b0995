"""The budget never goes wrong, and who waits is served in order."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, strategies

from broker.errors import TooManyRequests
from broker.managed_ledger.inflight_reads_limiter import InflightReadsLimiter, Permits


def ignore(permits: Permits | None) -> None:
    raise AssertionError("not to be called")


def test_without_a_budget_everybody_is_served() -> None:
    limiter = InflightReadsLimiter(0, 10, 10)
    permits = limiter.acquire(1 << 50, 0, ignore)
    assert permits is not None
    limiter.release(permits, 1)
    assert not limiter.enabled
    assert limiter.acquire_read_ahead(5) is not None


def test_a_full_line_refuses() -> None:
    limiter = InflightReadsLimiter(10, 1, 0)
    assert limiter.acquire(10, 0, ignore) is not None
    assert limiter.acquire(1, 0, ignore) is None
    with pytest.raises(TooManyRequests):
        limiter.acquire(1, 0, ignore)


def test_read_ahead_fills_a_part_of_the_budget_and_never_waits() -> None:
    limiter = InflightReadsLimiter(100, 10, 0)
    permits = limiter.acquire_read_ahead(70)
    assert permits is not None
    assert limiter.acquire_read_ahead(1) is None
    assert limiter.queued == 0
    limiter.release(permits, 0)
    assert limiter.remaining_bytes == 100


def test_permits_cannot_be_given_back_twice() -> None:
    limiter = InflightReadsLimiter(100, 10, 0)
    permits = limiter.acquire(40, 0, ignore)
    assert permits is not None
    limiter.release(permits, 0)
    limiter.release(permits, 0)
    assert limiter.remaining_bytes == 100


@given(
    strategies.lists(
        strategies.tuples(strategies.booleans(), strategies.integers(0, 150), strategies.integers(0, 40)),
        max_size=60,
    )
)
def test_the_budget_is_what_is_not_out_and_every_waiter_is_answered_once(
    operations: list[tuple[bool, int, int]],
) -> None:
    limiter = InflightReadsLimiter(100, 5, 50)
    held: list[Permits] = []
    waiting: set[int] = set()
    now = 0

    def answer_for(number: int, permits: Permits | None) -> None:
        waiting.remove(number)
        if permits is not None:
            held.append(permits)

    for number, (acquire, size, passed) in enumerate(operations):
        now += passed
        while limiter.timer_due_ns is not None and limiter.timer_due_ns <= now:
            limiter.timer_fired(limiter.timer_due_ns)
        if acquire:
            waiting.add(number)
            try:
                permits = limiter.acquire(size, now, partial(answer_for, number))
            except TooManyRequests:
                waiting.remove(number)
            else:
                if permits is not None:
                    answer_for(number, permits)
        elif held:
            limiter.release(held.pop(size % len(held)), now)
        assert limiter.remaining_bytes == 100 - sum(permits.size_bytes for permits in held) >= 0
        assert limiter.queued == len(waiting) <= 5
    while held:
        limiter.release(held.pop(), now)
    while limiter.timer_due_ns is not None:
        limiter.timer_fired(limiter.timer_due_ns)
    assert waiting == set()
