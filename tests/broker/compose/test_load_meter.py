"""LoadMeter: many topics are counted in slices that make few objects, so the garbage collector does not run in them.

Dormant ones are counted anew only where others are dormant now.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.compose import load_meter
from broker.compose.load_meter import LoadMeter
from broker.metrics.network import NetworkSettings
from broker.service.namespaces.bundles import Bundles, bundles_of
from broker.service.namespaces.stored_forms import BUNDLES_KEY
from broker.service.topics.dormant_topic import NOT_KNOWN, DormantTopic
from broker.service.topics.dormant_topics import DormantTopics
from foundation.model.topic_name import parse_topic_name
from tests.fakes.dormant import NONE_DORMANT
from tests.fakes.stage import Stage

TOPICS = 20_000


def meter_over(registry: object) -> LoadMeter:
    cache = SimpleNamespace(used_bytes=0, settings=SimpleNamespace(size_bytes_max=1))
    return LoadMeter(cast(Any, registry), cast(Any, None), cast(Any, cache), NetworkSettings(), lambda: 1000)


async def test_count_of_many_topics_makes_few_objects_in_a_turn_of_the_loop() -> None:
    closed = SimpleNamespace(closed=True, name=SimpleNamespace(namespace="public/default"))
    topics = dict.fromkeys((f"persistent://public/default/{number}" for number in range(TOPICS)), closed)
    namespaces = SimpleNamespace(exists=lambda name: False)
    meter = meter_over(SimpleNamespace(topics=topics, dormant=NONE_DORMANT, namespaces=namespaces))
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


def fall_asleep(stage: Stage, *topics: str) -> None:
    for topic in topics:
        record = DormantTopic(None, (), 0, 0, 0, 0, 0, NOT_KNOWN, NOT_KNOWN, NOT_KNOWN, None)
        stage.registry.dormant.add(parse_topic_name(topic), record)


async def test_dormant_topics_are_walked_over_only_after_a_change_of_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(load_meter, "REST", 0)  # Each measurement counts.
    stage = Stage()
    await stage.open()  # Makes the namespace.
    registry = stage.registry
    registry.topics.clear()  # The stage's own.
    walks = list[str]()
    names_of = DormantTopics.names

    def names(self: DormantTopics, namespace: str) -> Iterator[str]:
        walks.append(namespace)
        return names_of(self, namespace)

    monkeypatch.setattr(DormantTopics, "names", names)
    meter = meter_over(registry)
    sleepers = [f"persistent://public/default/sleeper-{number}" for number in range(1000)]

    async def topics() -> dict[str, int]:
        walks.clear()
        return {
            bundle: load.topics for bundle, load in (await meter.measure()).bundles.items() if load.topics
        }

    def expected(*names: str) -> Counter[str]:
        bundles = bundles_of(registry.namespaces, "public/default")
        return Counter(f"public/default/{bundles.of(name)}" for name in names)

    fall_asleep(stage, *sleepers)
    assert await topics() == expected(*sleepers)
    assert walks == ["public/default"]
    assert await topics() == expected(*sleepers)
    assert not walks
    # One wakes, and another one falls asleep: as many as before.
    registry.dormant.drop(woken := sleepers.pop())
    others = (f"persistent://public/default/other-{number}" for number in range(100))
    fall_asleep(stage, sleeper := next(one for one in others if expected(one) != expected(woken)))
    assert await topics() == expected(*sleepers, sleeper)
    assert await topics() == expected(*sleepers, sleeper)
    assert not walks
    boundaries = bundles_of(registry.namespaces, "public/default").boundaries
    await registry.namespaces.set_policy(
        "public/default", BUNDLES_KEY, Bundles(tuple(sorted({*boundaries, 1 << 29}))).json()
    )
    found = await topics()
    assert found == expected(*sleepers, sleeper)
    assert len(found) == len(boundaries), "one bundle is two now"
