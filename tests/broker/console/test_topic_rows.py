"""The list of topics: dormant ones are gathered in slices, while topics fall asleep and wake."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, cast

from broker.console.topic_rows import TOPICS_PER_SLICE, TopicsQuery, topics_page
from broker.console.traffic import Traffic
from broker.managed_ledger.stats import ChangedLedgers
from broker.service.topics.dormant_topic import NOT_KNOWN, DormantTopic
from broker.service.topics.dormant_topics import DormantTopics
from broker.service.topics.topic import Topic

DORMANT = 20 * TOPICS_PER_SLICE
RECORD = DormantTopic(None, (), 0, 0, 0, 0, 0, NOT_KNOWN, NOT_KNOWN, NOT_KNOWN, None)


class Walk:
    """Dormant topics, and how many of them a walk has passed."""

    filling = False

    def __init__(self) -> None:
        self.names = [f"persistent://public/default/{number:05}" for number in range(DORMANT)]
        self.passed = 0

    def __iter__(self) -> Iterator[tuple[str, DormantTopic]]:
        for name in self.names:
            self.passed += 1
            yield name, RECORD

    def get(self, name: str) -> DormantTopic:
        return RECORD


def everything(_: str) -> bool:
    return True


def traffic_of(walk: Walk, topics: dict[str, Topic]) -> Traffic:
    return Traffic(topics, cast(DormantTopics, walk), ChangedLedgers())


async def test_walk_over_dormant_topics_lets_others_run_after_each_slice() -> None:
    walk = Walk()
    passed = [0]

    async def watch() -> None:
        while True:
            passed.append(walk.passed)
            await asyncio.sleep(0)

    watching = asyncio.create_task(watch())
    answer = await topics_page({}, traffic_of(walk, {}), TopicsQuery(limit=3), everything)
    watching.cancel()
    assert answer["total"] == DORMANT
    assert [cast(Any, row)["topic"] for row in cast(Any, answer["topics"])] == walk.names[:3]
    assert max(after - before for before, after in pairwise(passed)) <= TOPICS_PER_SLICE


async def test_topic_that_falls_asleep_during_the_walk_is_listed_once() -> None:
    walk = Walk()
    sleepy = "persistent://public/default/sleepy"
    topics = {sleepy: cast(Topic, None)}

    def listed(_: str) -> bool:
        # Asked for each name, so the topic falls asleep when the first one is looked at.
        if topics:
            del topics[sleepy]
            walk.names.append(sleepy)
        return True

    answer = await topics_page(topics, traffic_of(walk, {}), TopicsQuery(search="sleepy"), listed)
    assert answer["total"] == DORMANT + 1
    assert [cast(Any, row)["topic"] for row in cast(Any, answer["topics"])] == [sleepy]
