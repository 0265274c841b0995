"""The states of a transaction at its coordinator, as data, and the records that change them.

    OPEN -> COMMITTING -> COMMITTED
    OPEN -> ABORTING   -> ABORTED

COMMITTING and ABORTING are decisions: once their record is durable the transaction ends so, whatever crashes.
COMMITTED and ABORTED are facts: every topic and subscription knows the end. `apply` is the only code that changes
transactions, live and when a log is read after a restart. Pure: no I/O, no clock.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from foundation.model.errors import InvalidTxnStatus, TransactionNotFound
from foundation.model.position import Position
from foundation.model.topic_name import parse_topic_name
from foundation.model.txn_id import TxnId


class TxnStatus(enum.IntEnum):
    """Pulsar's states of a transaction, with the numbers of its log."""

    OPEN = 0
    """Takes part in publishing and acknowledging."""
    COMMITTING = 1
    """Will be committed; topics and subscriptions are being told."""
    COMMITTED = 2
    """Is committed everywhere."""
    ABORTING = 3
    """Will be aborted; topics and subscriptions are being told."""
    ABORTED = 4
    """Is aborted everywhere."""


NEXT: Final[Mapping[TxnStatus, frozenset[TxnStatus]]] = MappingProxyType(
    {
        TxnStatus.OPEN: frozenset((TxnStatus.COMMITTING, TxnStatus.ABORTING)),
        TxnStatus.COMMITTING: frozenset((TxnStatus.COMMITTED,)),
        TxnStatus.ABORTING: frozenset((TxnStatus.ABORTED,)),
        TxnStatus.COMMITTED: frozenset(),
        TxnStatus.ABORTED: frozenset(),
    }
)
"""The states that may follow each state."""

ENDED: Final = frozenset((TxnStatus.COMMITTED, TxnStatus.ABORTED))
"""States after which a coordinator forgets the transaction."""

Subscribed = tuple[str, str]
"""(full topic name, subscription)"""


class Begun(NamedTuple):
    """The transaction exists from here on."""

    timeout_ms: int
    """Time until it is aborted."""
    started_ms: int
    """When it began, in milliseconds since 1970."""
    owner: str | None = None
    """Role that began it; None without authentication, and in records of older versions."""


class PartitionsAdded(NamedTuple):
    """The transaction publishes to these topics."""

    topics: tuple[str, ...]
    """Valid topic names as the client wrote them."""


class SubscriptionsAdded(NamedTuple):
    """The transaction acknowledges on these subscriptions."""

    subscriptions: tuple[Subscribed, ...]
    """Topics, named likewise, and subscriptions."""


class StatusChanged(NamedTuple):
    """The transaction enters another state."""

    status: TxnStatus
    """The new state."""


Change = Begun | PartitionsAdded | SubscriptionsAdded | StatusChanged
"""One record of a coordinator's log, without the id of its transaction."""


@dataclass(slots=True, kw_only=True)
class Transaction:
    """One transaction as its coordinator knows it."""

    txn: TxnId
    """Its identity."""
    timeout_ms: int
    """Time from the start to the abort."""
    started_ms: int
    """Milliseconds since 1970."""
    owner: str | None = None
    """Role that began it and alone may use it, besides superusers; every role may if it is None."""
    status: TxnStatus = TxnStatus.OPEN
    """Changed by `apply` alone."""
    topics: dict[str, str] = field(default_factory=dict)
    """Full names of topics that it publishes to, in the order of their first mention, with the names as the client wrote
    them, which the admin API shows."""
    subscriptions: dict[Subscribed, str] = field(default_factory=dict)
    """Topics and subscriptions that it acknowledges on, likewise."""
    records: list[Position] = field(default_factory=list)
    """Positions of its records in the log."""


def check_change(known: Mapping[TxnId, Transaction], txn: TxnId, change: Change) -> None:
    """Raises TransactionNotFound or InvalidTxnStatus for a change that the transaction's state does not allow."""
    transaction = known.get(txn)
    if isinstance(change, Begun):
        assert transaction is None, f"transaction {txn} begins twice"
        return
    if transaction is None:
        # Pulsar's text, blanks included, as recorded of 4.2.4.
        raise TransactionNotFound(f"The transaction with this txdID `{txn}`not found ")
    if isinstance(change, StatusChanged):
        allowed = change.status in NEXT[transaction.status]
    else:
        allowed = transaction.status is TxnStatus.OPEN
    if not allowed:
        raise InvalidTxnStatus(
            f"Expect Txn `{txn}` to be in {_needed(change).name} status but it is in {transaction.status.name} status"
        )


def _needed(change: Change) -> TxnStatus:
    if isinstance(change, StatusChanged):
        return next(status for status, following in NEXT.items() if change.status in following)
    return TxnStatus.OPEN


def apply(known: dict[TxnId, Transaction], txn: TxnId, change: Change, position: Position) -> Transaction:
    """Applies a durable change, which `check_change` has allowed, and returns its transaction."""
    if isinstance(change, Begun):
        known[txn] = Transaction(
            txn=txn, timeout_ms=change.timeout_ms, started_ms=change.started_ms, owner=change.owner
        )
    transaction = known[txn]
    transaction.records.append(position)
    if isinstance(change, PartitionsAdded):
        transaction.topics.update({_full(name): name for name in change.topics})
    elif isinstance(change, SubscriptionsAdded):
        named = change.subscriptions
        transaction.subscriptions.update({(_full(name), subscription): name for name, subscription in named})
    elif isinstance(change, StatusChanged):
        transaction.status = change.status
    return transaction


def _full(name: str) -> str:
    return str(parse_topic_name(name))
