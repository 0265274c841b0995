"""Entries that wait for redelivery while a transaction acknowledges them: none is delivered, none is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bookkeeper.client.memory import MemoryLedgerClient
from broker.service.subscriptions.dispatch.shared_dispatcher import SharedDispatcher
from broker.service.subscriptions.transactional_acks import acknowledge_in_transaction
from broker.service.transactions.pending_acks import AckedEntry
from tests.broker.service.transactions.bench import Bench
from tests.fakes.stage import SHARED


@pytest.mark.parametrize("commit", [True, False])
async def test_entry_acknowledged_while_it_is_read_again_is_not_delivered(
    commit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(cache_bytes=0)
    topic = await bench.open()
    subscription, consumer, port = await bench.stage.consume(topic, SHARED, permits=100)
    await bench.publish(topic, None, b"0", b"1", b"2")
    txn = await bench.begin("s")
    keys = [entry.position for entry in port.got]
    held: list[Callable[[], None]] = []
    real = MemoryLedgerClient.batch_read

    def late(*arguments: Any) -> None:
        held.append(lambda: real(*arguments))

    monkeypatch.setattr(MemoryLedgerClient, "batch_read", late)
    dispatcher = subscription.dispatcher
    assert isinstance(dispatcher, SharedDispatcher)
    dispatcher.redeliver(consumer, keys)
    await bench.stage.settle()
    assert held, "the entries are read from storage"
    acknowledge_in_transaction(subscription, consumer, txn, [AckedEntry(keys[1])], cumulative=False)
    monkeypatch.undo()
    for read in held:
        read()
    await bench.stage.settle()
    assert port.keys[3:] == [(0, 0), (0, 2)]
    await bench.end(txn, commit=commit)
    assert port.keys[5:] == ([] if commit else [(0, 1)])


async def test_entry_given_back_by_a_transaction_while_it_is_read_again_is_delivered_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(cache_bytes=0)
    topic = await bench.open()
    subscription, consumer, port = await bench.stage.consume(topic, SHARED, permits=100)
    await bench.publish(topic, None, b"0", b"1", b"2")
    txn = await bench.begin("s")
    keys = [entry.position for entry in port.got]
    held: list[Callable[[], None]] = []
    real = MemoryLedgerClient.batch_read
    monkeypatch.setattr(MemoryLedgerClient, "batch_read", lambda *asked: held.append(lambda: real(*asked)))
    dispatcher = subscription.dispatcher
    assert isinstance(dispatcher, SharedDispatcher)
    dispatcher.redeliver(consumer, keys)
    await bench.stage.settle()
    acknowledge_in_transaction(subscription, consumer, txn, [AckedEntry(keys[1])], cumulative=False)
    await bench.end(txn, commit=False)
    monkeypatch.undo()
    for read in held:
        read()
    await bench.stage.settle()
    assert sorted(port.keys[3:]) == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("ack_set", [(), (0b110,)])
async def test_transaction_begins_the_redelivery_count_anew_when_it_commits(
    commit: bool, ack_set: tuple[int, ...]
) -> None:
    """As asked of Apache Pulsar 4.2.4: an aborted one counts a redelivery more, so a message that fails is given up."""
    bench = Bench(batch_index_acks=True)
    stage = bench.stage
    topic = await bench.open()
    subscription, consumer, port = await stage.consume(topic, SHARED, permits=100)
    await stage.publish(topic, 1, batch=3)
    txn = await bench.begin("s")
    keys = [entry.position for entry in port.got]
    for _ in range(2):
        subscription.redeliver(consumer, keys, None)
        await stage.settle()
    acknowledge_in_transaction(
        subscription, consumer, txn, [AckedEntry(keys[0], ack_set, 3)], cumulative=False
    )
    await bench.end(txn, commit=commit)
    subscription.redeliver(consumer, keys, None)
    await stage.settle()
    dispatcher = subscription.dispatcher
    assert isinstance(dispatcher, SharedDispatcher)
    if not commit:
        assert port.counts == [0, 1, 2, 3, 4]
    elif ack_set:
        assert port.counts == [0, 1, 2, 1]
    else:
        assert port.counts == [0, 1, 2]
        assert not dispatcher.redelivery.counts
