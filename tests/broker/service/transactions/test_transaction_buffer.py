"""TransactionBuffer: entries in, the first hidden position and the hidden entries out."""

from __future__ import annotations

from broker.service.transactions.transaction_buffer import TransactionBuffer
from foundation.model.position import Position
from foundation.model.txn_id import TxnId
from protocol.message_metadata import TXN_ABORT, TXN_COMMIT, MessageFacts
from protocol.pulsar_api_pb2 import MessageMetadata

A, B = TxnId(0, 1), TxnId(0, 2)


def facts(txn: TxnId | None = None, marker: int = 0) -> MessageFacts:
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    if txn is not None:
        metadata.txnid_most_bits, metadata.txnid_least_bits = txn
    if marker:
        metadata.marker_type = marker
    return MessageFacts(metadata)


def fed(*entries: MessageFacts | None, first: int = 0) -> TransactionBuffer:
    buffer = TransactionBuffer()
    for number, entry in enumerate(entries, first):
        buffer.entry(Position(5, number), entry)
    return buffer


def test_oldest_open_transaction_decides_where_reading_stops() -> None:
    buffer = fed(facts(), facts(A), facts(B), facts(A))
    assert buffer.first_open == (5, 1)
    buffer.entry(Position(5, 4), facts(A, TXN_COMMIT))
    assert buffer.first_open == (5, 2)
    buffer.entry(Position(5, 5), facts(B, TXN_ABORT))
    assert (buffer.open, buffer.commits, buffer.aborts) == ({}, 1, 1)


def test_entries_of_aborted_transactions_and_markers_are_hidden() -> None:
    buffer = fed(facts(A), facts(B), facts(A, TXN_ABORT), facts(B, TXN_COMMIT))
    assert buffer.hides(facts(A))
    assert not buffer.hides(facts(B))
    assert not buffer.hides(facts())
    assert not buffer.hides(None)
    assert buffer.hides(facts(A, TXN_ABORT))
    assert buffer.hides(facts(B, TXN_COMMIT))


def test_repeated_marker_changes_nothing() -> None:
    buffer = fed(facts(A), facts(A, TXN_COMMIT), facts(A, TXN_COMMIT))
    assert buffer.first_open is None
    assert not buffer.aborted
    assert buffer.commits == 1


def test_marker_of_unknown_transaction_is_ignored() -> None:
    assert not fed(facts(A, TXN_ABORT)).aborted


def test_snapshot_at_any_entry_leads_to_the_same_state() -> None:
    log = [facts(), facts(A), facts(B), facts(A, TXN_ABORT), None, facts(B), facts(B, TXN_COMMIT), facts()]
    whole = fed(*log)
    for cut in range(len(log) + 1):
        restored = TransactionBuffer.of_text(fed(*log[:cut]).to_text())
        # A write may have a state that reaches further than its position: entries are then fed twice.
        for again in (cut, max(0, cut - 1)):
            copy = TransactionBuffer.of_text(restored.to_text())
            for number, entry in enumerate(log[again:], again):
                copy.entry(Position(5, number), entry)
            if again == cut:
                assert (copy.open, copy.aborted) == (whole.open, whole.aborted)


def test_transactions_that_no_coordinator_knows_are_aborted() -> None:
    buffer = fed(facts(A), facts(B))
    assert buffer.abort_unknown([B], Position(5, 1)) == [A]
    assert buffer.hides(facts(A))
    assert buffer.first_open == (5, 1)


def test_aborted_transactions_are_forgotten_with_their_ledgers() -> None:
    buffer = fed(facts(A), facts(A, TXN_ABORT))
    buffer.forget_before(5)
    assert A in buffer.aborted
    buffer.forget_before(6)
    assert not buffer.aborted
