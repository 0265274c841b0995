"""The states of a transaction: every pair of state and change."""

from __future__ import annotations

import pytest

from broker.service.transactions.coordinator_log import decode, encode
from broker.service.transactions.transaction_states import (
    Begun,
    Change,
    PartitionsAdded,
    StatusChanged,
    SubscriptionsAdded,
    Transaction,
    TxnStatus,
    apply,
    check_change,
)
from foundation.model.errors import InvalidTxnStatus, TransactionNotFound
from foundation.model.position import Position
from foundation.model.txn_id import TxnId

TXN = TxnId(3, 7)
BEGUN = Begun(timeout_ms=5000, started_ms=1_700_000_000_000)
TOPICS = PartitionsAdded(("persistent://public/default/a", "persistent://public/default/b"))
SUBSCRIPTIONS = SubscriptionsAdded((("persistent://public/default/a", "s"),))

ALLOWED = {
    (TxnStatus.OPEN, TxnStatus.COMMITTING),
    (TxnStatus.OPEN, TxnStatus.ABORTING),
    (TxnStatus.COMMITTING, TxnStatus.COMMITTED),
    (TxnStatus.ABORTING, TxnStatus.ABORTED),
}


def transaction_in(status: TxnStatus) -> dict[TxnId, Transaction]:
    return {TXN: Transaction(txn=TXN, timeout_ms=1, started_ms=0, status=status)}


@pytest.mark.parametrize("before", TxnStatus)
@pytest.mark.parametrize("after", TxnStatus)
def test_status_changes_along_the_two_ways_only(before: TxnStatus, after: TxnStatus) -> None:
    known = transaction_in(before)
    if (before, after) in ALLOWED:
        check_change(known, TXN, StatusChanged(after))
    elif after is TxnStatus.OPEN:
        with pytest.raises((InvalidTxnStatus, StopIteration)):
            check_change(known, TXN, StatusChanged(after))
    else:
        with pytest.raises(InvalidTxnStatus, match=f"is in {before.name} status"):
            check_change(known, TXN, StatusChanged(after))


@pytest.mark.parametrize("status", TxnStatus)
@pytest.mark.parametrize("change", [TOPICS, SUBSCRIPTIONS])
def test_participants_are_added_while_the_transaction_is_open_only(status: TxnStatus, change: Change) -> None:
    known = transaction_in(status)
    if status is TxnStatus.OPEN:
        check_change(known, TXN, change)
    else:
        with pytest.raises(InvalidTxnStatus, match="Expect Txn `\\(3,7\\)` to be in OPEN status"):
            check_change(known, TXN, change)


@pytest.mark.parametrize("change", [TOPICS, SUBSCRIPTIONS, StatusChanged(TxnStatus.COMMITTING)])
def test_unknown_transaction_is_not_found(change: Change) -> None:
    with pytest.raises(TransactionNotFound) as refused:
        check_change({}, TXN, change)
    assert str(refused.value) == "The transaction with this txdID `(3,7)`not found "


def test_apply_gathers_topics_subscriptions_and_positions() -> None:
    known: dict[TxnId, Transaction] = {}
    changes: list[Change] = [BEGUN, TOPICS, TOPICS, SUBSCRIPTIONS, StatusChanged(TxnStatus.ABORTING)]
    for number, change in enumerate(changes):
        apply(known, TXN, change, Position(1, number))
    found = known[TXN]
    assert list(found.topics) == list(TOPICS.topics)
    assert list(found.subscriptions) == list(SUBSCRIPTIONS.subscriptions)
    assert found.status is TxnStatus.ABORTING
    assert (found.timeout_ms, found.started_ms) == (5000, 1_700_000_000_000)
    assert found.records == [Position(1, number) for number in range(5)]


@pytest.mark.parametrize(
    "change", [BEGUN, TOPICS, SUBSCRIPTIONS, *(StatusChanged(status) for status in list(TxnStatus)[1:])]
)
def test_records_are_read_as_they_were_written(change: Change) -> None:
    txn = TxnId(2**64 - 1, 2**63)
    assert decode(encode(txn, change, 1)) == (txn, change)
