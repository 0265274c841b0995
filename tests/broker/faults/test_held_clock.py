"""A held clock runs what is due in the order of its time, and repeated looks a bounded number of times."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from broker.faults.held_clock import LOOKS_MAX, HeldClock

S = 10**9


async def nothing() -> None:
    """Nothing to wait for."""


def noting(held: HeldClock, notes: list[tuple[str, int]], name: str) -> Callable[[], None]:
    begun_ms = held.wall_ms()
    return lambda: notes.append((name, round((held.wall_ms() - begun_ms) / 1000)))


async def test_timers_run_at_their_own_time_in_order() -> None:
    held, notes = HeldClock(), list[tuple[str, int]]()
    for name, seconds in (("hour", 3600), ("minute", 60), ("day", 86_400)):
        held.call_later(seconds, noting(held, notes, name))
    await held.advance(7200 * S, nothing)
    assert notes == [("minute", 60), ("hour", 3600)]
    await held.advance(86_400 * S, nothing)
    assert notes[2:] == [("day", 86_400)]


async def test_timer_that_sets_another_one_runs_both_in_one_advance() -> None:
    held, notes = HeldClock(), list[tuple[str, int]]()
    second = noting(held, notes, "second")

    def first() -> None:
        held.call_later(10, second)

    held.call_later(10, first)
    await held.advance(30 * S, nothing)
    assert notes == [("second", 20)]


async def test_looks_of_a_year_are_made_a_bounded_number_of_times() -> None:
    held, made = HeldClock(), list[int]()

    def look() -> None:
        made.append(held.wall_ms())
        held.look_later(0.1, look)

    held.look_later(0.1, look)
    began_ms = held.wall_ms()
    await held.advance(365 * 86_400 * S, nothing)
    assert LOOKS_MAX // 2 <= len(made) <= LOOKS_MAX + 1
    # The last one sees the end of the year.
    assert made[-1] - began_ms >= 364 * 86_400_000


async def test_look_that_is_due_before_a_timer_comes_before_it_in_a_long_advance() -> None:
    held, notes = HeldClock(), list[tuple[str, int]]()
    expires = noting(held, notes, "look")

    def look() -> None:
        expires()
        held.look_later(300, look)

    held.look_later(300, look)
    held.call_later(2400, noting(held, notes, "timer"))
    await held.advance(365 * 86_400 * S, nothing)
    assert [name for name, _ in notes[:3]] == ["look", "timer", "look"]
    assert notes[1] == ("timer", 2400)


async def test_advance_waits_for_the_work_of_a_timer_before_it_goes_on() -> None:
    held, order = HeldClock(), list[str]()
    work: list[Awaitable[None]] = []

    async def slow() -> None:
        await asyncio.sleep(0.01)
        order.append("work of the first")

    async def settle() -> None:
        while work:
            await work.pop()

    held.call_later(10, lambda: work.append(slow()))
    held.call_later(20, lambda: order.append("second"))
    await held.advance(30 * S, settle)
    assert order == ["work of the first", "second"]


async def test_timers_run_by_themselves_without_an_advance() -> None:
    held, ran = HeldClock(), asyncio.Event()
    held.call_later(0.01, ran.set)
    await asyncio.wait_for(ran.wait(), 60)
    cancelled = held.call_later(0.01, lambda: pytest.fail("it was cancelled"))
    cancelled.cancel()
    ran.clear()
    held.call_later(0.05, ran.set)
    await asyncio.wait_for(ran.wait(), 60)


async def test_timer_left_over_by_an_advance_runs_after_the_rest_of_its_time() -> None:
    held, ran = HeldClock(), asyncio.Event()
    held.call_later(100, ran.set)
    # The advance itself takes time, on a busy machine more than a few milliseconds.
    await held.advance(99 * S, nothing)
    assert not ran.is_set()
    await asyncio.wait_for(ran.wait(), 60)
