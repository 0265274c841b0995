"""SharedWork: one caller begins the work, all wait for it."""

from __future__ import annotations

import asyncio

import pytest

from foundation.loop.shared_work import SharedWork


class Work:
    """Work that goes on until the test opens the gate; fails with `error`."""

    def __init__(self, error: Exception | None = None) -> None:
        self.begun = self.ended = 0
        self.gate = asyncio.Event()
        self._error = error

    async def __call__(self) -> None:
        self.begun += 1
        await self.gate.wait()
        self.ended += 1
        if self._error is not None:
            raise self._error


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_work_is_done_once_for_all_who_ask_meanwhile() -> None:
    shared, work = SharedWork(), Work()
    callers = [asyncio.create_task(shared.done("a", work)) for _ in range(100)]
    other = Work()
    beside = asyncio.create_task(shared.done("b", other))
    await turns()
    assert (work.begun, other.begun) == (1, 1)
    work.gate.set()
    await asyncio.gather(*callers)
    assert not beside.done()
    await shared.done("a", work)
    assert work.begun == 2, "anew after its end"
    other.gate.set()
    await beside


async def test_error_is_told_to_all_who_wait() -> None:
    shared, work = SharedWork(), Work(OSError("away"))
    callers = [asyncio.create_task(shared.done("a", work)) for _ in range(3)]
    await turns()
    work.gate.set()
    for caller in callers:
        with pytest.raises(OSError, match="away"):
            await caller
    assert work.begun == 1


async def test_caller_that_is_cancelled_does_not_end_the_work() -> None:
    shared, work = SharedWork(), Work()
    first, second = (asyncio.create_task(shared.done("a", work)) for _ in range(2))
    await turns()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    work.gate.set()
    await second
    assert (work.begun, work.ended) == (1, 1)


async def test_close_waits_for_work_that_nobody_waits_for() -> None:
    shared, work = SharedWork(), Work(OSError("away"))
    caller = asyncio.create_task(shared.done("a", work))
    await turns()
    caller.cancel()
    closing = asyncio.create_task(shared.close())
    await turns()
    assert not closing.done()
    work.gate.set()
    await closing
    assert work.ended == 1
    await shared.close()
