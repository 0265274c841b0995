"""Sums and rates over topics, without a count on the way of a message; and the list of many topics."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.console import traffic as traffic_module
from broker.console.topic_rows import SORTS, TopicsQuery, topics_page
from broker.console.traffic import Traffic, TrafficCounts
from broker.managed_ledger.stats import ChangedLedgers, ManagedLedgerStats
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic import Topic
from foundation.model.topic_name import parse_topic_name
from tests.fakes.dormant import NONE_DORMANT

SECOND_NS = 10**9


class FakeTopic(PersistentTopic):
    """The counters of a topic and nothing else."""

    __slots__ = ("__dict__",)

    def __init__(self, name: str, *, clients: int = 1, bytes_stored: int = 0) -> None:
        self.name = parse_topic_name(name)
        self.messages_in = self.bytes_in = 0
        self.access = cast(Any, SimpleNamespace(producers=dict.fromkeys(range(clients))))
        self.consumer = SimpleNamespace(messages_out=0, bytes_out=0)
        subscription = SimpleNamespace(
            retired_messages_out=0,
            retired_bytes_out=0,
            consumers=[self.consumer] * clients,
            cursor=SimpleNamespace(backlog=3),
        )
        self.subscriptions = cast(Any, {"s": subscription})
        self.subscribing = cast(Any, SimpleNamespace(messages_out_before=0, bytes_out_before=0))
        reads = SimpleNamespace(hit_entries=1, entries=2, hit_ratio=0.5)
        self.ledger = cast(
            Any,
            SimpleNamespace(
                cache=SimpleNamespace(cursor_reads=reads, size_bytes=0),
                stats=ManagedLedgerStats(),
                ledgers=SimpleNamespace(size_bytes=bytes_stored),
            ),
        )

    def send(self, messages: int) -> None:
        self.messages_in += messages
        self.consumer.messages_out += messages


def run(slices: Any) -> int:
    return sum(1 for _ in slices)


class Scene:
    """Traffic over fakes. `touch` notes a change, as a topic's log does."""

    def __init__(self, *open_before: FakeTopic) -> None:
        self.topics: dict[str, Topic] = {str(one.name): one for one in open_before}
        self.changed = ChangedLedgers()
        self.traffic = Traffic(self.topics, NONE_DORMANT, self.changed)

    def touch(self, topic: FakeTopic) -> None:
        self.changed.note(topic.name.ledger_name)

    def open(self, topic: FakeTopic) -> None:
        self.topics[str(topic.name)] = topic
        self.touch(topic)

    def close(self, topic: FakeTopic) -> None:
        del self.topics[str(topic.name)]
        self.touch(topic)

    def send(self, topic: FakeTopic, messages: int) -> None:
        topic.send(messages)
        self.touch(topic)

    def update(self, second: int) -> None:
        run(self.traffic.update(second * SECOND_NS))


def test_sums_have_levels_and_growth() -> None:
    first, second = FakeTopic("a", bytes_stored=10), FakeTopic("b", clients=0, bytes_stored=5)
    scene = Scene(first, second)
    traffic = scene.traffic
    scene.send(first, 7)
    scene.update(1)
    assert traffic.levels == {
        "topics": 2,
        "producers": 1,
        "consumers": 1,
        "subscriptions": 2,
        "backlog": 6,
        "storageBytes": 15,
    }
    assert traffic.counts.numbers == (7, 0, 7, 0, 2, 4)
    assert traffic.rates(first)[0] == 0
    scene.send(first, 10)
    scene.update(3)
    assert (traffic.counts.numbers[0], traffic.interval_s) == (17, 2)
    assert (traffic.rates(first)[0], traffic.rates(second)[0]) == (5, 0)
    # Nothing has changed since.
    scene.update(4)
    assert (traffic.counts.numbers[0], traffic.rates(first)[0]) == (17, 0)


def test_silent_topics_are_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = [FakeTopic(f"topic-{number}") for number in range(100)]
    scene = Scene(*topics)
    scene.update(1)
    read: list[Topic] = []
    real = traffic_module._read

    def counting(topic: Topic, before: TrafficCounts) -> tuple[TrafficCounts, tuple[int, ...]]:
        read.append(topic)
        return real(topic, before)

    monkeypatch.setattr(traffic_module, "_read", counting)
    scene.update(2)
    assert read == []
    scene.send(topics[7], 1)
    scene.update(3)
    assert read == [topics[7]]


def test_sums_forget_a_topic_that_was_closed() -> None:
    first, second = FakeTopic("a"), FakeTopic("b")
    scene = Scene(first, second)
    scene.send(first, 5)
    scene.update(1)
    scene.close(first)
    scene.update(2)
    levels = scene.traffic.levels
    assert (levels["topics"], levels["backlog"], levels["producers"]) == (1, 3, 1)
    assert scene.traffic.counts.numbers[0] == 5, "what was sent stays counted"
    scene.close(second)
    scene.update(3)
    assert set(scene.traffic.levels.values()) == {0}
    assert scene.traffic.by_namespace() == {}


def test_sums_by_namespace_are_those_of_their_topics() -> None:
    here, there = FakeTopic("a"), FakeTopic("persistent://public/other/b")
    scene = Scene(here, there)
    scene.update(1)
    scene.send(here, 6)
    scene.send(there, 4)
    scene.update(3)
    rows = scene.traffic.by_namespace()
    assert (rows["public/default"]["messagesIn"], rows["public/other"]["messagesIn"]) == (3, 2)
    scene.send(here, 6)
    there.subscriptions["s"].cursor.backlog = 8  # type: ignore[misc]  # A fake.
    scene.touch(there)
    run(scene.traffic.read_changes())
    rows = scene.traffic.by_namespace()
    assert (rows["public/default"]["backlog"], rows["public/other"]["backlog"]) == (3, 8), "of now"
    assert rows["public/default"]["messagesIn"] == 3, "of the last interval"
    # Counters that a page has read are part of the next interval.
    scene.update(5)
    assert scene.traffic.by_namespace()["public/default"]["messagesIn"] == 3


@pytest.mark.parametrize("messages", [4, 400])
def test_topic_that_is_opened_anew_counts_from_zero(messages: int) -> None:
    topic = FakeTopic("a")
    scene = Scene(topic)
    scene.send(topic, 100)
    scene.update(1)
    again = FakeTopic("a")
    scene.close(topic)
    scene.open(again)
    scene.send(again, messages)
    scene.update(2)
    assert scene.traffic.counts.numbers[0] == 100 + messages
    assert scene.traffic.rates(again)[0] == messages


@pytest.fixture(scope="module")
def many() -> dict[str, Topic]:
    names = [f"persistent://public/default/topic-{number * 7919 % 20_000}" for number in range(20_000)]
    # All of them are one object: so many would take longer to make than to list.
    return dict.fromkeys(names, FakeTopic("any", clients=0))


def everything(_: str) -> bool:
    return True


@pytest.mark.parametrize("offset", [0, 12_000, 19_990])
@pytest.mark.parametrize("sort", ["name", "backlog"])
async def test_page_of_many_topics_is_the_sorted_one(many: dict[str, Topic], sort: str, offset: int) -> None:
    for descending in (False, True):
        query = TopicsQuery(sort=sort, descending=descending, offset=offset, limit=10)
        found = await topics_page(many, Traffic(many, NONE_DORMANT, ChangedLedgers()), query, everything)
        shown = [cast(Any, row)["topic"] for row in cast(Any, found["topics"])]
        assert shown == sorted(many, reverse=descending)[offset : offset + 10]


async def test_many_topics_never_hold_the_loop_for_long(many: dict[str, Topic]) -> None:
    """No time is asserted: the number of turns between the begin and the end is what bounds one of them."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    query = TopicsQuery(search="9", sort="storageBytes", offset=6_000, limit=100)
    found = await topics_page(many, Traffic(many, NONE_DORMANT, ChangedLedgers()), query, everything)
    counting.cancel()
    assert cast(int, found["found"]) > 6_000
    # A turn has at most a thousand topics of one of four steps: allowed, search, key and order.
    assert turns > 50


async def test_every_order_has_a_number_in_the_rows(many: dict[str, Topic]) -> None:
    some = dict(list(many.items())[:5])
    for sort in SORTS:
        found = await topics_page(
            some, Traffic(some, NONE_DORMANT, ChangedLedgers()), TopicsQuery(sort=sort), everything
        )
        row = cast(Any, found["topics"])[0]
        assert sort in row or sort == "name"
