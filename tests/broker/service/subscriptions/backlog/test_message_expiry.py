"""Messages expire by their time to live, delayed ones not before they are due, and their ledgers by the retention rule."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from broker.managed_ledger import managed_ledger, single_entry
from broker.managed_ledger.managed_cursor import ManagedCursor
from broker.service.policies import table
from broker.service.subscriptions.backlog import expiring_delays, message_expiry
from broker.service.subscriptions.backlog.requested_expiry import NotExpired, expire_older
from broker.service.subscriptions.subscription import Subscription
from broker.service.subscriptions.topic_positions import TopicPositions
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.model.entry import Entry
from foundation.model.errors import EntryDamaged
from foundation.model.position import EARLIEST, Position
from foundation.model.range_set import EntryRange
from foundation.value import Json
from tests.fakes.messages import message
from tests.fakes.sends import send
from tests.fakes.stage import EXCLUSIVE, SHARED, TOPIC, Stage

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


async def unread(stage: Stage, topic: PersistentTopic) -> Subscription:
    """A subscription without a consumer, at the first message."""
    subscription, consumer, _ = await stage.consume(topic, SHARED)
    subscription.remove_consumer(consumer)
    return subscription


async def look(stage: Stage, topic: PersistentTopic, after_ms: int) -> None:
    stage.wall_ms += after_ms
    await stage.run(topic.expiry.look())


def left(subscription: Subscription) -> list[int]:
    """Numbers of the unacknowledged entries, in a topic with one ledger."""
    cursor = subscription.cursor
    ledger_id = cursor.context.ledgers.current.ledger_id
    entries = range(cursor.context.ledgers.entries)
    return [number for number in entries if not cursor.acks.is_acknowledged(Position(ledger_id, number))]


async def test_message_of_the_age_counts_as_acknowledged() -> None:
    stage = Stage(ttl_s=60)
    topic = await stage.open()
    subscription = await unread(stage, topic)
    await stage.publish(topic, 3)
    stage.wall_ms += 30_000
    await stage.publish(topic, 2)
    await look(stage, topic, 30_000)
    assert left(subscription) == [0, 1, 2, 3, 4], "an age equal to the limit is not above it"
    await look(stage, topic, 1)
    assert left(subscription) == [3, 4]
    assert (subscription.expired.total, subscription.expired.last_ms) == (3, stage.wall_ms)


async def test_time_to_live_leaves_a_reader_where_it_is() -> None:
    """As in Pulsar 5.0; Pulsar 4.2 moves readers too, and they lose messages that are still stored (#26505)."""
    stage = Stage(ttl_s=60)
    topic = await stage.open()
    subscription = await unread(stage, topic)
    await stage.publish(topic, 3)
    reader, consumer, port = await stage.consume(topic, EXCLUSIVE, subscription="reader", durable=False)
    await look(stage, topic, 61_000)
    assert (left(subscription), left(reader)) == ([], [0, 1, 2])
    reader.flow(consumer, 10)
    await stage.settle()
    assert len(port.got) == 3


@pytest.mark.parametrize("lost", [0, 1, 2])
async def test_lost_entry_keeps_no_other_from_expiring(lost: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(ttl_s=60)
    topic = await stage.open()
    subscription = await unread(stage, topic)
    await stage.publish(topic, 4)
    stage.wall_ms += 30_000
    await stage.publish(topic, 2)
    real = single_entry.read_entry

    async def damaged(context: Any, storage_reads: Any, position: Position) -> Any:
        if position.entry_id == lost:
            raise EntryDamaged("by the test")
        return await real(context, storage_reads, position)

    for module in (single_entry, managed_ledger):
        monkeypatch.setattr(module, "read_entry", damaged)
    await look(stage, topic, 30_001)
    assert left(subscription) == [4, 5]


async def test_policy_of_a_topic_outranks_that_of_its_namespace() -> None:
    stage = Stage(ttl_s=0)
    topic = await stage.open()
    subscription = await unread(stage, topic)
    await stage.publish(topic, 1)
    await stage.run(stage.namespaces.set_policy("public/default", table.MESSAGE_TTL.name, 10))
    await stage.run(stage.namespaces.set_topic_policy(TOPIC, table.MESSAGE_TTL.topic_name, 100))
    await look(stage, topic, 50_000)
    assert left(subscription) == [0]
    await look(stage, topic, 51_000)
    assert left(subscription) == []


async def test_time_to_live_of_a_delayed_message_begins_at_its_delivery_time() -> None:
    stage = Stage(ttl_s=60)
    topic = await stage.open()
    subscription = await unread(stage, topic)
    await stage.publish(topic, 4, delays_ms=[0, 600_000, 0, 30_000])
    await look(stage, topic, 61_000)
    assert left(subscription) == [1, 3]
    await look(stage, topic, 30_000)
    assert left(subscription) == [1]
    await look(stage, topic, 569_000)
    assert left(subscription) == [1], "60 s after its delivery time, which is not above the limit"
    await look(stage, topic, 1)
    assert left(subscription) == []


async def test_both_times_of_a_delayed_message_come_from_one_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second read may give another object; a look that needs an entry's times again has them."""
    stage = Stage(ttl_s=60)
    topic = await stage.open()
    subscription = await unread(stage, topic)
    await stage.publish(topic, 3, delays_ms=[600_000, 0, 30_000])
    read = Counter[int]()
    real = single_entry.read_readable

    async def counted(context: Any, storage_reads: Any, wanted: EntryRange) -> list[Entry]:
        read.update(range(wanted.first, wanted.last + 1))
        entries: list[Entry] = await real(context, storage_reads, wanted)
        return entries

    monkeypatch.setattr(managed_ledger, "read_readable", counted)
    for after_ms in (61_000, 1_000, 28_000):
        await look(stage, topic, after_ms)
    assert left(subscription) == [0, 2]
    await look(stage, topic, 1_000)
    assert left(subscription) == [0]
    assert read == {0: 1, 1: 1, 2: 1}


async def test_delayed_message_that_is_due_waits_for_its_consumer() -> None:
    stage = Stage(ttl_s=60)
    topic = await stage.open()
    subscription, consumer, _ = await stage.consume(topic, SHARED, permits=1)
    await stage.publish(topic, 1, delays_ms=[600_000])
    await stage.settle()
    # The message is due, its dispatcher was told, and its only consumer is gone.
    subscription.remove_consumer(consumer)
    await stage.pass_time(601_000)
    assert topic.delays.held.count == 0
    await stage.run(topic.expiry.look())
    assert left(subscription) == [0]
    _, _, connection = await stage.consume(topic, SHARED, permits=1)
    await stage.settle()
    assert len(connection.got) == 1
    await look(stage, topic, 61_000)
    assert left(subscription) == []


async def test_cursor_that_goes_back_finds_delayed_messages_again() -> None:
    stage = Stage(ttl_s=60)
    topic = await stage.open()
    subscription = await unread(stage, topic)
    await stage.publish(topic, 3, delays_ms=[600_000, 0, 0])
    await look(stage, topic, 61_000)
    assert left(subscription) == [0]
    subscription.acknowledge_through(topic.ledger.last_confirmed)
    await stage.publish(topic, 1)
    await look(stage, topic, 61_000)
    assert left(subscription) == []
    await stage.run(subscription.seek(EARLIEST))
    await look(stage, topic, 0)
    assert left(subscription) == [0]


async def test_delayed_message_of_a_former_lifetime_is_found() -> None:
    stage = Stage(ttl_s=60)
    topic = await stage.open()
    await unread(stage, topic)
    await stage.publish(topic, 3, delays_ms=[0, 600_000, 0])
    await stage.run(stage.registry.unload(topic.name))
    topic = await stage.open()
    subscription = topic.subscriptions["s"]
    stage.wall_ms += 61_000
    await stage.run(topic.expiry.look())
    acks = subscription.cursor.acks
    first = topic.ledger.ledgers.infos()[0].ledger_id
    assert [acks.is_acknowledged(Position(first, number)) for number in range(3)] == [True, False, True]


async def test_delayed_message_expires_by_the_key() -> None:
    stage = Stage(ttl_s=60, ttl_ignores_delays=True)
    topic = await stage.open()
    subscription = await unread(stage, topic)
    await stage.publish(topic, 2, delays_ms=[600_000])
    await look(stage, topic, 61_000)
    assert left(subscription) == []


@pytest.mark.parametrize("by_hand", [True, False])
@pytest.mark.parametrize(("ignores", "kept"), [(False, [1]), (True, [])])
async def test_expiry_by_hand_has_the_rule_of_the_time_to_live(
    by_hand: bool, ignores: bool, kept: list[int]
) -> None:
    """Apache Pulsar 4.2.4 has one rule for both too: there the delayed message goes, as with the key."""
    stage = Stage(ttl_s=60, ttl_ignores_delays=ignores)
    topic = await stage.open()
    subscription = await unread(stage, topic)
    await stage.publish(topic, 3, delays_ms=[0, 600_000, 0])
    stage.wall_ms += 61_000
    if by_hand:
        expired = await stage.run(expire_older(subscription, stage.wall_ms - MINUTE_MS))
        assert expired == 3 - len(kept)
    else:
        await stage.run(topic.expiry.look())
    assert left(subscription) == kept
    assert subscription.expired.total == 3 - len(kept)


async def test_expiry_by_hand_takes_a_delayed_message_that_was_due_long_ago() -> None:
    stage = Stage()
    topic = await stage.open()
    subscription = await unread(stage, topic)
    await stage.publish(topic, 3, delays_ms=[0, 30_000, 600_000])
    stage.wall_ms += 2 * MINUTE_MS
    assert await stage.run(expire_older(subscription, stage.wall_ms - MINUTE_MS)) == 2
    assert left(subscription) == [2]


async def test_expiry_by_hand_ends_after_more_entries_than_one_slice_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(expiring_delays, "_READ_PER_LOOK", 2)
    monkeypatch.setattr(expiring_delays, "_READ_AT_ONCE", 2)
    stage = Stage()
    topic = await stage.open()
    subscription = await unread(stage, topic)
    await stage.publish(topic, 11, delays_ms=[600_000, 0])
    stage.wall_ms += 2 * MINUTE_MS
    assert await stage.run(expire_older(subscription, stage.wall_ms - MINUTE_MS)) == 10
    assert left(subscription) == [0]


async def test_expiry_counts_what_it_expired_when_producers_publish_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(message_expiry, "_ACKS_PER_SLICE", 1)
    stage = Stage()
    topic = await stage.open()
    subscription = await unread(stage, topic)
    await stage.publish(topic, 4, delays_ms=[600_000, 0, 0, 0])
    stage.wall_ms += 2 * MINUTE_MS
    real, producer = ManagedCursor.acknowledge, await stage.producer(topic)
    backlogs: list[int] = []

    def acknowledge(cursor: ManagedCursor, positions: Sequence[tuple[int, int]]) -> None:
        backlogs.append(cursor.backlog)
        real(cursor, positions)
        send(producer, len(backlogs), message(b"later", at_ms=stage.wall_ms))

    monkeypatch.setattr(ManagedCursor, "acknowledge", acknowledge)
    assert await stage.run(expire_older(subscription, stage.wall_ms - MINUTE_MS)) == 3
    assert len(backlogs) == subscription.expired.total == 3
    assert min(backlogs) > 2, "messages came between two slices"


def seek_during_the_search(subscription: Subscription, patch: pytest.MonkeyPatch) -> None:
    """Lets the subscription seek back to the first message while an expiry waits for its search."""
    real = TopicPositions.newest_before

    async def newest_before(positions: TopicPositions, timestamp_ms: int) -> Position | None:
        found = await real(positions, timestamp_ms)
        if not subscription.cursor.seeks:
            await subscription.seek(EARLIEST)
        return found

    patch.setattr(TopicPositions, "newest_before", newest_before)


async def test_seek_during_an_expiry_by_hand_keeps_the_messages_sought(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage()
    topic = await stage.open()
    subscription = await unread(stage, topic)
    await stage.publish(topic, 4)
    subscription.acknowledge_through(topic.ledger.ledgers.previous(topic.ledger.last_confirmed))
    stage.wall_ms += 2 * MINUTE_MS
    seek_during_the_search(subscription, monkeypatch)
    with pytest.raises(
        NotExpired, match=r"^A seek moved subscription s of .* ended after 0 entries; ask again"
    ):
        await stage.run(expire_older(subscription, stage.wall_ms - MINUTE_MS))
    assert left(subscription) == [0, 1, 2, 3]
    assert await stage.run(expire_older(subscription, stage.wall_ms - MINUTE_MS)) == 4


async def test_seek_during_a_look_keeps_the_delayed_messages_sought(monkeypatch: pytest.MonkeyPatch) -> None:
    """The look knows the delays after its slowest cursor alone: those before it would expire before their time."""
    stage = Stage(ttl_s=60)
    topic = await stage.open()
    subscription = await unread(stage, topic)
    await stage.publish(topic, 4, delays_ms=[600_000, 0, 0, 0])
    subscription.acknowledge_through(topic.ledger.ledgers.previous(topic.ledger.last_confirmed))
    seek_during_the_search(subscription, monkeypatch)
    await look(stage, topic, 61_000)
    assert left(subscription) == [0, 1, 2, 3]
    await look(stage, topic, 0)
    assert left(subscription) == [0], "the next look follows the cursor"


async def test_seek_between_two_slices_of_an_expiry_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_expiry, "_ACKS_PER_SLICE", 1)
    stage = Stage()
    topic = await stage.open()
    subscription = await unread(stage, topic)
    await stage.publish(topic, 4, delays_ms=[600_000, 0, 0, 0])
    stage.wall_ms += 2 * MINUTE_MS
    real = ManagedCursor.acknowledge
    sought: list[asyncio.Task[None]] = []

    def acknowledge(cursor: ManagedCursor, positions: Sequence[tuple[int, int]]) -> None:
        real(cursor, positions)
        sought.append(asyncio.ensure_future(subscription.seek(EARLIEST)))

    monkeypatch.setattr(ManagedCursor, "acknowledge", acknowledge)
    with pytest.raises(NotExpired, match="ended after 1 entries"):
        await stage.run(expire_older(subscription, stage.wall_ms - MINUTE_MS))
    await stage.run(sought[0])
    assert (len(sought), left(subscription), subscription.expired.total) == (1, [0, 1, 2, 3], 1)


@pytest.mark.parametrize("first", ["mark-delete", "single"])
async def test_expiry_and_acknowledgement_meet_in_any_order(first: str) -> None:
    stage = Stage(ttl_s=60)
    topic = await stage.open()
    subscription, consumer, _ = await stage.consume(topic, SHARED, permits=10)
    await stage.publish(topic, 4)
    ledger_id = topic.ledger.ledgers.current.ledger_id
    if first == "single":
        subscription.acknowledge(consumer, [(ledger_id, 2)])
    await look(stage, topic, 61_000)
    subscription.acknowledge(consumer, [(ledger_id, 2), (ledger_id, 0)])
    assert left(subscription) == []
    assert subscription.cursor.backlog == 0
    assert subscription.expired.total == (3 if first == "single" else 4)


# The life of a ledger: acknowledged or expired, and retention over. Reference: bookkeeper.md 5.3 of Pulsar's code.


@pytest.mark.parametrize(
    ("ttl_min", "retention", "gone_after_min"),
    [
        (0, (0, 0), None),
        (10, (0, 0), 10),
        (10, (30, -1), 30),
        (30, (10, -1), 30),
        (10, (-1, -1), None),
        (10, (-1, 1), None),
    ],
)
async def test_ledger_goes_when_expired_and_out_of_retention(
    ttl_min: int, retention: tuple[int, int], gone_after_min: int | None
) -> None:
    stage = Stage(
        entries_per_ledger=2, ttl_s=ttl_min * 60, retention_minutes=retention[0], retention_mib=retention[1]
    )
    topic = await stage.open()
    await unread(stage, topic)
    # The first ledger is full and closed, the second one stays current.
    await stage.publish(topic, 3)
    first = topic.ledger.ledgers.infos()[0].ledger_id
    gone_at = None
    for minute in range(1, 61):
        await look(stage, topic, MINUTE_MS)
        topic.ledger.trimming.trim(stage.wall_ms, without_cursors=True)
        await stage.settle()
        if first not in topic.ledger.ledgers:
            gone_at = minute
            break
    # A message of exactly the age is not above it, and neither is a ledger: the next look takes them.
    assert gone_at == (None if gone_after_min is None else pytest.approx(gone_after_min, abs=1))


async def test_retention_policy_acts_on_an_open_topic() -> None:
    stage = Stage(entries_per_ledger=2)
    topic = await stage.open()
    policy: dict[str, Json] = {"retentionTimeInMinutes": 60, "retentionSizeInMB": -1}
    await stage.run(stage.namespaces.set_policy("public/default", table.RETAINED.name, policy))
    await stage.run(topic.policies_changed())
    subscription = await unread(stage, topic)
    await stage.publish(topic, 3)
    subscription.acknowledge_through(topic.ledger.last_confirmed)
    await stage.settle()
    assert topic.ledger.ledgers.entries == 3
    stage.wall_ms += HOUR_MS + 1
    topic.ledger.trimming.trim(stage.wall_ms)
    assert topic.ledger.ledgers.entries == 1
