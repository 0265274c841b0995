"""LedgerUpkeep: its rounds over all topics leave the loop to others, and outlive the error of one topic."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.compose.background_tasks import BackgroundTasks
from broker.compose.ledger_upkeep import LedgerUpkeep
from broker.compose.timers import Timers
from broker.managed_ledger.trimming import Trimming
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.loop import slices
from foundation.model.topic_name import parse_topic_name
from tests.support.memory_broker import memory_broker


async def test_trimming_pauses_and_goes_on_behind_a_topic_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call for all topics held the loop, and one error ended the trimming of all topics until the restart."""
    monkeypatch.setattr(slices, "ITEMS_MAX", 1)
    events: list[str] = []
    names: dict[int, str] = {}
    async with memory_broker() as broker:
        for name in "abc":
            topic = await broker.registry.get(
                parse_topic_name(f"persistent://public/default/{name}"), create=True
            )
            assert isinstance(topic, PersistentTopic)
            names[id(topic.ledger.trimming)] = name

        def trim(trimming: Trimming, now_ms: int, *, without_cursors: bool) -> None:
            events.append(names[id(trimming)])
            asyncio.get_running_loop().call_soon(events.append, "turn")
            if names[id(trimming)] == "a":
                raise ZeroDivisionError("by the test")

        monkeypatch.setattr(Trimming, "trim", trim)
        due: list[Any] = []
        timers = Timers(lambda seconds, action: due.append((seconds, action)))
        tasks = BackgroundTasks()
        upkeep = LedgerUpkeep(broker.registry, broker.environment, tasks)
        upkeep.start(timers, trim_interval_s=77, snapshot_interval_s=0, compaction_interval_s=60)
        [begin] = [action for seconds, action in due if seconds == 77]
        begin()
        async with asyncio.timeout(60):
            while events.count("turn") < 3:  # noqa: ASYNC110 - a round has no event
                await asyncio.sleep(0)
        await tasks.close()
    assert events == ["a", "turn", "b", "turn", "c", "turn"]
