"""Backlog quotas hold producers, refuse them, or evict the oldest messages; a drained backlog lets producers back."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.managed_ledger.ledger_list import LedgerInfo, LedgerList
from broker.service.lifecycle.quota_rounds import QuotaRounds
from broker.service.policies import table
from broker.service.policies.backlog_quota import AGE, EVICTION, EXCEPTION, HOLD, SIZE
from broker.service.subscriptions.backlog.sizes import bytes_after, position_leaving
from broker.service.subscriptions.subscription import Subscription
from broker.service.subscriptions.topic_positions import TopicPositions
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.model.errors import BrokerError, QuotaExceeded, QuotaRefused
from foundation.model.position import EARLIEST, Position
from tests.fakes.stage import SHARED, TOPIC, Stage, port_of


async def backlog(stage: Stage, topic: PersistentTopic, count: int, name: str = "s") -> Subscription:
    subscription, consumer, _ = await stage.consume(topic, SHARED, subscription=name)
    subscription.remove_consumer(consumer)
    await stage.publish(topic, count)
    return subscription


def size_of(topic: PersistentTopic) -> int:
    return topic.ledger.ledgers.size_bytes


async def may_produce(stage: Stage, topic: PersistentTopic) -> type[BrokerError] | None:
    """The error for a new producer."""
    try:
        producer = await stage.producer(topic, "late")
    except BrokerError as error:
        return type(error)
    await topic.remove_producer(producer)
    return None


@pytest.mark.parametrize(("reaction", "error"), [(HOLD, QuotaExceeded), (EXCEPTION, QuotaRefused)])
async def test_producers_are_disconnected_and_come_back_after_a_drain(
    reaction: str, error: type[BrokerError]
) -> None:
    stage = Stage(quota_bytes=500, quota_reaction=reaction)
    topic = await stage.open()
    subscription = await backlog(stage, topic, 3)
    assert size_of(topic) < 500
    producer = await stage.producer(topic)
    await stage.run(topic.quotas.look())
    assert "closed" not in port_of(producer).events
    assert await may_produce(stage, topic) is None
    await stage.publish(topic, 20)
    assert await may_produce(stage, topic) is error, "a new producer is compared at once"
    await stage.run(topic.quotas.look())
    assert "closed" in port_of(producer).events
    subscription.acknowledge_through(topic.ledger.last_confirmed)
    assert await may_produce(stage, topic) is None


async def test_slowest_subscription_counts_and_holes_do_not() -> None:
    stage = Stage(quota_bytes=500)
    topic = await stage.open()
    fast = await backlog(stage, topic, 0, "fast")
    slow, consumer, _ = await stage.consume(topic, SHARED, subscription="slow")
    await stage.publish(topic, 20)
    fast.acknowledge_through(topic.ledger.last_confirmed)
    ledger_id = topic.ledger.ledgers.current.ledger_id
    slow.acknowledge(consumer, [(ledger_id, number) for number in range(1, 20)])
    assert await may_produce(stage, topic) is QuotaExceeded, "the first message holds back all behind it"
    slowest = topic.quotas.slowest()
    assert slowest is not None
    assert (slowest.subscription, slowest.size_bytes) == ("slow", size_of(topic))
    slow.acknowledge(consumer, [(ledger_id, 0)])
    assert await may_produce(stage, topic) is None


async def test_backlog_reaches_the_end_of_the_log_though_nothing_was_read() -> None:
    """The article counts up to the read position, by which a subscription that never reads would stop no producer."""
    stage = Stage(quota_bytes=500)
    topic = await stage.open()
    subscription = await backlog(stage, topic, 20)
    assert subscription.cursor.read_position.entry_id == 0
    slowest = topic.quotas.slowest()
    assert slowest is not None
    assert slowest.size_bytes == size_of(topic)
    assert await may_produce(stage, topic) is QuotaExceeded


async def test_eviction_by_size_takes_the_oldest_from_those_who_are_behind() -> None:
    stage = Stage(quota_bytes=1000, quota_reaction=EVICTION)
    topic = await stage.open()
    slow = await backlog(stage, topic, 0, "slow")
    fast = await backlog(stage, topic, 40, "fast")
    fast.acknowledge_through(Position(topic.ledger.ledgers.current.ledger_id, 38))
    producer = await stage.producer(topic)
    await stage.run(topic.quotas.look())
    assert "closed" not in port_of(producer).events
    assert bytes_after(topic.ledger.ledgers, slow.cursor.mark_delete_position) <= 900
    assert slow.cursor.backlog > 0
    assert fast.cursor.backlog == 1
    evictions = topic.quotas.evictions
    assert evictions.entries == {SIZE: 40 - slow.cursor.backlog}
    (one,) = evictions.newest
    assert (one.subscription, one.kind, one.limit) == ("slow", SIZE, 1000)
    assert (one.after.entry_id, one.through) == (-1, slow.cursor.mark_delete_position)
    assert (one.entries, one.at_ms) == (40 - slow.cursor.backlog, stage.wall_ms)
    again = slow.cursor.backlog
    await stage.run(topic.quotas.look())
    assert slow.cursor.backlog == again, "below the limit nothing more goes"


@pytest.mark.parametrize("asked", [True, False])
async def test_age_of_each_subscription_is_found_where_the_setting_asks(
    asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(quota_age_precise=True, subscription_ages=asked)
    topic = await stage.open()
    slow = await backlog(stage, topic, 1, "slow")
    fast = await backlog(stage, topic, 0, "fast")
    stage.wall_ms += 60_000
    await stage.publish(topic, 1)
    fast_consumer, _ = (await stage.consume(topic, SHARED, subscription="fast"))[1:]
    fast.acknowledge(fast_consumer, [(topic.ledger.ledgers.current.ledger_id, 0)])
    stage.wall_ms += 1_000

    def ages() -> list[int]:
        return [topic.quotas.age_of(name) for name in ("slow", "fast", "none")]

    assert ages() == [-1, -1, -1], "before the first look"
    await stage.run(topic.quotas.look())
    assert ages() == ([61, 1, -1] if asked else [-1, -1, -1])
    reads: list[Position] = []
    time_of = TopicPositions.time_of

    def noted(positions: TopicPositions, position: Position) -> Awaitable[int | None]:
        reads.append(position)
        return time_of(positions, position)

    monkeypatch.setattr(TopicPositions, "time_of", noted)
    slow.acknowledge_through(Position(topic.ledger.ledgers.current.ledger_id, 0))
    await stage.run(topic.quotas.look())
    assert ages() == ([1, 1, -1] if asked else [-1, -1, -1])
    # For the topic's own age once more, and for the subscription that has moved on.
    assert len(reads) == 1 + asked
    for one in (slow, fast):
        one.acknowledge_through(topic.ledger.last_confirmed)
    await stage.run(topic.quotas.look())
    assert ages() == [-1, -1, -1], "without a backlog"


@pytest.mark.parametrize("precise", [True, False])
async def test_age_counts_from_the_message_or_from_the_end_of_its_ledger(precise: bool) -> None:
    stage = Stage(quota_age_s=60, quota_age_precise=precise, entries_per_ledger=2)
    topic = await stage.open()
    subscription = await backlog(stage, topic, 1)
    stage.wall_ms += 61_000
    await stage.run(topic.quotas.look())
    assert await may_produce(stage, topic) is (QuotaExceeded if precise else None)
    assert topic.quotas.oldest_age_s == (61 if precise else -1), "its ledger is open"
    await stage.publish(topic, 2) if not precise else None
    stage.wall_ms += 61_000
    await stage.run(topic.quotas.look())
    assert await may_produce(stage, topic) is QuotaExceeded
    subscription.acknowledge_through(topic.ledger.last_confirmed)
    assert await may_produce(stage, topic) is None


async def test_eviction_by_age_leaves_the_younger_messages() -> None:
    stage = Stage(quota_age_s=100, quota_age_precise=True, quota_reaction=EVICTION)
    topic = await stage.open()
    subscription = await backlog(stage, topic, 3)
    stage.wall_ms += 50_000
    await stage.publish(topic, 2)
    stage.wall_ms += 51_000
    await stage.run(topic.quotas.look())
    assert subscription.cursor.backlog == 2
    assert (topic.quotas.evictions.entries, topic.quotas.evictions.times) == ({AGE: 3}, {AGE: 1})


async def test_seek_during_an_eviction_by_age_keeps_the_messages_sought(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage(quota_age_s=100, quota_age_precise=True, quota_reaction=EVICTION)
    topic = await stage.open()
    moved, other = await backlog(stage, topic, 0, "moved"), await backlog(stage, topic, 3, "other")
    moved.acknowledge_through(topic.ledger.ledgers.previous(topic.ledger.last_confirmed))
    stage.wall_ms += 101_000
    real = TopicPositions.newest_before

    async def newest_before(positions: TopicPositions, timestamp_ms: int) -> Position | None:
        found = await real(positions, timestamp_ms)
        if not moved.cursor.seeks:
            await moved.seek(EARLIEST)
        return found

    monkeypatch.setattr(TopicPositions, "newest_before", newest_before)
    await stage.run(topic.quotas.look())
    assert (moved.cursor.backlog, other.cursor.backlog) == (3, 0)
    await stage.run(topic.quotas.look())
    assert moved.cursor.backlog == 0, "the next look follows the cursor"


async def test_each_level_may_set_one_type_alone() -> None:
    stage = Stage(quota_bytes=-1)
    topic = await stage.open()
    quotas: dict[str, Any] = {SIZE: {"limitSize": 500, "policy": HOLD}}
    await stage.run(stage.namespaces.set_policy("public/default", table.BACKLOG.name, quotas))
    by_age: dict[str, Any] = {AGE: {"limitTime": 60, "policy": EXCEPTION}}
    await stage.run(stage.namespaces.set_topic_policy(TOPIC, table.BACKLOG.topic_name, by_age))
    assert topic.quotas.size.size_max == 500
    assert topic.quotas.age.age_max_s == 60
    await backlog(stage, topic, 20)
    assert await may_produce(stage, topic) is QuotaExceeded


@pytest.mark.parametrize("reaction", [HOLD, EXCEPTION, EVICTION])
async def test_quota_that_is_lowered_below_the_backlog_acts_at_the_next_look(reaction: str) -> None:
    stage = Stage(quota_bytes=1_000_000)
    topic = await stage.open()
    subscription = await backlog(stage, topic, 40)
    producer = await stage.producer(topic)
    await stage.run(topic.quotas.look())
    assert subscription.cursor.backlog == 40
    lowered: dict[str, Any] = {SIZE: {"limitSize": 500, "policy": reaction}}
    await stage.run(stage.namespaces.set_topic_policy(TOPIC, table.BACKLOG.topic_name, lowered))
    await stage.run(topic.quotas.look())
    evicts = reaction == EVICTION
    assert ("closed" in port_of(producer).events) is not evicts
    assert (subscription.cursor.backlog < 40) is evicts
    subscription.acknowledge_through(topic.ledger.last_confirmed)
    assert await may_produce(stage, topic) is None


async def test_quotas_act_by_their_key_alone() -> None:
    stage = Stage(quota_bytes=1, quotas_checked=False)
    topic = await stage.open()
    await backlog(stage, topic, 3)
    await stage.run(topic.quotas.look())
    assert await may_produce(stage, topic) is None


SIZES = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 50)), min_size=1, max_size=6)


@given(SIZES, st.integers(0, 1000))
def test_position_leaves_at_most_so_many_bytes_and_not_fewer_by_an_entry(
    sizes: list[tuple[int, int]], bytes_max: int
) -> None:
    infos = [LedgerInfo(number, entries, entries * size) for number, (entries, size) in enumerate(sizes)]
    ledgers = LedgerList(infos[:-1], infos[-1])
    position = position_leaving(ledgers, bytes_max)
    left = bytes_after(ledgers, position)
    assert left <= bytes_max or not ledgers.entries
    before = ledgers.previous(position) if position.entry_id >= 0 else None
    if before is not None:
        assert bytes_after(ledgers, Position(position.ledger_id, position.entry_id - 1)) > bytes_max


async def test_rounds_measure_their_duration_unless_quotas_are_switched_off() -> None:
    for checked in (True, False):
        stage = Stage(quotas_checked=checked)
        await stage.open()
        times = iter((3, 3 + 7 * 1_000_000_000))
        await stage.run(QuotaRounds(stage.registry, lambda times=times: next(times)).run())  # type: ignore[misc]
        checks = stage.registry.quota_checks
        assert (checks.counts, checks.sum_ns) == (
            ([0, 1, 0, 0, 0, 0], 7 * 1_000_000_000) if checked else ([0] * 6, 0)
        )


async def test_quotas_rest_without_a_backlog_and_until_a_look_has_noted_nothing() -> None:
    stage = Stage()
    topic = await stage.open()

    def rests() -> bool:
        return topic.quotas.rests

    assert rests()
    subscription = await backlog(stage, topic, 3)
    assert not rests()
    rounds = QuotaRounds(stage.registry, lambda: stage.now_ns)
    await stage.run(rounds.run())
    topic.quotas.oldest_age_s = 7
    subscription.acknowledge_through(topic.ledger.last_confirmed)
    assert not rests(), "the age of an entry that is acknowledged must go"
    await stage.run(rounds.run())
    assert topic.quotas.oldest_age_s == -1
    assert rests()
