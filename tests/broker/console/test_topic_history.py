"""The last hour of a topic: sampled while pages show it, forgotten an hour later, bounded."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pulsar
from aiohttp import ClientSession

from broker.compose.broker_service import BrokerService
from broker.console.topic_history import KEPT_NS, TOPICS_MAX, TopicHistories
from broker.console.traffic import TrafficCounts, counts_of
from broker.service.topics.topic import Topic
from tests.broker.console.test_console_stream import EVENTS, publish_and_receive, until

SECOND_NS = 10**9
WATCHED = "persistent://public/default/watched"


class Clock:
    now_ns = SECOND_NS

    def ms(self) -> int:
        return self.now_ns // 10**6


def histories(topics: dict[str, Topic], clock: Clock) -> TopicHistories:
    return TopicHistories(topics, lambda: clock.now_ns, clock.ms)


async def test_history_begins_with_the_first_look_and_ends_an_hour_after_the_last(
    broker: BrokerService, monkeypatch: Any
) -> None:
    counted: list[Topic] = []

    def count(topic: Topic) -> TrafficCounts:
        counted.append(topic)
        return counts_of(topic)

    monkeypatch.setattr("broker.console.topic_history.counts_of", count)
    client = await asyncio.to_thread(publish_and_receive, broker.addresses.service_url, 3)
    clock = Clock()
    found = histories(broker.registry.topics, clock)
    found.sample()
    assert counted == []
    found.look(WATCHED)
    for _ in range(3):
        clock.now_ns += 10 * SECOND_NS
        found.sample()
    shown = cast("dict[str, Any]", found.shown(WATCHED))
    assert shown["sinceMs"] == 1000
    assert [row[0] for row in shown["tens"]] == [11_000, 21_000, 31_000]
    assert [row[shown["fields"].index("messagesIn")] for row in shown["tens"]] == [None, 0.0, 0.0]
    clock.now_ns += KEPT_NS + SECOND_NS
    found.sample()
    assert len(counted) == 3
    await asyncio.to_thread(client.close)


def test_histories_are_those_of_the_topics_looked_at_last() -> None:
    clock = Clock()
    found = histories({}, clock)
    for number in range(TOPICS_MAX + 1):
        found.look(f"topic {number}")
    clock.now_ns += 10 * SECOND_NS
    found.look("topic 0")
    assert cast("dict[str, Any]", found.shown("topic 0"))["sinceMs"] == clock.ms()


async def test_first_event_of_a_topic_has_its_history(broker: BrokerService, admin: ClientSession) -> None:
    client: pulsar.Client = await asyncio.to_thread(publish_and_receive, broker.addresses.service_url, 3)
    async with admin.get(f"{EVENTS}?topic={WATCHED}") as answer:
        first = await until(answer, "topic", lambda data: not data.get("gone"))
        assert "hitRatio" in first["history"]["fields"]
        assert first["hitRatioTotal"] == 1.0
        assert "history" not in await until(answer, "topic", lambda _: True)
    await asyncio.to_thread(client.close)
