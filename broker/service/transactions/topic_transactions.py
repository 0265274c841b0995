"""TopicTransactions: which entries of one topic its readers see while transactions publish and acknowledge.

    SEND in a transaction   an ordinary entry; readers stop before the first one whose transaction is open
    commit, abort           a marker after them, in Pulsar's format, which no reader gets
    aborted                 entries that cursors acknowledge instead of delivering them

The state is that of `TransactionBuffer`, fed with every confirmed entry. A cursor of its own keeps snapshots of it: the
mark-delete position says how far a snapshot reaches, a property has the transactions. Opening the topic reads the
entries after that position only. The cursor exists from the first transaction on; topics without it pay nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from broker.managed_ledger.ledger_context import Divided
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.managed_ledger.records.pulsar_records import PREFIX
from broker.service.entry_facts import facts_of
from broker.service.internal_cursors import TRANSACTIONS_CURSOR
from broker.service.ports import Sends, SinglePort
from broker.service.settings import ServiceSettings
from broker.service.transactions.coordinators import Coordinators
from broker.service.transactions.log_reading import entries_after
from broker.service.transactions.pending_acks import PendingAcks
from broker.service.transactions.transaction_buffer import TransactionBuffer
from foundation.loop.clock import CallLater
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError, NotAllowed, TopicTerminated
from foundation.model.position import LATEST, Position
from foundation.model.topic_name import TopicName
from foundation.model.txn_id import TxnId
from protocol.frame import message_body
from protocol.message_metadata import TXN_ABORT, TXN_COMMIT
from protocol.pulsar_api_pb2 import MessageMetadata

log = logging.getLogger("magnetar")

_BUFFER: Final = f"{PREFIX}transactions"
"""The cursor's property with the state of the buffer."""
_FORMER_BUFFER: Final = "transactions"
"""The name of that property up to 0.2.0."""
MARKER_PRODUCER: Final = "pulsar.txn.marker"
"""Pulsar's name of the producer in markers."""
_NONE_PENDING: Final[Mapping[str, PendingAcks]] = MappingProxyType({})
_NO_SEQUENCE_ID: Final = 2**64 - 1
"""Pulsar's sequence id of markers, -1."""


class TopicTransactions:
    """The view of one topic's cursors, and the end of transactions on it."""

    __slots__ = (
        "_call_later",
        "_entries_since",
        "_ledger",
        "_readable",
        "_settings",
        "_timer",
        "buffer",
        "closed",
        "last_snapshot_ms",
        "pending",
        "recovery_ms",
        "states",
        "topic",
    )

    def __init__(
        self,
        topic: TopicName,
        ledger: ManagedLedger,
        settings: ServiceSettings,
        *,
        call_later: CallLater,
    ) -> None:
        """Costs the topic nothing before `open_buffer`, `recover` or `watch` is called."""
        self.topic = topic
        """Full name."""
        self.buffer: TransactionBuffer | None = None
        """None until a transaction publishes to the topic."""
        self.pending: Mapping[str, PendingAcks] = _NONE_PENDING
        """Acknowledgements of open transactions, by cursor name; `watch` and `unwatch` change it."""
        self.closed = False
        """Takes no more snapshots."""
        self.recovery_ms: tuple[int, int] = (0, 0)
        """When reading the log for the buffer began and ended, in milliseconds since 1970; 0 without a buffer."""
        self.last_snapshot_ms = 0
        """When the last snapshot was taken since the topic was opened, likewise."""
        self._ledger = ledger
        self._settings = settings
        self.states: Coordinators | None = None
        """The coordinators; None while the broker runs without them, so nothing can end here."""
        self._call_later = call_later
        self._readable: Position | None = None
        self._entries_since = 0
        self._timer = False

    # Opening

    async def open_buffer(self) -> None:
        """Lets transactions publish from now on. Raises MetadataError, and may then be tried again."""
        if self.buffer is None:
            await self._ledger.cursors.open(TRANSACTIONS_CURSOR, LATEST)
            # Another request may have come first while this waited.
            self.buffer = self.buffer or TransactionBuffer()
            self.recovery_ms = (self._ledger.environment.wall_ms(),) * 2
            self._ledger.context.view = self

    def watch(self, cursor_name: str, pending: PendingAcks) -> None:
        """Lets a cursor pass over what open transactions have acknowledged on its subscription."""
        self.pending = {**self.pending, cursor_name: pending}
        self._ledger.context.view = self

    def unwatch(self, cursor_name: str) -> None:
        """Forgets the acknowledgements of a subscription that is closed."""
        self.pending = {name: pending for name, pending in self.pending.items() if name != cursor_name}

    async def recover(self) -> None:
        """Restores the state from the last snapshot and the entries after it. Raises as `Ledgers.read`."""
        cursor = self._ledger.cursors.by_name[TRANSACTIONS_CURSOR]
        await self.restore(cursor.store.cursor_properties, cursor.mark_delete_position)

    async def restore(self, texts: Mapping[str, str], through: Position) -> None:
        """Restores the state from the texts of a cursor, which tell of all entries up to `through`."""
        wall_ms = self._ledger.environment.wall_ms
        began_ms = wall_ms()
        buffer = stored_buffer(texts)
        async for entry in entries_after(self._ledger, through):
            buffer.entry(entry.position, facts_of(entry))
        if self.states is not None:
            undecided = [txn for txn in buffer.open if self.states.is_undecided(txn)]
            for txn in buffer.abort_unknown(undecided, self._ledger.last_confirmed):
                log.warning(
                    "! %s: transaction %s is aborted, its coordinator does not know it", self.topic, txn
                )
        elif buffer.open:
            log.warning(
                "! %s: %d open transactions hold back its readers; transactionCoordinatorEnabled=true ends them",
                self.topic,
                len(buffer.open),
            )
        self.buffer = buffer
        self.recovery_ms = began_ms, wall_ms()
        self._ledger.context.view = self
        self._find_readable()

    # Publishing

    def admit(self, txn: TxnId) -> None:
        """Raises NotAllowed unless the transaction is open and has named the topic."""
        if self.buffer is None or self.states is None or not self.states.publishes(txn, str(self.topic)):
            raise NotAllowed(f"Transaction {txn} is not open on {self.topic}; add the topic to it first")

    def entries_added(self, entries: list[Entry]) -> None:
        """Takes note of confirmed entries; called once per run, before any reader is woken."""
        buffer = self.buffer
        if buffer is None:
            return
        for entry in entries:
            buffer.entry(entry.position, facts_of(entry))
        self._find_readable()
        self._entries_since += len(entries)
        if self._entries_since >= self._settings.transaction_snapshot_entries:
            self.take_snapshot()
        elif not self._timer:
            self._timer = True
            self._call_later(self._settings.transaction_snapshot_ms / 1000, self._snapshot_due)

    def _find_readable(self) -> None:
        first = None if self.buffer is None else self.buffer.first_open
        self._readable = None if first is None else self._ledger.ledgers.previous(first)

    def _snapshot_due(self) -> None:
        self._timer = False
        if self._entries_since:
            self.take_snapshot()

    def take_snapshot(self) -> None:
        """Keeps the state as of the last confirmed entry with the cursor; stored soon."""
        if self.closed or self.buffer is None:
            return
        self._entries_since = 0
        self.last_snapshot_ms = self._ledger.environment.wall_ms()
        cursor = self._ledger.cursors.by_name[TRANSACTIONS_CURSOR]
        self.buffer.forget_before(self._ledger.ledgers.first().ledger_id)
        # Before the position: one write has both, and a state that reaches further than the position is complete too.
        cursor.store.keep_properties({_BUFFER: self.buffer.to_text()})
        cursor.acknowledge_cumulative(self._ledger.last_confirmed)

    def close(self) -> None:
        """Keeps a last snapshot; the topic's log stores it when it closes."""
        if self._entries_since:
            self.take_snapshot()
        self.closed = True

    # Ending

    async def end(self, txn: TxnId, wall_ms: int, *, commit: bool) -> None:
        """Writes the marker and returns when it is durable. Raises BrokerError; asking again is allowed."""
        if self.buffer is None:
            return
        try:
            await self._write_marker(txn, wall_ms, commit=commit)
        except TopicTerminated:
            # No marker can follow the last entry, so the snapshot alone says how the transaction ended.
            self.buffer.end(txn, self._ledger.last_confirmed, commit=commit)
            self._find_readable()
            self.take_snapshot()
            await self._ledger.cursors.by_name[TRANSACTIONS_CURSOR].store.flush()

    async def _write_marker(self, txn: TxnId, wall_ms: int, *, commit: bool) -> None:
        metadata = MessageMetadata(
            producer_name=MARKER_PRODUCER,
            sequence_id=_NO_SEQUENCE_ID,
            publish_time=wall_ms,
            marker_type=TXN_COMMIT if commit else TXN_ABORT,
            txnid_most_bits=txn.most,
            txnid_least_bits=txn.least,
        )
        body = message_body(metadata, b"")
        port = MarkerPort()
        sends = Sends()
        sends.port, sends.producer_name, sends.encrypted = port, MARKER_PRODUCER, False
        sends.bodies, sends.size, sends.messages = [body], len(body), 1
        # So that deduplication learns nothing from it.
        sends.sequence_id = sends.highest_sequence_id = -1
        sends.chunk = sends.delayed = False
        self._ledger.writer.add(sends.bodies, 1, sends)
        await port.outcome

    def over(self, pending: PendingAcks) -> list[TxnId]:
        """Returns transactions with pending acknowledgements that their coordinator does not know any more."""
        states = self.states
        if states is None:
            return []
        return [txn for txn in pending.transactions() if not states.is_undecided(txn)]

    # The view of cursors

    def last_readable(self, last_confirmed: Position) -> Position:
        """Returns the last position before the first open transaction."""
        return last_confirmed if self._readable is None else self._readable

    def divide(self, cursor_name: str, taken: list[Entry]) -> Divided:
        """Divides entries that were read into those to send, those of open transactions, and those of aborted ones."""
        acks, buffer = self.pending.get(cursor_name), self.buffer
        shown: list[Entry] = []
        left_out: list[Entry] = []
        dead: list[tuple[int, int]] = []
        for entry in taken:
            key = (entry.ledger_id, entry.entry_id)
            if buffer is not None and buffer.hides(facts_of(entry)):
                dead.append(key)
                left_out.append(entry)
            elif acks is not None and acks.covers(key):
                left_out.append(entry)
            else:
                shown.append(entry)
        return Divided(shown, left_out, dead)


def stored_buffer(texts: Mapping[str, str]) -> TransactionBuffer:
    """Returns the state that the texts of a cursor have."""
    return TransactionBuffer.of_text(texts.get(_BUFFER) or texts.get(_FORMER_BUFFER, ""))


class MarkerPort(SinglePort):
    """The port of the producer of one marker: it waits for the receipt."""

    def __init__(self) -> None:
        self.outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the marker is durable, or failed."""

    def receipt(
        self, sequence_id: int, highest_sequence_id: int, ledger_id: int, entry_id: int, size: int
    ) -> None:
        """The marker is durable."""
        if not self.outcome.done():
            self.outcome.set_result(None)

    def refused(self, sequence_id: int, highest_sequence_id: int, size: int, error: BrokerError) -> None:
        """The marker is not stored; the coordinator asks again."""
        if not self.outcome.done():
            self.outcome.set_exception(error)

    def pause(self) -> None:
        """Does nothing: a marker waits for no publish rate."""

    def go_on(self) -> None:
        """Does nothing, for the same reason as `pause`."""

    def ready(self, topic_epoch: int | None) -> None:
        """Does nothing: a producer with shared access is ready at once."""

    def failed(self, error: BrokerError) -> None:
        """Does nothing: only a producer that waits for exclusive access can fail."""

    def closed_by_broker(self) -> None:
        """Does nothing: each marker has a producer of its own."""
