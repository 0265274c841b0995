"""PendingAcks: which acknowledgements conflict, and what commit and abort return."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from broker.service.transactions.pending_acks import BATCH_MAX, AckedEntry, PendingAcks
from foundation.model.errors import TransactionConflict
from foundation.model.position import Position
from foundation.model.txn_id import TxnId

A, B = TxnId(0, 1), TxnId(0, 2)
START = Position(1, -1)


def nothing(key: tuple[int, int]) -> int:
    return -1


def whole(entry: int) -> AckedEntry:
    return AckedEntry((1, entry))


def part(entry: int, left: int, size: int = 4) -> AckedEntry:
    return AckedEntry((1, entry), (left,), size)


def acked(*entries: tuple[TxnId, AckedEntry]) -> PendingAcks:
    pending = PendingAcks("t][s", nothing)
    for txn, entry in entries:
        pending.acknowledge(txn, [entry])
    return pending


@pytest.mark.parametrize(
    ("before", "then", "conflict"),
    [
        ([(A, whole(1))], (B, whole(1)), True),
        ([(A, whole(1))], (A, whole(1)), True),
        ([(A, whole(1))], (A, part(1, 0b1110)), True),
        ([(A, whole(1))], (B, whole(2)), False),
        ([(A, whole(1))], (B, part(1, 0b1110)), True),
        ([(A, part(1, 0b1110))], (B, part(1, 0b1101)), False),
        ([(A, part(1, 0b1110))], (B, part(1, 0b1100)), True),
        ([(A, part(1, 0b1110))], (B, whole(1)), True),
        ([(A, part(1, 0b1110))], (A, part(1, 0b1110)), True),
        ([(A, part(1, 0b1110))], (A, part(1, 0b1100)), False),
        ([(A, part(1, 0b1110))], (A, whole(1)), False),
        ([(A, part(1, 0b1110)), (A, part(1, 0b0001))], (B, part(1, 0b0111)), True),
    ],
)
def test_message_cannot_be_acknowledged_twice_in_open_transactions(
    before: Sequence[tuple[TxnId, AckedEntry]], then: tuple[TxnId, AckedEntry], conflict: bool
) -> None:
    pending = acked(*before)
    text = pending.to_text()
    if conflict:
        with pytest.raises(TransactionConflict, match="in pending ack status"):
            pending.acknowledge(then[0], [whole(9), then[1]])
        assert pending.to_text() == text
    else:
        pending.acknowledge(then[0], [then[1]])


@pytest.mark.parametrize(
    ("first", "second", "conflict"),
    [
        (whole(1), whole(1), True),
        (part(1, 0b1110), part(1, 0b1110), True),
        (part(1, 0b1110), part(1, 0b1101), False),
    ],
)
def test_one_acknowledgement_cannot_name_a_message_twice(
    first: AckedEntry, second: AckedEntry, conflict: bool
) -> None:
    pending = acked()
    if conflict:
        with pytest.raises(TransactionConflict, match="in pending ack status"):
            pending.acknowledge(A, [first, second])
        assert not pending.transactions()
    else:
        pending.acknowledge(A, [first, second])


def test_acknowledged_message_conflicts() -> None:
    with pytest.raises(TransactionConflict, match="already acked before"):
        PendingAcks("t][s", lambda key: 0 if key == (1, 1) else -1).acknowledge(A, [whole(1)])


@pytest.mark.parametrize(
    ("wanted", "conflict"),
    [(part(1, 0b1110), True), (part(1, 0b1100), True), (whole(1), True), (part(1, 0b1101), False)],
)
def test_message_of_a_batch_conflicts_when_an_earlier_transaction_committed_it(
    wanted: AckedEntry, conflict: bool
) -> None:
    pending = PendingAcks("t][s", lambda key: 0b1110)
    if conflict:
        with pytest.raises(TransactionConflict, match="already acked before"):
            pending.acknowledge(A, [wanted])
        assert not pending.transactions()
    else:
        pending.acknowledge(A, [wanted])


def test_entry_is_covered_when_committed_and_pending_messages_make_up_the_batch() -> None:
    pending = PendingAcks("t][s", lambda key: 0b1110)
    pending.acknowledge(A, [part(1, 0b0001)])
    assert pending.covers((1, 1))
    pending.end(A)
    assert not pending.covers((1, 1))


def test_individual_acknowledgement_conflicts_within_a_batch_of_a_cumulative_one() -> None:
    pending = PendingAcks("t][s", nothing)
    pending.acknowledge_cumulative(A, part(5, 0b1100), START)
    with pytest.raises(TransactionConflict, match="in pending ack status"):
        pending.acknowledge(B, [part(5, 0b1101)])
    pending.acknowledge(B, [part(5, 0b1011)])


@pytest.mark.parametrize("held", [whole(3), part(3, 0b1110), part(5, 0b1110)])
def test_cumulative_acknowledgement_conflicts_when_another_transaction_holds_a_message(
    held: AckedEntry,
) -> None:
    pending = acked((A, held), (A, whole(9)))
    with pytest.raises(TransactionConflict, match="past a message in pending ack status"):
        pending.acknowledge_cumulative(B, part(5, 0b1100), START)
    pending.acknowledge_cumulative(B, whole(2), START)
    pending.acknowledge_cumulative(B, whole(2), START)


def test_cumulative_acknowledgement_conflicts_when_its_messages_of_the_batch_are_committed() -> None:
    pending = PendingAcks("t][s", lambda key: 0b1100)
    with pytest.raises(TransactionConflict, match="markDeletePosition"):
        pending.acknowledge_cumulative(B, part(5, 0b1110), START)
    pending.acknowledge_cumulative(B, part(5, 0b1000), START)


def test_cumulative_acknowledgement_keeps_the_higher_message_of_one_batch() -> None:
    pending = PendingAcks("t][s", nothing)
    pending.acknowledge_cumulative(A, part(5, 0b1000), START)
    pending.acknowledge_cumulative(A, part(5, 0b1110), START)
    ended = pending.end(A)
    assert ended is not None
    assert ended.through == part(5, 0b1000)


def test_covered_entries_are_those_without_a_message_left() -> None:
    pending = acked((A, whole(1)), (A, part(2, 0b1100)), (B, part(2, 0b0011)), (A, part(3, 0b1000)))
    assert [pending.covers((1, entry)) for entry in range(1, 5)] == [True, True, False, False]
    assert pending.left == {(1, 2): 0, (1, 3): 0b1000}


def test_parts_of_one_transaction_add_up_to_the_whole_entry() -> None:
    pending = acked((A, part(1, 0b1100)), (A, part(1, 0b0011)))
    ended = pending.end(A)
    assert ended is not None
    assert ended.whole_keys == [(1, 1)]
    assert not ended.parts


def test_end_returns_and_releases_what_the_transaction_has() -> None:
    pending = acked((A, whole(1)), (A, part(2, 0b1110)), (B, part(2, 0b1101)))
    ended = pending.end(A)
    assert ended is not None
    assert (ended.whole_keys, ended.parts) == ([(1, 1)], {(1, 2): (0b1110, 4)})
    assert pending.left == {(1, 2): 0b1101}
    pending.acknowledge(B, [whole(1)])
    assert pending.end(A) is None


@pytest.mark.parametrize(
    ("txn", "through", "mark_delete", "conflict"),
    [
        (A, 5, START, False),
        (A, 6, START, False),
        (A, 4, START, True),
        (B, 6, START, True),
        (A, 6, Position(1, 6), True),
    ],
)
def test_cumulative_acknowledgement_belongs_to_one_transaction(
    txn: TxnId, through: int, mark_delete: Position, conflict: bool
) -> None:
    pending = PendingAcks("t][s", nothing)
    pending.acknowledge_cumulative(A, whole(5), START)
    assert pending.covers((1, 5))
    assert not pending.covers((1, 6))
    if conflict:
        with pytest.raises(TransactionConflict):
            pending.acknowledge_cumulative(txn, whole(through), mark_delete)
    else:
        pending.acknowledge_cumulative(txn, whole(through), mark_delete)
        ended = pending.end(txn)
        assert ended is not None
        assert ended.through == whole(through)
        pending.acknowledge_cumulative(B, whole(1), START)


def test_text_restores_everything() -> None:
    pending = acked((A, whole(1)), (A, whole(2)), (A, whole(4)), (B, part(7, 0b1010)))
    pending.acknowledge_cumulative(A, AckedEntry((1, 3), (-4, 1), 90), START)
    restored = PendingAcks("t][s", nothing)
    restored.restore(pending.to_text())
    assert restored.to_text() == pending.to_text()
    assert restored.left == pending.left
    assert len(restored) == len(pending)
    assert [restored.covers((1, entry)) for entry in range(8)] == [
        pending.covers((1, entry)) for entry in range(8)
    ]


def test_huge_batch_size_of_a_client_costs_no_memory() -> None:
    assert AckedEntry((1, 1), (1,), 2**31 - 1).size <= BATCH_MAX


def test_text_restores_a_batch_of_many_thousand_messages() -> None:
    words = (-1,) * 300
    pending = acked((A, AckedEntry((1, 1), words, 20_000)))
    restored = PendingAcks("t][s", nothing)
    restored.restore(pending.to_text())
    ended = restored.end(A)
    assert ended is not None
    assert ended.parts == {(1, 1): ((1 << 64 * 300) - 1, 20_000)}
