"""How long data lives: time to live, retention and the end of its ledger together, on a clock turned by hand.

The rule of the code is a maximum. A published article states a sum; the table has the cases in which both agree.
"""

from __future__ import annotations

import pytest

from broker.compose.ledger_upkeep import save_deduplication
from broker.managed_ledger.ledger_list import LedgerInfo, LedgerList
from broker.service.subscriptions.backlog.message_expiry import last_closed_before
from foundation.model.position import Position
from tests.broker.service.subscriptions.backlog.test_message_expiry import (
    HOUR_MS,
    MINUTE_MS,
    left,
    look,
    unread,
)
from tests.fakes.stage import Stage

SNAPSHOT_NS = 121_000_000_000
"""Above `brokerDeduplicationSnapshotIntervalSeconds`."""


def lifetime(ttl_min: int, retention_min: int, closed_min: int) -> int:
    """The rule: a message that nobody reads is gone when it has expired and its ledger is out of retention."""
    return max(ttl_min, closed_min + retention_min)


def lifetime_by_the_article(ttl_min: int, retention_min: int) -> int:
    """The rule of "600K Topics Per Cluster": the sum for TTL < retention, else the time to live."""
    return ttl_min + retention_min if ttl_min < retention_min else ttl_min


LIFETIMES = [
    # TTL, retention, the ledger's age when it is closed; minutes
    (10, 30, 10, "agree"),  # closed when the time to live ends: the sum is exact
    (10, 30, 0, "shorter"),
    (10, 30, 4, "shorter"),
    (10, 30, 20, "longer"),  # a ledger that was closed late keeps its messages above the sum
    (30, 10, 0, "agree"),
    (30, 10, 20, "agree"),  # closed no later than TTL - retention
    (30, 10, 25, "longer"),
    (20, 20, 0, "agree"),
    (20, 20, 5, "longer"),
    (10, 0, 0, "agree"),
    (10, 0, 10, "agree"),
]


@pytest.mark.parametrize(("ttl_min", "retention_min", "closed_min", "against_the_article"), LIFETIMES)
async def test_data_lives_for_the_longer_of_both_times(
    ttl_min: int, retention_min: int, closed_min: int, against_the_article: str
) -> None:
    stage = Stage(entries_per_ledger=2, ttl_s=ttl_min * 60, retention_minutes=retention_min, retention_mib=-1)
    topic = await stage.open()
    await unread(stage, topic)
    await stage.publish(topic, 1)
    first = topic.ledger.ledgers.infos()[0].ledger_id
    gone_at = None
    for minute in range(91):
        if minute == closed_min:
            await stage.publish(topic, 2)
        await look(stage, topic, 0)
        topic.ledger.trimming.trim(stage.wall_ms, without_cursors=True)
        await stage.settle()
        if first not in topic.ledger.ledgers:
            gone_at = minute
            break
        stage.wall_ms += MINUTE_MS
    # The second message of the ledger comes when it is closed, and expires by itself.
    expected = max(lifetime(ttl_min, retention_min, closed_min), closed_min + ttl_min)
    assert gone_at is not None
    assert expected <= gone_at <= expected + 1
    difference = lifetime(ttl_min, retention_min, closed_min) - lifetime_by_the_article(
        ttl_min, retention_min
    )
    assert against_the_article == ("agree" if not difference else "longer" if difference > 0 else "shorter")


def test_whole_ledgers_are_old_enough_by_the_time_they_were_closed() -> None:
    closed = [LedgerInfo(1, 10, 100, closed_at_ms=1000), LedgerInfo(2, 5, 100, closed_at_ms=2000)]
    ledgers = LedgerList(closed, LedgerInfo(3))
    assert last_closed_before(ledgers, 1000) is None
    assert last_closed_before(ledgers, 1001) == Position(1, 9)
    assert last_closed_before(ledgers, 9999) == Position(2, 4)


async def test_message_from_the_future_does_not_keep_those_behind_it() -> None:
    # The clock of a client: the broker's own timestamps would never run backwards.
    stage = Stage(entries_per_ledger=3, ttl_s=60, entry_timestamp=False)
    topic = await stage.open()
    subscription = await unread(stage, topic)
    stage.wall_ms += 1000 * HOUR_MS
    await stage.publish(topic, 1)
    stage.wall_ms -= 1000 * HOUR_MS
    await stage.publish(topic, 3)
    await look(stage, topic, 61_000)
    # Three messages are in a ledger that was closed 61 s ago, the fourth has a publish time.
    assert subscription.cursor.backlog == 0


async def test_messages_after_a_broker_clock_that_was_ahead_expire_with_their_ledger() -> None:
    stage = Stage(entries_per_ledger=3, ttl_s=60)
    topic = await stage.open()
    subscription = await unread(stage, topic)
    stage.wall_ms += 1000 * HOUR_MS
    await stage.publish(topic, 1)
    stage.wall_ms -= 1000 * HOUR_MS
    await stage.publish(topic, 3)
    await look(stage, topic, 61_000)
    assert left(subscription) == [0], "the first of the second ledger"
    await stage.publish(topic, 2)
    await look(stage, topic, 61_000)
    assert left(subscription) == []


async def test_clock_that_jumps_forward_and_back_expires_each_message_once() -> None:
    stage = Stage(ttl_s=3600)
    topic = await stage.open()
    subscription = await unread(stage, topic)
    await stage.publish(topic, 2)
    await look(stage, topic, -24 * HOUR_MS)
    assert left(subscription) == [0, 1], "a clock that went back makes nothing older"
    await look(stage, topic, 24 * HOUR_MS)
    assert left(subscription) == [0, 1]
    await look(stage, topic, 24 * HOUR_MS)
    assert left(subscription) == []
    await look(stage, topic, -24 * HOUR_MS)
    await stage.publish(topic, 1)
    await look(stage, topic, 30 * MINUTE_MS)
    assert left(subscription) == [2]
    assert subscription.expired.total == 2


async def test_retention_goes_on_after_a_clock_went_back() -> None:
    stage = Stage(entries_per_ledger=1, retention_minutes=10, retention_mib=-1)
    topic = await stage.open()
    subscription = await unread(stage, topic)
    await stage.publish(topic, 2)
    subscription.acknowledge_through(topic.ledger.last_confirmed)
    stage.wall_ms -= HOUR_MS
    assert topic.ledger.trimming.trim(stage.wall_ms) == []
    stage.wall_ms += HOUR_MS + 10 * MINUTE_MS
    assert len(topic.ledger.trimming.trim(stage.wall_ms)) == 2


async def test_subscription_that_never_acknowledges_holds_data_beside_healthy_ones_until_the_time_to_live() -> (
    None
):
    stage = Stage(entries_per_ledger=2, ttl_s=600)
    topic = await stage.open()
    stuck = await unread(stage, topic)
    healthy, _, _ = await stage.consume(topic, subscription="healthy", permits=100)
    await stage.publish(topic, 5)
    healthy.acknowledge_through(topic.ledger.last_confirmed)
    await stage.settle()
    assert (healthy.cursor.backlog, stuck.cursor.backlog) == (0, 5)
    assert topic.ledger.ledgers.entries == 5
    await look(stage, topic, 601_000)
    await stage.settle()
    assert (healthy.cursor.backlog, stuck.cursor.backlog) == (0, 0)
    assert topic.ledger.ledgers.entries == 1, "the current ledger stays"


async def test_cursor_of_deduplication_holds_no_data_after_its_snapshot() -> None:
    stage = Stage(entries_per_ledger=2, deduplication=True)
    topic = await stage.open()
    subscription = await unread(stage, topic)
    await stage.publish(topic, 5)
    subscription.acknowledge_through(topic.ledger.last_confirmed)
    stage.now_ns += SNAPSHOT_NS
    save_deduplication(topic, stage.now_ns)
    await stage.settle()
    topic.ledger.trimming.trim(stage.wall_ms)
    assert topic.ledger.ledgers.entries == 1
