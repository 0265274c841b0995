"""Reads that belong to no cursor: a look at a message, a search by time, deduplication, expiry."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from broker.managed_ledger.entry_read import EntryRead
from broker.managed_ledger.ledger_context import LedgerContext
from broker.managed_ledger.storage_reads import StorageReads
from broker.model.entry import Entry
from broker.model.errors import BrokerError, NoSuchEntry, NoSuchLedger
from broker.model.position import Position
from broker.model.range_set import EntryRange


class _AwaitedRead:
    """A ReadRequest of consecutive entries whose result is awaited."""

    __slots__ = ("_wanted", "answer", "reader")

    def __init__(self, context: LedgerContext, wanted: EntryRange) -> None:
        self._wanted = (wanted,)
        self.reader = context.single_reader
        """See ReadRequest."""
        self.answer: asyncio.Future[list[Entry]] = asyncio.get_running_loop().create_future()
        """The entries, or the error."""

    def ranges(self) -> Sequence[EntryRange]:
        """See ReadRequest."""
        return self._wanted

    def expected_reads(self) -> None:
        """See ReadRequest; no cursor is to read the entry, so it is not cached."""

    def read_ended(self, entries: list[Entry], error: BrokerError | None) -> None:
        """See ReadRequest."""
        if self.answer.done():  # The caller was cancelled.
            return
        if error is not None:
            self.answer.set_exception(error)
        else:
            self.answer.set_result(entries)


async def read_entry(context: LedgerContext, storage_reads: StorageReads, position: Position) -> Entry:
    """Return one entry; the cache is used and not filled.

    Raises NoSuchLedger, NoSuchEntry, PersistenceError, and TooManyRequests when too much is being read.
    """
    ledger_id, entry_id = position
    if ledger_id not in context.ledgers:
        raise NoSuchLedger(f"{context.name} has no ledger {ledger_id}")
    if not context.ledgers.has_entry(ledger_id, entry_id):
        raise NoSuchEntry(f"{context.name} has no entry {ledger_id}:{entry_id}")
    # Looked up first: a hit needs no permits, no request and no future.
    cached = context.cache.get(context.single_reader, ledger_id, entry_id)
    if cached is not None:
        return cached
    return (await read_entries(context, storage_reads, EntryRange(ledger_id, entry_id, entry_id)))[0]


async def read_entries(
    context: LedgerContext, storage_reads: StorageReads, wanted: EntryRange
) -> list[Entry]:
    """Return consecutive entries of one ledger, which must exist; the cache is used and not filled.

    Raises PersistenceError, and TooManyRequests when too much is being read.
    """
    request = _AwaitedRead(context, wanted)
    read = EntryRead(context, storage_reads, request)
    read.begin(request.ranges())
    try:
        return await request.answer
    finally:
        # Also when the caller was cancelled while the read waited for its permits.
        read.permits.release()


async def find_newest(
    context: LedgerContext, storage_reads: StorageReads, holds: Callable[[Entry], bool]
) -> Position | None:
    """Return the newest entry for which the predicate holds, or None.

    A binary search, so the predicate must hold for a beginning of the managed ledger and for nothing behind
    it. Raises as `read_entry`.
    """
    ledgers = context.ledgers
    newest: Position | None = None
    low, high = 0, ledgers.entries
    # By index over all ledgers, so each step halves the entries and not the ledgers.
    while low < high:
        middle = ledgers.position_at((low + high) // 2)
        end = ledgers.position_at(high - 1)
        holding = holds(await read_entry(context, storage_reads, middle))
        # Counted anew: trimming takes ledgers from the front during the read, which lowers every index. With the former
        # ones the search would end at a newer entry than those that it has looked at.
        if holding:
            newest = middle
            high = ledgers.rank(end)
        else:
            high = max(ledgers.rank(middle) - 1, 0)
        low = 0 if newest is None else ledgers.rank(newest)
    # Nothing at the place of one that is gone: everything through it is gone too.
    return newest if newest is not None and ledgers.rank(newest) else None
