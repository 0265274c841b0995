"""Coordinators: the numbers that clients may open, and a broker that has logs of others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.managed_ledger.settings import ManagedLedgerSettings
from broker.service.subscriptions.transactional_acks import acknowledge_in_transaction
from broker.service.transactions.coordinator_log import NEWEST, CoordinatorLog, decode, encode
from broker.service.transactions.coordinators import ASSIGN_TOPIC, COORDINATORS, COORDINATORS_MAX
from broker.service.transactions.pending_acks import AckedEntry
from broker.service.transactions.transaction_states import Begun
from foundation.model.errors import CoordinatorNotFound
from foundation.model.txn_id import TxnId
from tests.broker.service.transactions.bench import Bench
from tests.fakes.stage import SHARED


async def test_restricted_client_opens_only_coordinators_that_it_can_find() -> None:
    bench = Bench()
    await bench.stage.run(bench.coordinators.open())
    for number in (COORDINATORS, 2**64 - 1):
        with pytest.raises(CoordinatorNotFound):
            await bench.stage.run(bench.coordinators.connect(number, restricted=True))
    assert not bench.coordinators.by_number
    await bench.stage.run(bench.stage.registry.partitions.set_count(ASSIGN_TOPIC, COORDINATORS + 1))
    found = await bench.stage.run(bench.coordinators.connect(COORDINATORS, restricted=True))
    assert found.number == COORDINATORS
    with pytest.raises(CoordinatorNotFound):
        await bench.stage.run(bench.coordinators.connect(COORDINATORS_MAX))


async def test_topic_of_coordinators_may_be_made_by_two_brokers_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    partitions = bench.stage.registry.partitions
    await bench.stage.run(partitions.create(ASSIGN_TOPIC, COORDINATORS + 4, None))

    async def none_yet(name: object) -> int:
        monkeypatch.undo()
        return 0

    monkeypatch.setattr(partitions, "count", none_yet)
    await bench.stage.run(bench.coordinators.open())
    assert await bench.coordinators.count() == COORDINATORS + 4


async def test_coordinators_open_beside_any_number_of_stored_logs() -> None:
    bench = Bench()
    for number in range(COORDINATORS, COORDINATORS + 256):
        log = await bench.stage.run(
            CoordinatorLog.open(number, bench.stage.environment, ManagedLedgerSettings())
        )
        await bench.stage.run(log.close())
    await bench.stage.run(bench.coordinators.open())
    assert not bench.coordinators.by_number
    assert not bench.coordinators.logs
    assert (await bench.stage.run(bench.coordinators.connect(0))).number == 0
    # Without rights every number below the limit is any client's, as in Apache Pulsar.
    assert (await bench.stage.run(bench.coordinators.connect(COORDINATORS))).number == COORDINATORS


async def test_coordinator_with_an_open_transaction_stays_open_whatever_its_number() -> None:
    bench = Bench()
    await bench.stage.run(bench.coordinators.connect(COORDINATORS))
    txn = await bench.stage.run(bench.coordinators.at(COORDINATORS).begin(60_000))
    await bench.restart()
    assert bench.coordinators.is_undecided(txn)
    assert [*bench.coordinators.by_number] == [COORDINATORS]


async def test_numbers_that_the_list_of_a_log_knows_are_not_given_out_again() -> None:
    """A broker of Apache's acknowledges every record, and leaves the highest number with the list."""
    bench = Bench()
    log = await bench.stage.run(CoordinatorLog.open(0, bench.stage.environment, ManagedLedgerSettings()))
    await bench.stage.run(log.ledger.set_properties({NEWEST: "41"}))
    await bench.stage.run(log.close())
    txn = (await bench.stage.run(bench.coordinators.connect(0))).newest
    assert txn == 41
    assert (await bench.stage.run(bench.coordinators.at(0).begin(60_000))).least == 42


async def test_list_of_a_log_has_the_highest_number_once_the_log_is_closed() -> None:
    bench = Bench()
    coordinator = await bench.stage.run(bench.coordinators.connect(0))
    for _ in range(3):
        await bench.stage.run(coordinator.begin(60_000))
    await bench.stage.run(coordinator.journal.close())
    log = await bench.stage.run(CoordinatorLog.open(0, bench.stage.environment, ManagedLedgerSettings()))
    assert (log.newest, log.ledger.properties[NEWEST]) == (2, "2")


async def two_coordinators(bench: Bench) -> tuple[TxnId, TxnId]:
    """Begins a transaction at the first and one at the last coordinator, which publishes and acknowledges."""
    topic = await bench.stage.open()
    for number in range(COORDINATORS):
        await bench.stage.run(bench.coordinators.connect(number))
    subscription, consumer, port = await bench.stage.consume(topic, SHARED, permits=100)
    await bench.publish(topic, None, b"0", b"1")
    first, last = await bench.begin("s", at=0), await bench.begin("s", at=COORDINATORS - 1)
    await bench.publish(topic, last, b"2")
    acknowledge_in_transaction(subscription, consumer, last, [AckedEntry(port.keys[0])], cumulative=False)
    await bench.stage.settle()
    return first, last


@pytest.mark.parametrize("commit", [True, False])
async def test_topic_that_one_coordinator_opens_waits_for_the_logs_of_all(
    commit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = CoordinatorLog.open

    async def late(number: int, *rest: Any) -> CoordinatorLog:
        """Opens the last log so late that a topic can open meanwhile."""
        for _ in range(500 if number == COORDINATORS - 1 else 0):
            await asyncio.sleep(0)
        return await real(number, *rest)

    bench = Bench()
    transactions = await two_coordinators(bench)
    bench.holds_ends = True
    decided = [
        asyncio.ensure_future(bench.coordinators.at(txn.most).end(txn, commit=commit)) for txn in transactions
    ]
    await bench.stage.settle()
    monkeypatch.setattr(CoordinatorLog, "open", late)
    await bench.restart()
    for waiting in decided:
        waiting.cancel()
    await bench.stage.settle()
    topic = await bench.stage.open()
    buffer = topic.transactions.buffer
    assert buffer is not None
    assert not buffer.open
    assert (transactions[1] in buffer.aborted) is not commit
    assert topic.subscriptions["s"].cursor.acks.is_acknowledged((0, 0)) is commit


async def test_topic_that_opens_while_the_broker_stops_keeps_open_transactions() -> None:
    bench = Bench()
    _, txn = await two_coordinators(bench)
    await bench.stage.run(bench.coordinators.close())
    with pytest.raises(CoordinatorNotFound):
        bench.coordinators.at(txn.most)
    with pytest.raises(CoordinatorNotFound):
        await bench.stage.run(bench.coordinators.connect(txn.most))
    topic = await bench.reopened()
    assert topic.transactions.pending["s"].transactions() == [txn]
    buffer = topic.transactions.buffer
    assert buffer is not None
    assert [*buffer.open] == [txn]


async def test_log_with_a_strange_number_is_not_opened(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    for number in (COORDINATORS_MAX, 10**8):
        log = await bench.stage.run(
            CoordinatorLog.open(number, bench.stage.environment, ManagedLedgerSettings())
        )
        await bench.stage.run(log.close())
    await bench.stage.run(bench.coordinators.open())
    assert not bench.coordinators.by_number
    assert caplog.text.count("2 logs of transaction coordinators are not opened") == 1


async def test_coordinators_know_the_role_that_began_a_transaction() -> None:
    bench = Bench()
    await bench.stage.run(bench.coordinators.connect(0))
    owned = await bench.stage.run(bench.coordinators.at(0).begin(60_000, "alice"))
    free = await bench.stage.run(bench.coordinators.at(0).begin(60_000))
    assert bench.coordinators.owner(owned) == "alice"
    assert bench.coordinators.owner(free) is bench.coordinators.owner(TxnId(9, 9)) is None


@pytest.mark.parametrize("owner", ["alice", "", None])
def test_log_keeps_the_owner_and_its_absence(owner: str | None) -> None:
    begun = Begun(timeout_ms=1, started_ms=2, owner=owner)
    assert decode(encode(TxnId(3, 4), begun, 5)) == (TxnId(3, 4), begun)
