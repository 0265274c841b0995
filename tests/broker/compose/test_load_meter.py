"""LoadMeter: many topics are counted in slices that make few objects, so the garbage collector does not run in them."""

from __future__ import annotations

import asyncio
import gc
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

from broker.compose.load_meter import LoadMeter
from broker.metrics.network import NetworkSettings
from tests.fakes.dormant import NONE_DORMANT

TOPICS = 20_000


async def test_count_of_many_topics_makes_few_objects_in_a_turn_of_the_loop() -> None:
    closed = SimpleNamespace(closed=True, name=SimpleNamespace(namespace="public/default"))
    topics = dict.fromkeys((f"persistent://public/default/{number}" for number in range(TOPICS)), closed)
    namespaces = SimpleNamespace(exists=lambda name: False)
    cache = SimpleNamespace(used_bytes=0, settings=SimpleNamespace(size_bytes_max=1))
    meter = LoadMeter(
        cast(Any, SimpleNamespace(topics=topics, dormant=NONE_DORMANT, namespaces=namespaces)),
        cast(Any, None),
        cast(Any, cache),
        NetworkSettings(),
        lambda: 1000,
    )
    # The collector is off, so its count of new objects only grows; a pass would begin after some thousand.
    made = list[int]()

    async def watch() -> None:
        while True:
            made.append(gc.get_count()[0])
            await asyncio.sleep(0)

    gc.collect()
    gc.disable()
    try:
        watching = asyncio.create_task(watch())
        await meter.measure()
    finally:
        gc.enable()
        watching.cancel()
    assert len(made) > TOPICS / 1000, "it is counted in slices"
    assert max(after - before for before, after in pairwise(made)) < TOPICS / 20
