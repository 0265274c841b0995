"""CoordinatorLog: the records of one transaction coordinator, in a managed ledger of its own.

Names and format are Pulsar's: the managed ledger is `pulsar/system/persistent/__transaction_log_<number>`, its cursor
`transaction.subscription`, and an entry is a TransactionMetadataEntry. Records of transactions that are over are
acknowledged one by one; the managed ledger trims what the mark-delete position has passed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final, cast

from bookkeeper.ensembles.ledger_handle import Added
from bookkeeper.metadata.metadata_store import Lease
from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.managed_ledger.managed_cursor import ManagedCursor
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.managed_ledger.settings import ManagedLedgerSettings
from broker.service.transactions.log_reading import entries_after
from broker.service.transactions.transaction_states import (
    Begun,
    Change,
    PartitionsAdded,
    StatusChanged,
    SubscriptionsAdded,
    TxnStatus,
)
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError, PersistenceError
from foundation.model.position import EARLIEST, Position
from foundation.model.txn_id import TxnId
from protocol import transaction_log_pb2 as pb
from protocol.broker_entry_metadata import EntryStamp

LOGS_NAMESPACE: Final = "pulsar/system/persistent"
"""Path of all coordinators' logs in the metadata store."""
LOG_PREFIX: Final = "__transaction_log_"
"""Pulsar's name of a log, without the coordinator's number."""
LOG_CURSOR: Final = "transaction.subscription"
"""Pulsar's name of the cursor."""
NEWEST: Final = "max_local_txn_id"
"""Pulsar's property of a log: the highest number of a transaction at the last write of the list."""


class CoordinatorLog:
    """Appends and reads the records of a coordinator; a listener of its managed ledger."""

    def __init__(self, ledger: ManagedLedger, cursor: ManagedCursor, number: int) -> None:
        """Called by `open` alone."""
        self.ledger = ledger
        """The managed ledger. To look at only."""
        self._cursor = cursor
        self._number = number
        self.appended = 0
        """Records appended since the start."""
        ledger.context.listener = self

    @classmethod
    async def open(
        cls,
        number: int,
        environment: ManagedLedgerEnvironment,
        settings: ManagedLedgerSettings,
        lease: Lease | None = None,
    ) -> CoordinatorLog:
        """Opens the log of a coordinator, or makes a new one; `lease` as for a topic.

        Raises MetadataError or PersistenceError.
        """
        stamp = EntryStamp(timestamp=False, index=False, now_ms=environment.wall_ms)
        ledger = await ManagedLedger.open(
            f"{LOGS_NAMESPACE}/{LOG_PREFIX}{number}", environment, settings, stamp=stamp, lease=lease
        )
        log = cls(ledger, await ledger.cursors.open(LOG_CURSOR, EARLIEST), number)
        log._set_newest(log.newest)
        return log

    @property
    def newest(self) -> int:
        """The highest number that the list knows, -1 without one. A broker of Apache's may leave no record of it."""
        text = self.ledger.properties.get(NEWEST, "")
        return int(text) if text.isdecimal() else -1

    def _set_newest(self, number: int) -> None:
        """Has the next write of the list store it."""
        self.ledger.store.properties = {**self.ledger.properties, NEWEST: str(number)}

    async def read(self) -> AsyncIterator[tuple[TxnId, Change, Position]]:
        """Yields the records that are not acknowledged, in order."""
        acks = self._cursor.acks
        async for entry in entries_after(self.ledger, self._cursor.mark_delete_position):
            if not acks.is_acknowledged(entry.position):
                txn, change = decode(bytes(entry.body))
                yield txn, change, entry.position

    async def append(self, txn: TxnId, change: Change, now_ms: int) -> Position:
        """Writes a record; durable when this returns. PersistenceError: it is not stored."""
        answer: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
        self.ledger.writer.add([encode(txn, change, now_ms)], 1, answer)
        self.appended += 1
        position = await answer
        if isinstance(change, Begun):
            self._set_newest(max(self.newest, txn.least))
        return position

    def forget(self, positions: Iterable[Position]) -> None:
        """Acknowledges the records of a transaction that is over."""
        self._cursor.acknowledge(positions)

    async def close(self) -> None:
        """Closes the managed ledger. Raises MetadataError."""
        await self.ledger.close()

    # Called by the managed ledger

    def entries_added(self, entries: list[Entry], added: list[Added], now_ns: int) -> None:
        """Answers the appends of these records, each of which was an add."""
        for entry, (context, _, _) in zip(entries, added, strict=True):
            answer = cast("asyncio.Future[Position]", context)
            if not answer.done():
                answer.set_result(entry.position)

    def add_failed(self, added: list[Added], error: BrokerError) -> None:
        """Fails the appends of these records."""
        for context, _, _ in added:
            answer = cast("asyncio.Future[Position]", context)
            if not answer.done():
                answer.set_exception(PersistenceError(f"Transaction log {self._number}: {error}"))

    def taken_over(self) -> None:
        """Does nothing: records that are not forgotten are read again, and the next append is refused."""


_BEFORE: Final = {
    TxnStatus.COMMITTING: TxnStatus.OPEN,
    TxnStatus.ABORTING: TxnStatus.OPEN,
    TxnStatus.COMMITTED: TxnStatus.COMMITTING,
    TxnStatus.ABORTED: TxnStatus.ABORTING,
}


def encode(txn: TxnId, change: Change, now_ms: int) -> bytes:
    """Returns the bytes of a record, as Pulsar writes them."""
    record = pb.TransactionMetadataEntry(
        txnid_least_bits=txn.least,
        txnid_most_bits=txn.most,
        last_modification_time=now_ms,
        max_local_txn_id=txn.least,
    )
    if isinstance(change, Begun):
        record.metadata_op = pb.TransactionMetadataEntry.NEW
        record.timeout_ms = change.timeout_ms
        record.start_time = change.started_ms
        if change.owner is not None:
            record.owner = change.owner
    elif isinstance(change, PartitionsAdded):
        record.metadata_op = pb.TransactionMetadataEntry.ADD_PARTITION
        record.partitions.extend(change.topics)
    elif isinstance(change, SubscriptionsAdded):
        record.metadata_op = pb.TransactionMetadataEntry.ADD_SUBSCRIPTION
        for topic, subscription in change.subscriptions:
            record.subscriptions.add(topic=topic, subscription=subscription)
    else:
        record.metadata_op = pb.TransactionMetadataEntry.UPDATE
        record.expected_status = pb.TxnStatus.ValueType(_BEFORE[change.status])
        record.new_status = pb.TxnStatus.ValueType(change.status)
    return record.SerializeToString()


def decode(body: bytes) -> tuple[TxnId, Change]:
    """Returns the transaction and its change."""
    record = pb.TransactionMetadataEntry.FromString(body)
    txn = TxnId(record.txnid_most_bits, record.txnid_least_bits)
    operation = record.metadata_op
    if operation == pb.TransactionMetadataEntry.NEW:
        owner = record.owner if record.HasField("owner") else None
        return txn, Begun(timeout_ms=record.timeout_ms, started_ms=record.start_time, owner=owner)
    if operation == pb.TransactionMetadataEntry.ADD_PARTITION:
        return txn, PartitionsAdded(tuple(record.partitions))
    if operation == pb.TransactionMetadataEntry.ADD_SUBSCRIPTION:
        return txn, SubscriptionsAdded(
            tuple((subscribed.topic, subscribed.subscription) for subscribed in record.subscriptions)
        )
    return txn, StatusChanged(TxnStatus(record.new_status))
