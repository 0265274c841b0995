"""Faults of the simulated cluster that meet, and their effects."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import cast

import pytest

from tests.sim.cluster.faults import ClusterFaults
from tests.sim.cluster.history import ClusterHistory
from tests.sim.cluster.process import ClusterProcess


@pytest.mark.parametrize("second", ["_kill", "_stop"])
async def test_process_that_ends_twice_at_a_time_has_one_successor(second: str) -> None:
    tasks: list[asyncio.Task[object]] = []
    restarted: list[int] = []
    may_end = asyncio.Event()

    def spawn(work: Coroutine[object, object, object], name: str) -> asyncio.Task[object]:
        tasks.append(asyncio.ensure_future(work))
        return tasks[-1]

    async def restart(place: int, after_s: float) -> None:
        restarted.append(place)

    process = SimpleNamespace(
        client=SimpleNamespace(name="broker1-7"),
        place=1,
        spawn=spawn,
        stop=may_end.wait,
        disturb=lambda seconds: None,
    )
    history = SimpleNamespace(
        rng=random.Random(0),
        places=[None, process, None],
        counts=SimpleNamespace(stopped=0, killed=0),
        note=lambda text: None,
        spawn=spawn,
        end=lambda ended: None,
        restart=restart,
    )
    faults = ClusterFaults(cast(ClusterHistory, history))
    faults._stop(cast(ClusterProcess, process))
    getattr(faults, second)(cast(ClusterProcess, process))
    await asyncio.sleep(0)
    may_end.set()
    while pending := [task for task in tasks if not task.done()]:
        await asyncio.wait(pending)
    assert restarted == [1]
