"""Timers and the passes of the cache: repetition, errors, and the end at `stop`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from broker.compose.cache_passes import CachePasses
from broker.compose.cache_settings import EntryCacheSettings
from broker.compose.timers import Timers
from entry_cache.compose import ComposedCache
from foundation.loop.turn import Turn


async def test_action_is_repeated_until_the_timers_stop() -> None:
    timers = Timers(asyncio.get_running_loop().call_later)
    calls = 0

    def act() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            timers.stop()

    timers.every(0.001, act)
    async with asyncio.timeout(60):
        while calls < 3:  # noqa: ASYNC110 - the action itself stops the timers
            await asyncio.sleep(0.001)
    await asyncio.sleep(0.01)
    assert calls == 3, "no call follows the stop"


async def test_action_does_not_begin_after_stop() -> None:
    timers = Timers(asyncio.get_running_loop().call_later)
    timers.after(0, pytest.fail)
    timers.stop()
    await asyncio.sleep(0.005)


class FailingCache(ComposedCache):
    """A cache with something in it, whose periodic pass fails."""

    passes = 0
    queue_length = 1

    def tick(self, now_ns: int, visits_max: int = 0) -> bool:
        self.passes += 1
        raise RuntimeError("a defect")


async def test_periodic_passes_go_on_when_one_fails() -> None:
    loop = asyncio.get_running_loop()
    errors: list[object] = []
    loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))
    timers = Timers(loop.call_later)
    cache = FailingCache(EntryCacheSettings())
    passes = CachePasses(cache, Turn(loop.call_soon, time.monotonic_ns), timers, 0.001, time.monotonic_ns)
    with pytest.raises(RuntimeError):
        passes.start()
    async with asyncio.timeout(60):
        while cache.passes < 2:  # noqa: ASYNC110 - nothing tells of a pass that failed
            await asyncio.sleep(0.001)
    timers.stop()
    assert len(errors) == cache.passes - 1


class ChangingCache(ComposedCache):
    """A cache with something in it, that changes as the test says."""

    queue_length = 1
    changes = 0

    def tick(self, now_ns: int, visits_max: int = 0) -> bool:
        return False


@pytest.mark.parametrize(
    ("interval_s", "ttl_ms", "waits_s"),
    [
        (0.01, 1000, [0.05, 0.01, 0.01, 0.02, 0.05]),
        (0.01, 200, [0.02, 0.01, 0.01, 0.02, 0.02]),
        (0.5, 1000, [0.5, 0.5, 0.5, 0.5, 0.5]),
    ],
)
def test_periodic_passes_are_rarer_while_the_cache_changes_little(
    interval_s: float, ttl_ms: int, waits_s: list[float]
) -> None:
    asked: list[tuple[float, Callable[[], object]]] = []
    timers = Timers(lambda seconds, action: asked.append((seconds, action)))
    cache = ChangingCache(EntryCacheSettings(ttl_ns=ttl_ms * 1_000_000))
    turn = Turn(lambda _: None, time.monotonic_ns)
    CachePasses(cache, turn, timers, interval_s, time.monotonic_ns).start()
    for new in (2000, 400, 100, 1):
        cache.changes += new
        asked[-1][1]()
    assert [seconds for seconds, _ in asked] == pytest.approx(waits_s)
