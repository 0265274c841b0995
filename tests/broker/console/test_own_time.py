"""own_time counts the steps of a coroutine, passes its result on, and lets it see its errors and its cancellation."""

from __future__ import annotations

import asyncio
import time

import pytest

from broker.console.own_time import own_time

BUSY_S = 0.05


def busy() -> None:
    until = time.perf_counter() + BUSY_S
    while time.perf_counter() < until:
        pass


async def test_steps_count_and_the_turns_between_them_do_not() -> None:
    turns_of_others = 4
    finished = asyncio.Event()

    async def others() -> None:
        for _ in range(turns_of_others):
            busy()
            await asyncio.sleep(0)
        finished.set()

    async def work() -> str:
        busy()
        await finished.wait()
        return "done"

    running = asyncio.create_task(others())
    began = time.perf_counter()
    found, cost_ms = await own_time(work())
    took_ms = (time.perf_counter() - began) * 1000
    await running
    assert found == "done"
    assert BUSY_S * 1000 <= cost_ms <= took_ms - turns_of_others * BUSY_S * 1000


async def test_error_of_the_work_comes_out() -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("of the work")

    with pytest.raises(ValueError, match="of the work"):
        await own_time(fails())


async def test_work_sees_its_cancellation() -> None:
    seen = asyncio.Event()

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.set()
            raise

    async def outer() -> None:
        await own_time(waits())

    task = asyncio.create_task(outer())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen.is_set()
