"""Describes transactions under Pulsar's names, as `/admin/v3/transactions` answers them. Pure: reads, changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from broker.service.subscriptions.subscription import Subscription
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic import Topic
from broker.service.transactions.coordinator import Coordinator
from broker.service.transactions.transaction_states import Transaction, TxnStatus
from foundation.model.position import Position
from foundation.model.txn_id import TxnId
from foundation.value import Json


def coordinator_stats(coordinator: Coordinator) -> dict[str, Json]:
    """Returns the body of `coordinatorStats` for one coordinator."""
    began_ms, ended_ms = coordinator.recovery_ms
    return {
        "state": "Ready" if ended_ms else "Initializing",
        "leastSigBits": coordinator.newest,
        "lowWaterMark": coordinator.low_water_mark,
        "ongoingTxnSize": coordinator.active,
        "recoverStartTime": began_ms,
        "recoverEndTime": ended_ms,
    }


def slow(coordinator: Coordinator, timeout_ms: int) -> Iterator[Transaction]:
    """Yields the open transactions whose time-out is longer."""
    for known in coordinator.transactions.values():
        if known.status is TxnStatus.OPEN and known.timeout_ms > timeout_ms:
            yield known


def transaction_metadata(known: Transaction, topics: Mapping[str, Topic]) -> dict[str, Json]:
    """Returns the body of `transactionMetadata`. `topics` are the open ones; one that is not open shows nothing."""
    produced: dict[str, Json] = {}
    for name, shown in known.topics.items():
        topic = topics.get(name)
        produced[shown] = {"aborted": False}
        if isinstance(topic, PersistentTopic):
            produced[shown] = in_buffer_stats(topic, known.txn)
    acked: dict[str, dict[str, Json]] = {}
    for (name, subscription_name), shown in known.subscriptions.items():
        topic = topics.get(name)
        subscription = (
            topic.subscriptions.get(subscription_name) if isinstance(topic, PersistentTopic) else None
        )
        stats = {} if subscription is None else in_pending_ack_stats(subscription, known.txn)
        acked.setdefault(shown, {})[subscription_name] = stats
    return {
        "txnId": str(known.txn),
        "status": known.status.name,
        "openTimestamp": known.started_ms,
        # A duration in ms, not a timestamp: Pulsar answers this too.
        "timeoutAt": known.timeout_ms,
        "producedPartitions": produced,
        "ackedPartitions": {**acked},
        **({} if known.owner is None else {"owner": known.owner}),
    }


def in_buffer_stats(topic: PersistentTopic, txn: TxnId) -> dict[str, Json]:
    """Returns the state of a transaction on a topic; `startPosition` while it is open there."""
    buffer = topic.transactions.buffer
    if buffer is None:
        return {"aborted": False}
    start = buffer.open.get(txn)
    aborted: dict[str, Json] = {"aborted": txn in buffer.aborted}
    return aborted if start is None else {"startPosition": _text(start), **aborted}


def in_pending_ack_stats(subscription: Subscription, txn: TxnId) -> dict[str, Json]:
    """Returns the position of the transaction's cumulative acknowledgement, {} without one, as in Pulsar."""
    if subscription.transactional is None:
        return {}
    through = subscription.transactional.pending.cumulative_of(txn)
    return {} if through is None else {"cumulativeAckPosition": _text(Position(*through))}


def buffer_stats(topic: PersistentTopic, by_number: Mapping[int, Coordinator] | None) -> dict[str, Json]:
    """Returns the body of `transactionBufferStats`; with coordinators, their low water marks too."""
    transactions = topic.transactions
    buffer, (began_ms, ended_ms) = transactions.buffer, transactions.recovery_ms
    known = set() if buffer is None else {*buffer.open, *buffer.aborted}
    stats: dict[str, Json] = {
        # Pulsar's state of a topic that no transaction has published to.
        "state": "NoSnapshot" if buffer is None else "Ready",
        "maxReadPosition": _text(transactions.last_readable(topic.ledger.last_confirmed)),
        "lastSnapshotTimestamps": transactions.last_snapshot_ms,
        "ongoingTxnSize": 0 if buffer is None else len(buffer.open),
        "recoverStartTime": began_ms,
        "recoverEndTime": ended_ms,
        "totalAbortedTransactions": 0 if buffer is None else len(buffer.aborted),
        "snapshotType": "Single",
    }
    return stats if by_number is None else {**stats, "lowWaterMarks": _low_water_marks(known, by_number)}


def pending_ack_stats(
    subscription: Subscription, by_number: Mapping[int, Coordinator] | None
) -> dict[str, Json]:
    """Returns the body of `pendingAckStats`; with coordinators, their low water marks too."""
    transactional = subscription.transactional
    known = [] if transactional is None else transactional.pending.transactions()
    opened_ms = 0 if transactional is None else transactional.opened_ms
    stats: dict[str, Json] = {
        "state": "None" if transactional is None else "Ready",
        "ongoingTxnSize": len(known),
        "recoverStartTime": opened_ms,
        "recoverEndTime": opened_ms,
    }
    return stats if by_number is None else {**stats, "lowWaterMarks": _low_water_marks({*known}, by_number)}


def position_state(subscription: Subscription, position: Position, batch_index: int | None) -> str:
    """Returns Pulsar's word for a message: acknowledged, pending in a transaction, or neither.

    InvalidPosition: the entry is pending, and the batch that was acknowledged has no such message.
    """
    if subscription.transactional is None:
        return "PendingAckNotReady"
    if position <= subscription.cursor.mark_delete_position:
        return "MarkDelete"
    return subscription.transactional.pending.state_of((position.ledger_id, position.entry_id), batch_index)


def _low_water_marks(known: set[TxnId], by_number: Mapping[int, Coordinator]) -> dict[str, Json]:
    numbers = sorted({txn.most for txn in known} & by_number.keys())
    return {str(number): by_number[number].low_water_mark for number in numbers}


def _text(position: Position) -> str:
    return f"{position.ledger_id}:{position.entry_id}"
