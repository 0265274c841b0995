"""FollowedReads: the storage reads of a source that another broker writes.

That broker may have offloaded a ledger and deleted it from the bookies, or replaced or removed its copy, while this one
cannot read the list. So an error alone proves no loss here: the list must show, after the error, what the read went by.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from broker.managed_ledger.ledger_context import LedgerContext
from broker.managed_ledger.ledger_list import OffloadContext
from broker.managed_ledger.storage_reads import StorageReads
from foundation.model.entry import Entry
from foundation.model.errors import LOST_ENTRY, BrokerError, PersistenceError

IsListed = Callable[[int, OffloadContext | None], Awaitable[bool]]
"""Reads the list; returns whether it has the ledger, with this copy. Raises BrokerError."""


class FollowedReads(StorageReads):
    """Turns a loss that the list does not confirm into a failure that readers try again."""

    __slots__ = ("_is_listed",)

    def __init__(self, context: LedgerContext, is_listed: IsListed) -> None:
        super().__init__(context)
        self._is_listed = is_listed

    def ask_ledger(
        self,
        ledger_id: int,
        first: int,
        last: int,
        done: Callable[[list[Entry], BrokerError | None], None],
    ) -> None:
        """Reads one batch; `done` is called in a later loop turn."""
        info = self._context.ledgers.get(ledger_id)
        offload = None if info is None else info.offload

        def ended(entries: list[Entry], error: BrokerError | None) -> None:
            if isinstance(error, LOST_ENTRY):
                self._context.background.spawn(self._judge(ledger_id, offload, error, partial(done, entries)))
            else:
                done(entries, error)

        super().ask_ledger(ledger_id, first, last, ended)

    async def _judge(
        self,
        ledger_id: int,
        offload: OffloadContext | None,
        error: BrokerError,
        done: Callable[[BrokerError], None],
    ) -> None:
        try:
            if not await self._is_listed(ledger_id, offload):
                error = PersistenceError(f"{error}; the source's list of ledgers has changed")
        except BrokerError as unread:
            error = PersistenceError(f"{error}; the source's list of ledgers cannot be read now: {unread}")
        done(error)
