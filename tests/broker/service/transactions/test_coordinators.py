"""Coordinators: the numbers that clients may open, and a broker that has logs of others."""

from __future__ import annotations

import pytest

from broker.managed_ledger.settings import ManagedLedgerSettings
from broker.service.transactions.coordinator_log import CoordinatorLog, decode, encode
from broker.service.transactions.coordinators import ASSIGN_TOPIC, COORDINATORS, COORDINATORS_MAX
from broker.service.transactions.transaction_states import Begun
from foundation.model.errors import CoordinatorNotFound
from foundation.model.txn_id import TxnId
from tests.broker.service.transactions.bench import Bench


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
    await bench.stage.run(bench.coordinators.close())
    assert not bench.coordinators.is_undecided(txn)
    await bench.stage.run(bench.coordinators.open())
    assert bench.coordinators.is_undecided(txn)
    assert [*bench.coordinators.by_number] == [COORDINATORS]


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
