"""Sums and rates over topics, without a count on the way of a message; and the list of many topics."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.console.topic_rows import SORTS, TopicsQuery, topics_page
from broker.console.traffic import Traffic
from broker.managed_ledger.stats import ManagedLedgerStats
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


def test_walk_sums_levels_and_growth() -> None:
    first, second = FakeTopic("a", bytes_stored=10), FakeTopic("b", clients=0, bytes_stored=5)
    topics: dict[str, Topic] = {"a": first, "b": second}
    traffic = Traffic(topics, NONE_DORMANT)
    first.send(7)
    run(traffic.walk(SECOND_NS))
    levels = traffic.levels
    assert levels == {
        "topics": 2,
        "producers": 1,
        "consumers": 1,
        "subscriptions": 2,
        "backlog": 6,
        "storageBytes": 15,
    }
    assert traffic.counts.numbers == (7, 0, 7, 0, 2, 4)
    assert traffic.rates(first)[0] == 0
    first.send(10)
    run(traffic.walk(3 * SECOND_NS))
    assert (traffic.counts.numbers[0], traffic.interval_s) == (17, 2)
    assert (traffic.rates(first)[0], traffic.rates(second)[0]) == (5, 0)


def test_look_sees_only_topics_with_clients() -> None:
    busy, quiet = FakeTopic("a"), FakeTopic("b", clients=0)
    traffic = Traffic({"a": busy, "b": quiet}, NONE_DORMANT)
    run(traffic.walk(SECOND_NS))
    busy.send(5)
    quiet.send(5)
    run(traffic.look(2 * SECOND_NS))
    assert traffic.counts.numbers[0] == 5
    assert traffic.rates(busy)[0] == 5
    busy.send(5)
    run(traffic.look(3 * SECOND_NS))
    assert (traffic.counts.numbers[0], traffic.rates(busy)[0]) == (10, 5)
    # A walk finds the rest, and counts nothing twice.
    run(traffic.walk(4 * SECOND_NS))
    assert traffic.counts.numbers[0] == 15


def test_topic_that_is_opened_anew_counts_from_zero() -> None:
    topics: dict[str, Topic] = {"a": FakeTopic("a")}
    cast(FakeTopic, topics["a"]).send(100)
    traffic = Traffic(topics, NONE_DORMANT)
    run(traffic.walk(SECOND_NS))
    topics["a"] = again = FakeTopic("a")
    again.send(4)
    run(traffic.walk(2 * SECOND_NS))
    assert traffic.counts.numbers[0] == 104


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
        found = await topics_page(many, Traffic(many, NONE_DORMANT), query, everything)
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
    found = await topics_page(many, Traffic(many, NONE_DORMANT), query, everything)
    counting.cancel()
    assert cast(int, found["found"]) > 6_000
    # A turn has at most a thousand topics of one of four steps: allowed, search, key and order.
    assert turns > 50


async def test_every_order_has_a_number_in_the_rows(many: dict[str, Topic]) -> None:
    some = dict(list(many.items())[:5])
    for sort in SORTS:
        found = await topics_page(some, Traffic(some, NONE_DORMANT), TopicsQuery(sort=sort), everything)
        row = cast(Any, found["topics"])[0]
        assert sort in row or sort == "name"
