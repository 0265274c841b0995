"""SubscriptionTransactions: acknowledgements that transactions make on one subscription, kept with its cursor.

They are a property of the cursor's info, which also has the acknowledgements themselves. A commit therefore turns the
ones into the others in one write, and no crash can come in between. Acknowledgements of a loop turn share one write.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from broker.managed_ledger.acks import words_of
from broker.managed_ledger.managed_cursor import ManagedCursor
from broker.service.transactions.pending_acks import PROPERTY, AckedEntry, PendingAcks, TransactionAcks
from foundation.model.errors import MetadataError, TooManyRequests
from foundation.model.position import Position
from foundation.model.txn_id import TxnId

PENDING_MAX: Final = 100_000
"""Entries of one subscription that open transactions may have acknowledged; each write of the cursor has all."""


class SubscriptionTransactions:
    """The pending acknowledgements of one subscription."""

    __slots__ = ("_callbacks", "_cursor", "_save_due", "opened_ms", "pending")

    def __init__(self, topic: str, cursor: ManagedCursor) -> None:
        """Restores what the cursor has."""
        self.pending = PendingAcks(f"{topic}][{cursor.name}", lambda key: cursor.acks.left_of(key))
        """The acknowledgements; changed through this object."""
        self.opened_ms = cursor.context.environment.wall_ms()
        """When they were restored, or the first one was made, in milliseconds since 1970."""
        self._cursor = cursor
        self._save_due = False
        self._callbacks: list[Callable[[], None]] = []
        if text := cursor.store.cursor_properties.get(PROPERTY):
            self.pending.restore(text)
        cursor.acks.promised = self.pending.left

    def acknowledge(self, txn: TxnId, entries: Sequence[AckedEntry]) -> list[AckedEntry]:
        """Adds individual acknowledgements; returns those of existing entries. TransactionConflict, TooManyRequests."""
        self.check_room(len(entries))
        existing = self._published(entries)
        self.pending.acknowledge(txn, existing)
        self._save_soon()
        return existing

    def check(self, txn: TxnId, entries: Sequence[AckedEntry]) -> None:
        """Raises TransactionConflict when `acknowledge` would; changes nothing."""
        self.pending.check(txn, self._published(entries))

    def _published(self, entries: Sequence[AckedEntry]) -> list[AckedEntry]:
        has_entry, acks = self._cursor.context.ledgers.has_entry, self._cursor.acks
        # Positions come from clients and may be anything; those without an entry are ignored, as outside of transactions.
        # Trimmed entries have none, and are acknowledged: ignored, they would let a second transaction commit them.
        return [entry for entry in entries if has_entry(*entry.key) or acks.is_acknowledged(entry.key)]

    def acknowledge_cumulative(self, txn: TxnId, through: AckedEntry) -> None:
        """Acknowledges everything through a position. TransactionConflict, TooManyRequests."""
        self.check_room(1)
        self.pending.acknowledge_cumulative(txn, through, self._cursor.mark_delete_position)
        self._save_soon()

    def check_room(self, more: int) -> None:
        """Raises TooManyRequests when open transactions may not acknowledge so many more entries."""
        if len(self.pending) + more > PENDING_MAX:
            raise TooManyRequests(
                f"Open transactions have acknowledged {len(self.pending)} entries of this subscription, "
                f"{PENDING_MAX} at most are allowed; end some of them"
            )

    def when_kept(self, callback: Callable[[], None]) -> None:
        """Calls back when the acknowledgements so far are durable."""
        if self._save_due:
            self._callbacks.append(callback)
        else:
            self._cursor.store.on_durable(callback)

    def _save_soon(self) -> None:
        if not self._save_due:
            self._save_due = True
            self._cursor.context.environment.turn.dispatch(self._save)

    def _save(self, now_ns: int) -> None:
        self._keep()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            self._cursor.store.on_durable(callback)
        # Past the rate limit of acknowledgements: a client waits for the answer.
        self._cursor.context.background.spawn(self._flush())

    async def _flush(self) -> None:
        # A write that failed is tried again by the writer; the answers wait for that.
        with contextlib.suppress(MetadataError):
            await self._cursor.store.flush()

    def _keep(self) -> None:
        self._save_due = False
        properties = shown_properties(self._cursor.store.cursor_properties)
        if self.pending.transactions():
            properties[PROPERTY] = self.pending.to_text()
        self._cursor.store.keep_properties(properties)

    def end(self, txn: TxnId, *, commit: bool, batch_index_acks: bool) -> TransactionAcks | None:
        """Removes the acknowledgements of a transaction; with `commit` they are made. None without any.

        Without `batch_index_acks` those of parts of batches have no effect, as outside of transactions.
        `ManagedCursor.store.flush` makes it durable.
        """
        acks = self.pending.end(txn)
        if acks is None:
            return None
        # Before the acknowledgements and in the same call, so that one write has both.
        self._keep()
        if commit:
            self._apply(acks, batch_index_acks=batch_index_acks)
        return acks

    def _apply(self, acks: TransactionAcks, *, batch_index_acks: bool) -> None:
        cursor = self._cursor
        if acks.through is not None:
            words = tuple(acks.through.ack_set) if batch_index_acks else ()
            cursor.acknowledge_cumulative(Position(*acks.through.key), words or None)
        cursor.acknowledge(acks.whole_keys)
        if batch_index_acks:
            for key, (left, size) in sorted(acks.parts.items()):
                cursor.acknowledge_batch(Position(*key), words_of(left), size)


def shown_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns a subscription's properties without the one that keeps transactions."""
    return {name: value for name, value in properties.items() if name != PROPERTY}


def replaced_properties(before: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties that a client wants, with the transactions that were kept before."""
    kept = {PROPERTY: before[PROPERTY]} if PROPERTY in before else {}
    return {**shown_properties(wanted), **kept}
