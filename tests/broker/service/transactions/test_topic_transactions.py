"""Transactions on a topic: what readers see, what a restart restores, and what is acknowledged."""

from __future__ import annotations

import asyncio

import pytest

from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.managed_ledger.managed_ledger_info import CursorInfo, cursor_key
from broker.managed_ledger.records.pulsar_records import decode_cursor
from broker.service.consumer import SubscriptionType
from broker.service.subscriptions.transactional_acks import acknowledge_in_transaction
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.transactions.pending_acks import PROPERTY, AckedEntry
from foundation.model.entry import Entry
from foundation.model.errors import NotAllowed, PersistenceError, TransactionConflict
from foundation.model.position import EARLIEST, Position
from foundation.model.txn_id import TxnId
from protocol.frame import message_body
from protocol.pulsar_api_pb2 import MessageMetadata
from tests.broker.service.transactions.bench import Bench
from tests.fakes.stage import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED

ALL_KINDS = [EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED]


@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize("commit", [True, False])
async def test_readers_wait_for_the_oldest_open_transaction(kind: SubscriptionType, commit: bool) -> None:
    bench = Bench()
    topic = await bench.open()
    subscription, _, port = await bench.stage.consume(topic, kind, permits=100)
    await bench.stage.fire()  # Failover starts after its delay.
    await bench.publish(topic, None, b"0")
    txn = await bench.begin()
    await bench.publish(topic, txn, b"1", b"2")
    await bench.publish(topic, None, b"3")
    assert port.keys == [(0, 0)]
    await bench.end(txn, commit=commit)
    wanted = [(0, 0), (0, 1), (0, 2), (0, 3)] if commit else [(0, 0), (0, 3)]
    assert port.keys == wanted
    # The marker is acknowledged, and the entries of an aborted transaction are.
    assert subscription.cursor.backlog == len(wanted)
    assert not subscription.cursor.has_more()


async def test_aborted_entries_do_not_hold_back_the_mark_delete_position() -> None:
    bench = Bench()
    topic = await bench.open()
    subscription, consumer, port = await bench.stage.consume(topic, SHARED, permits=100)
    txn = await bench.begin()
    await bench.publish(topic, txn, *([b"x"] * 20))
    await bench.publish(topic, None, b"y")
    await bench.end(txn, commit=False)
    subscription.acknowledge(consumer, port.keys)
    assert subscription.cursor.mark_delete_position == topic.ledger.last_confirmed


async def test_last_message_is_the_last_one_that_readers_get() -> None:
    bench = Bench()
    topic = await bench.open()
    await bench.publish(topic, None, b"0")
    txn = await bench.begin()
    await bench.publish(topic, txn, b"1", b"2")
    assert (await bench.stage.run(topic.positions.last_message()))[0] == (0, 0)
    await bench.end(txn, commit=False)
    assert (await bench.stage.run(topic.positions.last_message()))[0] == (0, 0)
    other = await bench.begin()
    await bench.publish(topic, other, b"3")
    await bench.end(other, commit=True)
    assert (await bench.stage.run(topic.positions.last_message()))[0] == (0, 4)


async def test_topic_of_markers_alone_has_no_last_message() -> None:
    bench = Bench()
    topic = await bench.open()
    txn = await bench.begin()
    await bench.publish(topic, txn, b"0")
    await bench.end(txn, commit=False)
    assert await bench.stage.run(topic.positions.last_message()) == (EARLIEST, -1)


@pytest.mark.parametrize("snapshot_entries", [1, 3, 1000])
async def test_reopened_topic_knows_open_and_aborted_transactions(snapshot_entries: int) -> None:
    bench = Bench(transaction_snapshot_entries=snapshot_entries)
    topic = await bench.open()
    await bench.stage.run(topic.subscribing.create("s", EARLIEST))
    aborted, still_open = await bench.begin(), await bench.begin()
    await bench.publish(topic, aborted, b"0", b"1")
    await bench.publish(topic, None, b"2")
    await bench.publish(topic, still_open, b"3")
    await bench.end(aborted, commit=False)
    topic = await bench.reopened()
    _, _, port = await bench.stage.consume(topic, permits=100)
    assert [entry.position.entry_id for entry in port.got] == [2]
    await bench.end(still_open, commit=True)
    assert [entry.position.entry_id for entry in port.got] == [2, 3]


async def test_recovery_reads_only_entries_behind_the_snapshot() -> None:
    bench = Bench(transaction_snapshot_entries=10)
    topic = await bench.open()
    txn = await bench.begin()
    await bench.publish(topic, txn, b"0")
    await bench.end(txn, commit=True)
    for _ in range(10):
        await bench.publish(topic, None, *([b"x"] * 10))
    cursor = topic.ledger.cursors.by_name["magnetar.transactions"]
    # One publish is one confirmed run here, and a snapshot follows each run that is long enough.
    behind = topic.ledger.ledgers.entries_between(cursor.mark_delete_position, topic.ledger.last_confirmed)
    assert behind < 10


async def test_transaction_that_no_coordinator_knows_is_aborted_when_the_topic_opens() -> None:
    bench = Bench()
    topic = await bench.open()
    await bench.stage.run(topic.subscribing.create("s", EARLIEST))
    txn = await bench.begin()
    await bench.publish(topic, txn, b"0")
    await bench.publish(topic, None, b"1")
    bench.coordinators.by_number.clear()
    topic = await bench.reopened()
    _, _, port = await bench.stage.consume(topic, permits=100)
    assert [entry.position.entry_id for entry in port.got] == [1]


async def test_terminated_topic_ends_transactions_without_a_marker() -> None:
    bench = Bench()
    topic = await bench.open()
    _, _, port = await bench.stage.consume(topic, permits=100)
    kept, dropped = await bench.begin(), await bench.begin()
    await bench.publish(topic, kept, b"0")
    await bench.publish(topic, dropped, b"1")
    await bench.stage.run(topic.terminate())
    await bench.end(dropped, commit=False)
    await bench.end(kept, commit=True)
    assert port.keys == [(0, 0)]
    assert topic.transactions.buffer is not None
    assert not topic.transactions.buffer.open


async def test_messages_outside_of_an_open_transaction_are_refused() -> None:
    bench = Bench()
    topic = await bench.open()
    stranger = TxnId(0, 99)
    with pytest.raises(NotAllowed, match="is not open"):
        await bench.publish(topic, stranger, b"0")
    txn = await bench.begin()
    with pytest.raises(NotAllowed, match="is not open"):
        await bench.publish(topic, stranger, b"0")
    await bench.end(txn, commit=True)
    with pytest.raises(NotAllowed, match="is not open"):
        await bench.publish(topic, txn, b"0")
    assert open_on(topic) == []


def open_on(topic: PersistentTopic) -> list[TxnId]:
    assert topic.transactions.buffer is not None
    return list(topic.transactions.buffer.open)


async def test_topic_that_comes_after_its_transaction_takes_its_messages() -> None:
    bench = Bench()
    stage = bench.stage
    await stage.namespaces.open()
    await stage.run(bench.coordinators.connect(0))
    txn = await bench.begin()
    topic = await stage.open()
    await bench.publish(topic, txn, b"0")
    _, _, port = await stage.consume(topic, permits=100)
    await bench.end(txn, commit=True)
    # Ledger 0 is the coordinator's.
    assert port.keys == [(1, 0)]


# Acknowledgements


@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("commit", [True, False])
async def test_acknowledgements_count_when_their_transaction_commits(
    kind: SubscriptionType, restart: bool, commit: bool
) -> None:
    bench = Bench()
    topic = await bench.open()
    subscription, consumer, port = await bench.stage.consume(topic, kind, permits=100)
    await bench.stage.fire()
    await bench.publish(topic, None, b"0", b"1", b"2")
    txn = await bench.begin("s")
    entries = [AckedEntry(key) for key in port.keys[:2]]
    acknowledge_in_transaction(subscription, consumer, txn, entries, cumulative=False)
    await bench.stage.settle()
    assert subscription.cursor.backlog == 3
    if restart:
        topic = await bench.reopened()
        subscription, consumer, port = await bench.stage.consume(topic, kind, permits=100)
        await bench.stage.fire()
        assert port.keys == [(0, 2)]
    port.got.clear()
    await bench.end(txn, commit=commit)
    assert subscription.cursor.backlog == (1 if commit else 3)
    again = sorted(set(port.keys) - {(0, 2)})
    assert again == ([] if commit else [(0, 0), (0, 1)])


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
@pytest.mark.parametrize("turns", [None, 0, 5, 6, 7, 8, 9, 10, 11])
async def test_aborted_acknowledgements_ahead_of_the_reader_are_delivered_once(
    kind: SubscriptionType, turns: int | None
) -> None:
    """The abort comes before the new consumer may read (`turns` None), or so many turns of the loop after that."""
    bench = Bench(cache_bytes=0)
    topic = await bench.open()
    subscription, consumer, port = await bench.stage.consume(topic, kind, permits=100)
    await bench.stage.fire()
    await bench.publish(topic, None, b"0", b"1", b"2", b"3")
    txn = await bench.begin("s")
    entries = [AckedEntry(key) for key in port.keys[:2]]
    acknowledge_in_transaction(subscription, consumer, txn, entries, cumulative=False)
    await bench.stage.settle()
    topic = await bench.reopened()
    subscription, consumer, port = await bench.stage.consume(topic, kind)
    await bench.stage.fire()
    aborting = asyncio.ensure_future(bench.coordinators.at(0).end(txn, commit=False))
    for _ in range(turns or 0):
        if bench.stage.soon:
            bench.stage.soon.popleft()()
        await asyncio.sleep(0)
    if turns is None:
        await bench.stage.run(aborting)
    subscription.flow(consumer, 100)
    await bench.stage.run(aborting)
    await bench.stage.settle()
    assert sorted(port.keys) == [(0, 0), (0, 1), (0, 2), (0, 3)]


async def test_aborted_acknowledgements_are_delivered_again_though_their_keys_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    topic = await bench.open()
    subscription, consumer, port = await bench.stage.consume(topic, KEY_SHARED, permits=100)
    await bench.publish(topic, None, b"0", b"1")
    txn = await bench.begin("s")
    entries = [AckedEntry(key) for key in port.keys]
    acknowledge_in_transaction(subscription, consumer, txn, entries, cumulative=False)
    refused: list[Position] = []

    async def refuse(_: ManagedLedger, position: Position) -> Entry:
        refused.append(position)
        raise PersistenceError("the bookie does not answer")

    monkeypatch.setattr(ManagedLedger, "read_entry", refuse)
    port.got.clear()
    await bench.end(txn, commit=False)
    assert (refused, port.keys) == ([(0, 0), (0, 1)],) * 2


async def test_consumer_that_follows_does_not_get_what_a_transaction_has_acknowledged() -> None:
    bench = Bench()
    topic = await bench.open()
    subscription, consumer, port = await bench.stage.consume(topic, SHARED, permits=100)
    await bench.publish(topic, None, b"0", b"1", b"2")
    txn = await bench.begin("s")
    acknowledge_in_transaction(subscription, consumer, txn, [AckedEntry((0, 1))], cumulative=False)
    subscription.remove_consumer(consumer)
    _, _, port = await bench.stage.consume(topic, SHARED, permits=100)
    assert port.keys == [(0, 0), (0, 2)]


async def test_cumulative_acknowledgement_is_refused_where_consumers_share() -> None:
    bench = Bench()
    topic = await bench.open()
    subscription, consumer, _port = await bench.stage.consume(topic, SHARED, permits=100)
    await bench.publish(topic, None, b"0")
    txn = await bench.begin("s")
    with pytest.raises(NotAllowed, match="one by one"):
        acknowledge_in_transaction(subscription, consumer, txn, [AckedEntry((0, 0))], cumulative=True)


async def test_plain_acknowledgement_wins_over_a_later_transaction() -> None:
    bench = Bench()
    topic = await bench.open()
    subscription, consumer, _port = await bench.stage.consume(topic, SHARED, permits=100)
    await bench.publish(topic, None, b"0")
    txn = await bench.begin("s")
    subscription.acknowledge(consumer, [(0, 0)])
    with pytest.raises(TransactionConflict, match="already acked"):
        acknowledge_in_transaction(subscription, consumer, txn, [AckedEntry((0, 0))], cumulative=False)


@pytest.mark.parametrize("ack_set", [(), (0b110,)])
async def test_trimmed_entry_conflicts_with_a_later_transaction(ack_set: tuple[int, ...]) -> None:
    bench = Bench(entries_per_ledger=1)
    topic = await bench.open()
    subscription, consumer, _port = await bench.stage.consume(topic, SHARED, permits=100)
    await bench.publish(topic, None, b"0", b"1")
    earlier, later = await bench.begin("s"), await bench.begin("s")
    acknowledge_in_transaction(subscription, consumer, earlier, [AckedEntry((0, 0))], cumulative=False)
    await bench.end(earlier, commit=True)
    topic.ledger.trimming.trim(bench.stage.wall_ms)
    await bench.stage.settle()
    assert not topic.ledger.ledgers.has_entry(0, 0)
    with pytest.raises(TransactionConflict, match="already acked"):
        acknowledge_in_transaction(
            subscription, consumer, later, [AckedEntry((0, 0), ack_set, 3)], cumulative=False
        )


async def test_properties_of_a_subscription_hide_and_keep_the_pending_acknowledgements() -> None:
    bench = Bench()
    topic = await bench.open()
    subscription, consumer, _ = await bench.stage.consume(topic, SHARED, permits=100)
    await bench.publish(topic, None, b"0")
    txn = await bench.begin("s")
    acknowledge_in_transaction(subscription, consumer, txn, [AckedEntry((0, 0))], cumulative=False)
    await bench.stage.settle()
    await bench.stage.run(subscription.keep_properties({"a": "b"}))
    assert subscription.properties == {"a": "b"}
    topic = await bench.reopened()
    _, _, port = await bench.stage.consume(topic, SHARED, permits=100)
    assert port.keys == []


async def test_subscription_made_anew_inherits_no_pending_acknowledgements() -> None:
    bench = Bench()
    topic = await bench.open()
    subscription, consumer, _ = await bench.stage.consume(topic, SHARED, permits=100)
    await bench.publish(topic, None, b"0")
    txn = await bench.begin("s")
    acknowledge_in_transaction(subscription, consumer, txn, [AckedEntry((0, 0))], cumulative=False)
    await bench.stage.settle()
    await bench.stage.run(topic.subscribing.delete(subscription, consumer, force=True))
    _, _, port = await bench.stage.consume(topic, SHARED, permits=100)
    assert port.keys == [(0, 0)]
    await bench.end(txn, commit=True)
    assert topic.subscriptions["s"].cursor.backlog == 1


async def test_refused_names_cannot_join_the_snapshot_cursor() -> None:
    bench = Bench()
    topic = await bench.open()
    await bench.begin()
    with pytest.raises(NotAllowed, match="the broker's own"):
        await bench.stage.consume(topic, subscription="magnetar.transactions")
    assert "magnetar.transactions" not in (await bench.reopened()).subscriptions


@pytest.mark.parametrize("commit", [True, False])
async def test_end_is_stored_in_one_write_with_the_acknowledgements(commit: bool) -> None:
    bench = Bench()
    topic = await bench.open()
    subscription, consumer, _ = await bench.stage.consume(topic, SHARED, permits=100)
    await bench.publish(topic, None, b"0")
    txn = await bench.begin("s")
    acknowledge_in_transaction(subscription, consumer, txn, [AckedEntry((0, 0))], cumulative=False)
    await bench.stage.settle()
    key = cursor_key(topic.ledger.name, "s")
    versions = [(await stored(bench, key))[1]]
    await bench.end(txn, commit=commit)
    info, version = await stored(bench, key)
    assert version == versions[0] + 1
    assert PROPERTY not in info.cursor_properties
    assert (info.mark_delete.entry_id >= 0) is commit


async def stored(bench: Bench, key: str) -> tuple[CursorInfo, int]:
    found = await bench.stage.metadata.get(key)
    assert found is not None
    return decode_cursor(found.value).info, found.version


@pytest.mark.parametrize("commit", [True, False])
async def test_compaction_keeps_committed_messages_and_stops_before_open_transactions(commit: bool) -> None:
    bench = Bench()
    topic = await bench.open()
    await bench.publish(topic, None, b"old", key="a")
    txn, still_open = await bench.begin(), await bench.begin()
    await bench.publish(topic, txn, b"new", key="a")
    await bench.end(txn, commit=commit)
    await bench.publish(topic, None, b"b", key="b")
    await bench.publish(topic, still_open, b"newest", key="a")
    topic.compaction.start()
    await bench.stage.run(topic.compaction.wait())
    _, _, port = await bench.stage.consume(
        topic, EXCLUSIVE, permits=100, durable=False, read_compacted=True, start=EARLIEST
    )
    await bench.stage.settle()
    wanted = [(0, 1), (0, 3)] if commit else [(0, 0), (0, 3)]
    assert port.keys == wanted
    await bench.end(still_open, commit=True)
    assert port.keys == [*wanted, (0, 4)]


async def test_delayed_message_of_a_transaction_waits_for_its_time() -> None:
    bench = Bench()
    topic = await bench.open()
    _, _, port = await bench.stage.consume(topic, SHARED, permits=100)
    txn = await bench.begin()
    producer = await bench.stage.producer(topic, "publisher")
    metadata = MessageMetadata(
        producer_name="p",
        sequence_id=0,
        publish_time=bench.stage.wall_ms,
        deliver_at_time=bench.stage.wall_ms + 60_000,
        txnid_most_bits=txn.most,
        txnid_least_bits=txn.least,
    )
    stored = message_body(metadata, b"x")
    producer.publish_in_transaction(txn, 0, 0, 1, stored, len(stored), False)
    await bench.stage.settle()
    await bench.end(txn, commit=True)
    assert port.keys == []
    bench.stage.wall_ms += 61_000
    bench.stage.now_ns += 61_000_000_000
    await bench.stage.fire()
    assert port.keys == [(0, 0)]
